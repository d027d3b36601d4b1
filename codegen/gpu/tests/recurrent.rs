//! Convolutions over time and linear recurrences against the evaluator, through LLVM and the PTX
//! emulator.

use crate::support::{Case, Compiled, Emulated, Gen, step_of};
use llmcc_gpu::llvm::Compiler;
use llmcc_ir::eval::{Batch, OperandData};
use llmcc_ir::graph::Update;
use llmcc_ir::kernel::Body;
use llmcc_ir::state::FixedSpec;
use llmcc_ir::target::{TargetSpec, find};
use llmcc_test_support::edits;

/// Random cases per test.
const CASES: u64 = 40;

fn target(seed: u64) -> &'static TargetSpec {
    find(["sm80", "sm90"][(seed % 2) as usize]).expect("a target")
}

/// Bits of rows and of states.
fn bits(o: &OperandData) -> Vec<u64> {
    match o {
        OperandData::Rows(r) => r.data.iter().map(|x| x.to_bits().into()).collect(),
        // Adapters, no step changes.
        OperandData::State(s) => s.fixed().map_or_else(Vec::new, |fixed| {
            (0..fixed.sequences()).flat_map(|i| fixed.clone().of(i).to_vec()).map(f64::to_bits).collect()
        }),
        _ => vec![],
    }
}

fn recurrence(g: &mut Gen, seed: u64) -> Body {
    let groups = g.rng.below(1, 4);
    let heads = groups * g.rng.below(1, 4);
    // Few rows and odd numbers of them, many, and those that lanes share evenly.
    let rows = match seed % 4 {
        0 => g.rng.below(1, 20),
        1 => 4 * g.rng.below(1, 40),
        2 => g.rng.below(1, 300),
        _ => 128,
    };
    let cols = if seed.is_multiple_of(3) { g.rng.below(1, 80) } else { 4 * g.rng.below(1, 20) };
    let per_row = g.rng.chance(2);
    let update = g.rng.pick(&Update::ALL[..]);
    g.recurrence(FixedSpec { heads, rows, cols }, groups, update, per_row)
}

fn convolution(g: &mut Gen, seed: u64) -> Body {
    let width = g.rng.below(2, 7);
    let channels = if seed.is_multiple_of(2) { g.rng.below(1, 300) } else { 4 * g.rng.below(1, 80) };
    g.convolution(width, channels)
}

#[test]
fn recurrences() {
    let compiler = Compiler::new();
    for seed in 0..CASES {
        let mut g = Gen::new(seed, 6, 40);
        let body = recurrence(&mut g, seed);
        let case = g.case(body);
        case.check_close(&case.run(&compiler, target(seed)), 2e-5);
    }
}

#[test]
fn means() {
    let compiler = Compiler::new();
    for seed in 0..CASES / 2 {
        let mut g = Gen::new(seed, 6, 40);
        let channels = g.rng.below(1, 300);
        let body = g.wkv(channels);
        let case = g.case(body);
        case.check_close(&case.run(&compiler, target(seed)), 5e-5);
    }
}

#[test]
fn windows() {
    let compiler = Compiler::new();
    for seed in 0..CASES / 2 {
        let mut g = Gen::new(seed, 20, 40);
        let (width, series, channels) = (g.rng.below(2, 9), g.rng.below(1, 3), g.rng.below(1, 200));
        let body = g.window_means(width, series, channels);
        let case = g.case(body);
        case.check_close(&case.run(&compiler, target(seed)), 5e-5);
    }
}

fn adapters(g: &mut Gen, seed: u64) -> Body {
    let k = if seed.is_multiple_of(2) { g.rng.below(1, 80) } else { g.rng.below(1, 700) };
    let parts: Vec<usize> = (0..g.rng.below(1, 4)).map(|_| 16 * g.rng.below(1, 4)).collect();
    g.adapter_matmul(k, &parts)
}

/// Products with matrices of adapters, which some sequences have none of.
#[test]
fn products_with_adapters() {
    let compiler = Compiler::new();
    for seed in 0..CASES {
        let mut g = Gen::new(seed, 6, 40);
        let body = adapters(&mut g, seed);
        let case = g.case(body);
        case.check_close(&case.run(&compiler, target(seed)), 2e-6);
    }
}

/// A product and multiply-adds, as CPUs do them.
#[test]
fn convolutions() {
    let compiler = Compiler::new();
    for seed in 0..CASES {
        let mut g = Gen::new(seed, 6, 40);
        let body = convolution(&mut g, seed);
        let case = g.case(body);
        case.check_close(&case.run(&compiler, target(seed)), 1e-6);
    }
}

