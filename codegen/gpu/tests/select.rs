//! Choices of the rows of a cache, run by the PTX emulator, against the evaluator.

use crate::support::{Case, Compiled, Gen};
use llmcc_gpu::llvm::Compiler;
use llmcc_ir::eval::{Batch, OperandData};
use llmcc_ir::kv::{KvDType, KvSpec};
use llmcc_ir::target::{Arch, TargetSpec, find};
use llmcc_ir::ty::Dim;
use llmcc_test_support::selected::rows_of;

/// A machine with so many multiprocessors.
fn machine(name: &str, sms: u32) -> TargetSpec {
    let mut target = *find(name).expect("a target");
    if let Arch::Gpu(gpu) = &mut target.arch {
        gpu.sms = sms;
    }
    target
}

fn random(g: &mut Gen, n: usize) -> Vec<f32> {
    g.rng.floats(n)
}

/// Small whole numbers: many scores are equal, and no sum is rounded.
fn whole(g: &mut Gen, n: usize) -> Vec<f32> {
    (0..n).map(|_| g.rng.below(0, 5) as f32 - 2.0).collect()
}

/// The same, of which some are no numbers.
fn broken(g: &mut Gen, n: usize) -> Vec<f32> {
    let values = whole(g, n);
    values.into_iter().map(|x| if g.rng.chance(400) { f32::NAN } else { x }).collect()
}

/// A step of tokens of these sequences and positions.
fn step_of(seed: u64, tokens: &[(usize, usize)]) -> Gen {
    let mut g = Gen::new(seed, 1, 1);
    g.rows = Dim::Tokens;
    g.batch = Batch {
        tokens: vec![0; tokens.len()],
        seqs: tokens.iter().map(|t| t.0).collect(),
        positions: tokens.iter().map(|t| t.1 as i32).collect(),
        out_rows: vec![],
        ..Batch::default()
    };
    g
}

/// A case of `heads` heads that select `top` rows.
fn case(mut g: Gen, spec: KvSpec, sizes: [usize; 2], row: fn(&mut Gen, usize) -> Vec<f32>) -> Case {
    let body = g.select(spec, sizes, row);
    g.case(body)
}

/// Runs twice on the same memory, and returns the result of both.
fn run(case: &Case, target: &TargetSpec) -> Vec<OperandData<'static>> {
    run_compiled(case, &Compiled::new(&case.kernel, &Compiler::new(), target))
}

fn run_compiled(case: &Case, compiled: &Compiled) -> Vec<OperandData<'static>> {
    let mut runs = compiled.run(case, 2).0;
    let last = runs.pop().expect("two runs");
    (0..case.m()).for_each(|i| assert_eq!(case.selected(&runs[0], i), case.selected(&last, i), "{}", case.text()));
    last
}

/// Several sequences, with fewer rows than are selected and more.
const RAGGED: &[(usize, usize)] = &[(2, 40), (0, 0), (1, 15), (3, 16), (0, 1), (2, 31), (4, 129), (3, 17)];

#[test]
fn the_best_rows_are_selected() {
    for seed in 0..24 {
        let mut g = step_of(seed, RAGGED);
        let dtype = KvDType::ALL[seed as usize % KvDType::ALL.len()].0;
        let d = if dtype == KvDType::Int4 { 2 * g.rng.below(1, 20) } else { g.rng.below(2, 40) };
        let (every, heads, top) = (g.rng.pick(&[1, 1, 4]), g.rng.below(1, 20), g.rng.below(1, 30));
        let case = case(g, rows_of(d, dtype, every), [heads, top], random);
        case.check_select(&run(&case, find(["sm80", "sm90"][seed as usize % 2]).expect("a target")));
    }
}

/// As wide as DeepSeek-V3.2's, on any target.
#[test]
fn real_heads_select() {
    for target in ["sm80", "sm86", "sm90"] {
        let case = case(step_of(5, &[(0, 150), (1, 70)]), rows_of(128, KvDType::Bf16, 1), [64, 100], random);
        case.check_select(&run(&case, find(target).expect("a target")));
    }
}

/// Where no sum is rounded, exactly the evaluator's: the first of equal scores, and NaN last.
#[test]
fn equal_scores_and_nan_are_ordered() {
    for (seed, row) in [whole, broken, broken, whole].into_iter().enumerate() {
        let (heads, top) = ([1, 3, 9, 20][seed], [40, 7, 300, 1][seed]);
        let tokens = [&[(5, 900)], RAGGED].concat();
        let case = case(step_of(seed as u64, &tokens), rows_of(6, KvDType::F32, 1), [heads, top], row);
        let (got, want) = (run(&case, &machine("sm90", [3, 132, 7, 1][seed])), case.expected());
        for i in 0..case.m() {
            assert_eq!(case.selected(&got, i), case.selected(&want, i), "seed {seed} token {i}\n{}", case.text());
        }
    }
}

/// Contexts of many times as many rows as are kept: by one block, and by several that leave their best.
#[test]
fn long_contexts_are_selected_from() {
    for (sms, top) in [(1, 300), (7, 300), (40, 700), (132, 5)] {
        let g = step_of(top as u64, &[(0, 6000), (1, 300), (2, 3000)]);
        let case = case(g, rows_of(4, KvDType::F16, 1), [2, top], random);
        case.check_select(&run(&case, &machine("sm90", sms)));
    }
    // Scores that ascend, so that every row is better than those before it.
    for row in [1.0, -1.0] {
        let mut g = step_of(1, &[(0, 5000)]);
        let body = g.select(rows_of(2, KvDType::F32, 1), [1, 200], |_, n| vec![1.0; n]);
        let mut case = g.case(body);
        for operand in &mut case.operands {
            if let OperandData::State(state) = operand {
                let kv = state.paged_mut().expect("a cache");
                (0..5001).for_each(|p| kv.store_value(0, p, &[10_000.0 + row * p as f64, 0.0]));
            }
        }
        for sms in [1, 9] {
            let got = run(&case, &machine("sm80", sms));
            assert_eq!(case.selected(&got, 0), case.selected(&case.expected(), 0), "{sms}");
        }
    }
}

/// A token's selection depends on its sequence alone: in the whole step, alone, and in a step of many.
#[test]
fn selections_do_not_depend_on_the_batch() {
    let mut tokens = vec![(0, 2500), (1, 0), (2, 699), (3, 127), (4, 1024)];
    tokens.extend((5..40).map(|s| (s, 20 * s)));
    let case = case(step_of(3, &tokens), rows_of(16, KvDType::F16, 1), [5, 50], random);
    let target = machine("sm90", 11);
    let compiled = Compiled::new(&case.kernel, &Compiler::new(), &target);
    let all = run_compiled(&case, &compiled);
    case.check_select(&all);
    for i in [0, 1, 2, 3, 4, 20, 39] {
        let mut alone = case.only(i).expect("rows of tokens");
        alone.batch.seqs = vec![case.batch.seqs[i]];
        let got = run_compiled(&alone, &compiled);
        assert_eq!(case.selected(&all, i), alone.selected(&got, 0), "token {i}");
    }
}
