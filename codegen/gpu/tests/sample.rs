//! The most probable tokens, against the evaluator, through LLVM and the PTX emulator.

use crate::support::{Case, Emulated, Gen};
use llmcc_gpu::llvm::Compiler;
use llmcc_ir::eval::{OperandData, Rows, Wanted};
use llmcc_ir::graph::F32;
use llmcc_ir::kernel::{Body, ParamKind, RowElem, TopK};
use llmcc_ir::target::{TargetSpec, find};
use llmcc_ir::ty::Dim;
use llmcc_test_support::Rng;

fn target(seed: u64) -> &'static TargetSpec {
    find(["sm80", "sm90"][(seed % 2) as usize]).expect("a target")
}

/// How the logits of a row are distributed.
#[derive(Clone, Copy, Debug)]
enum Kind {
    /// As a model's.
    Plain,
    /// Few different numbers.
    Ties,
    /// One number only.
    Equal,
    /// Nearly all −∞, so that some of the largest are.
    Masked,
    /// Ascending, descending: all the largest lie in one slice.
    Sorted(bool),
    /// Zeros of both signs, tiny and huge numbers.
    Extreme,
    /// Some NaN.
    Nan,
}

fn logit(rng: &mut Rng, kind: Kind, i: usize, n: usize) -> f32 {
    match kind {
        Kind::Plain => (0..6).map(|_| rng.float()).sum::<f32>() * 4.0,
        Kind::Ties => (rng.float() * 6.0).round(),
        Kind::Equal => -2.5,
        Kind::Masked if rng.chance(n / 9 + 1) => rng.float(),
        Kind::Masked => f32::NEG_INFINITY,
        Kind::Sorted(up) => (if up { i as f32 } else { -(i as f32) }) / 64.0,
        Kind::Extreme => rng.pick(&[0.0, -0.0, 1e-40, -1e-40, 3e38, -3e38, f32::MIN_POSITIVE, 1.0]),
        Kind::Nan if rng.chance(n / 3 + 1) => rng.pick(&[f32::NAN, -f32::NAN]),
        Kind::Nan => rng.float(),
    }
}

const KINDS: [Kind; 8] = [
    Kind::Plain,
    Kind::Ties,
    Kind::Equal,
    Kind::Masked,
    Kind::Sorted(true),
    Kind::Sorted(false),
    Kind::Extreme,
    Kind::Nan,
];

/// A case with a kind per row, from `kinds` on.
fn case(seed: u64, vocab: usize, k: usize, kinds: usize) -> Case {
    let mut g = Gen::new(seed, 4, 40);
    g.rows = Dim::Rows;
    let m = g.batch.out_rows.len();
    let wanted = |rng: &mut Rng| Wanted {
        candidates: rng.pick(&[0, 1, 2, k, usize::MAX]),
        scale: F32::new(std::f32::consts::LOG2_E / rng.pick(&[0.3, 0.7, 1.0, 2.0])),
    };
    g.batch.wanted = (0..m).map(|_| wanted(&mut g.rng)).collect();
    let data =
        (0..m * vocab).map(|i| logit(&mut g.rng, KINDS[(kinds + i / vocab) % KINDS.len()], i % vocab, vocab)).collect();
    let x = g.push(
        ParamKind::Rows { rows: Dim::Rows, cols: vocab, elem: RowElem::F32 },
        OperandData::Rows(Rows { cols: vocab, data }),
    );
    let out = g.output(TopK::columns(k), RowElem::F32);
    g.case(Body::TopK(TopK { x, k, out }))
}

fn check(compiler: &Compiler, case: &Case, seed: u64) {
    let Body::TopK(TopK { x, k, out }) = case.kernel.body else { unreachable!("made so") };
    let (got, want) = (case.run(compiler, target(seed)), case.expected());
    let (OperandData::Rows(logits), OperandData::Rows(got), OperandData::Rows(want)) =
        (&case.operands[x], &got[out], &want[out])
    else {
        unreachable!("rows")
    };
    for i in 0..case.m() {
        let (wanted, got, want) = (case.batch.wanted[i], got.row(i), want.row(i));
        let n = if wanted.candidates > 1 { k } else { wanted.candidates };
        for j in 0..n {
            let same = got[j] == want[j] || (got[j].is_nan() && want[j].is_nan());
            assert!(
                same && got[k + j] == want[k + j],
                "row {i}, candidate {j}: {} of token {}, not {} of {}\n{}",
                got[j],
                got[k + j],
                want[j],
                want[k + j],
                case.text()
            );
            assert!(got[j].to_bits() != (-0.0f32).to_bits(), "−0 is given as 0");
        }
        if wanted.candidates > 1 && want[0].is_finite() && logits.row(i).iter().all(|v| *v < 1e38) {
            let (sum, exact) = (f64::from(got[2 * k]), f64::from(want[2 * k]));
            // A tenth of the error allowed for large vocabularies is kept here.
            assert!(
                (sum - exact).abs() <= 0.1 * TopK::SUM_ERROR * exact,
                "row {i}: sum {sum}, not {exact}\n{}",
                case.text()
            );
        }
    }
}

#[test]
fn one_slice() {
    let compiler = Compiler::new();
    for seed in 0..24 {
        let mut rng = Rng::new(seed);
        let vocab =
            [rng.below(1, 40), rng.below(40, 700), 4 * rng.below(1, 1024), rng.below(2000, 4097)][seed as usize % 4];
        let k = rng.pick(&[1, 5, 64, 100]).min(vocab);
        check(&compiler, &case(seed, vocab, k, seed as usize), seed);
    }
}

#[test]
fn several_slices() {
    let compiler = Compiler::new();
    for seed in 0..12 {
        let mut rng = Rng::new(100 + seed);
        // Also last slices that are shorter than the candidates wanted.
        let vocab = [rng.below(4097, 4140), 8192, 4 * rng.below(1100, 4000), rng.below(9000, 16000)][seed as usize % 4];
        let k = rng.pick(&[1, 40, 64, 128]);
        check(&compiler, &case(seed, vocab, k, seed as usize), seed);
    }
}

/// The workspace is as it was found, so that the next launch finds its counters zero.
#[test]
fn it_can_be_launched_again() {
    let compiler = Compiler::new();
    let case = case(3, 9001, 64, 0);
    let all = case.run_times(&compiler, target(1), 3);
    assert!(all.windows(2).all(|w| format!("{:?}", w[0]) == format!("{:?}", w[1])));
}

#[test]
fn what_does_not_fit_is_refused() {
    let emit = |vocab: usize, k: usize| {
        let text = format!(
            "kernel @h.top_k0 rows R {{\n  param %x: rows f32[R, {vocab}]\n  param %y: rows f32[R, {}]\n  top_k x=%x k={k} out=%y\n}}",
            TopK::columns(k)
        );
        llmcc_gpu::emit(&llmcc_ir::text::parse_kernel(&text).expect("a kernel"), target(0))
    };
    for (vocab, k) in [(128_256, 64), (262_144, 64), (151_936, 128), (500_000, 64)] {
        assert!(emit(vocab, k).is_ok(), "{k} of {vocab}");
    }
    for (vocab, k) in [(600_000, 64), (10_000, 300), (2_000_000, 1)] {
        assert!(emit(vocab, k).is_err(), "{k} of {vocab}");
    }
}