/// Steps longer than a warp's window of tokens, of one sequence and of many.
#[test]
fn long_steps() {
    let compiler = Compiler::new();
    for seed in 0..16 {
        let mut g = match seed % 4 {
            0 => step_of(seed, 70),
            1 => Gen::new(seed, 60, 100),
            2 => one_each(seed, 75),
            _ => far_apart(seed),
        };
        let body = match seed / 4 {
            0 => g.convolution(4, 24),
            1 => g.recurrence(FixedSpec { heads: 2, rows: 12, cols: 20 }, 1, Update::Delta, false),
            2 => g.wkv(24),
            _ => g.window_means(7, 2, 24),
        };
        let case = g.case(body);
        case.check_close(&case.run(&compiler, target(seed)), 5e-5);
    }
}

/// A token each of so many sequences.
fn one_each(seed: u64, sequences: usize) -> Gen {
    let mut g = Gen::new(seed, 1, 1);
    g.batch = Batch {
        tokens: vec![0; sequences],
        seqs: (0..sequences).rev().collect(),
        positions: vec![0; sequences],
        out_rows: vec![],
        ..Batch::default()
    };
    g
}

/// Tokens of a sequence with another sequence's tokens between them.
fn far_apart(seed: u64) -> Gen {
    let mut g = Gen::new(seed, 1, 1);
    let seqs: Vec<usize> = (0..120).map(|i| usize::from(![0, 50, 51, 119].contains(&i))).collect();
    let mut next = [0, 0];
    let positions = seqs.iter().map(|s| {
        next[*s] += 1;
        next[*s] - 1
    });
    let positions = positions.collect();
    g.batch = Batch { tokens: vec![0; seqs.len()], seqs, positions, out_rows: vec![], ..Batch::default() };
    g
}

/// However a step is cut in two, and whatever other sequences are in it, the bits are the same.
#[test]
fn steps_may_be_cut_anywhere() {
    let compiler = Compiler::new();
    for seed in 0..CASES / 2 {
        let mut g = Gen::new(seed, 12, 40);
        let body = match seed % 6 {
            0 => convolution(&mut g, seed),
            1 => g.wkv(1 + seed as usize * 13 % 150),
            2 => adapters(&mut g, seed),
            3 => g.window_means(3, 1 + seed as usize / 6 % 2, 1 + seed as usize * 7 % 90),
            _ => recurrence(&mut g, seed),
        };
        let case = g.case(body);
        let cut = g_cut(seed, case.m());
        let compiled = Compiled::new(&case.kernel, &compiler, target(seed));
        let run = |case: &Case| compiled.run(case, 1).0.remove(0);
        for (i, (got, want)) in case.cut(cut, &run(&case), &run).iter().enumerate() {
            assert_eq!(bits(got), bits(want), "operand {i}, cut at {cut}\n{}", case.text());
        }
    }
}

/// Where a step of `m` tokens is cut.
fn g_cut(seed: u64, m: usize) -> usize {
    (seed as usize * 7 + 3) % m
}

/// States with too many rows, or with too long windows, are refused.
#[test]
fn states_beyond_registers_are_refused() {
    let mut g = Gen::new(0, 3, 40);
    let body = g.recurrence(FixedSpec { heads: 1, rows: 1025, cols: 1 }, 1, Update::Plain, false);
    let many_rows = g.case(body);
    let mut g = Gen::new(0, 3, 40);
    let body = g.convolution(17, 4);
    for (case, what) in [(many_rows, "states of 1025 rows"), (g.case(body), "over 17 tokens")] {
        let error = llmcc_gpu::emit(&case.kernel, target(0)).unwrap_err().to_string();
        assert!(error.contains(what) && error.contains("compile for a CPU"), "{error}");
    }
}

/// Every field of a kernel changes the results, or is refused.
#[test]
fn every_field_of_a_kernel_matters() {
    let (compiler, target) = (Compiler::new(), target(1));
    let run = |case: &Case| llmcc_gpu::emit(&case.kernel, target).is_ok().then(|| case.run(&compiler, target));
    edits::check(&[edits::CAUSAL_CONV], &run);
    edits::check(&[edits::RECURRENCE, edits::ERASING, edits::BONUS, edits::SCAN], &run);
    edits::check(&[edits::WKV], &run);
    edits::check(&[edits::WINDOW_MEANS], &run);
    edits::check(&[edits::SINKHORN], &run);
}
