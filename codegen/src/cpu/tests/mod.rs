//! Compiled kernels against the oracle, against each other, and against the reference microkernels.

mod adapters;
mod evict;
mod experts;
mod families;
mod generate;
mod jit;
mod listing;
mod matmul;
mod newcomer;
mod recurrent;
mod scalar;
mod select;
mod supported;
mod wide;
mod windows;

use super::CpuBackend;
use jit::{Jit, Run, same_bits};
use llmcc_ir::eval::OperandData;
use llmcc_ir::graph::UnaryOp;
use llmcc_ir::target::{CpuIsa, TARGETS, TargetSpec};
use llmcc_test_support::{Case, ULP, row_of};
use llmcc_ukernels::{Level, detect, portable_table, table};
use proptest::test_runner::{Config as ProptestConfig, RngSeed};

fn target(isa: CpuIsa) -> &'static TargetSpec {
    TARGETS.iter().find(|t| t.cpu() == Some(isa)).unwrap()
}

const MADE_HERE: CpuBackend = CpuBackend { portable: true };
const CALLS: CpuBackend = CpuBackend { portable: false };

/// The baseline, on any processor.
fn baseline() -> Run<'static> {
    Run { backend: &CALLS, target: target(CpuIsa::X86_64), table: table(Level::Sse2), cuts: vec![] }
}

/// The baseline with inner products made here.
fn baseline_made_here() -> Run<'static> {
    Run { backend: &MADE_HERE, ..baseline() }
}

/// x86-64-v3 with inner products made here and with microkernels of this processor; nothing if it
/// has no AVX2.
fn v3() -> Option<[Run<'static>; 2]> {
    if detect() < Level::Avx2 {
        eprintln!("skipped: this processor has no AVX2");
        return None;
    }
    let run = |backend| Run { backend, target: target(CpuIsa::X86_64V3), table: table(detect()), cuts: vec![] };
    Some([run(&MADE_HERE), run(&CALLS)])
}

/// The baseline and x86-64-v3 calling the scalar microkernels, the baseline's, and this
/// processor's, all of which must give the same bits; no x86-64-v3 where there is no AVX2.
fn with_microkernels() -> Vec<Run<'static>> {
    let mut runs = vec![baseline(), Run { table: portable_table(detect()), ..baseline() }];
    if let Some([_, calls]) = v3() {
        runs.extend([
            Run { table: table(Level::Scalar), ..calls.clone() },
            Run { table: portable_table(detect()), ..calls },
        ]);
    }
    runs
}

/// x86-64-v3 calling the microkernels of this processor, whatever order they sum bf16 rows in;
/// nothing if it has no AVX2.
fn with_its_own_order() -> Option<Run<'static>> {
    v3().map(|[_, calls]| calls)
}

/// The same kernels in every run, unless PROPTEST_RNG_SEED says otherwise. Seeds shrink to nothing
/// useful; failures print theirs.
fn config(cases: u32) -> ProptestConfig {
    let mut config =
        ProptestConfig { cases, max_shrink_iters: 0, failure_persistence: None, ..ProptestConfig::default() };
    if config.rng_seed == RngSeed::Random {
        config.rng_seed = RngSeed::Fixed(1);
    }
    config
}

/// All ways to run a kernel on this processor.
fn all() -> Vec<Run<'static>> {
    [baseline(), baseline_made_here()].into_iter().chain(v3().into_iter().flatten()).collect()
}

fn assert_same(a: &[OperandData], b: &[OperandData], what: &str) {
    for (i, (a, b)) in a.iter().zip(b).enumerate() {
        assert!(same_bits(a, b), "operand {i} differs: {what}\n{a:?}\n{b:?}");
    }
}

/// Runs on every backend and checks that neither the split into items nor the rest of the batch
/// changes a bit.
fn run_all(case: &Case, check: impl Fn(&[OperandData])) {
    for run in all() {
        let object = case.compile(&run);
        let got = case.run_object(&object, &run);
        check(&got);
        let items = case.items();
        let cuts = vec![items / 3, items / 3, items / 2];
        let split = case.run_object(&object, &Run { cuts, ..run.clone() });
        assert_same(&got, &split, "items in several ranges");
        assert_alone(case, &object, &run, &got);
    }
}

/// The last row of the batch, run alone, gives the same bits.
fn assert_alone(case: &Case, object: &crate::Object, run: &Run, together: &[OperandData<'static>]) {
    if case.operands.iter().any(|o| matches!(o, OperandData::State(_))) || case.kernel.rows != llmcc_ir::ty::Dim::Tokens
    {
        return;
    }
    let Some(alone) = case.only(case.m() - 1) else { return };
    let got = alone.run_object(object, run);
    for (i, (a, b)) in got.iter().zip(together).enumerate() {
        let b = row_of(b, case.m() - 1);
        assert!(same_bits(a, &b), "operand {i} of a row alone differs\n{a:?}\n{b:?}");
    }
}

/// Error of an elementary function, absolute; `scalar.rs` holds the code to it.
fn own_error(op: UnaryOp, x: f64, value: f64) -> f64 {
    let ulps = match op {
        UnaryOp::Neg | UnaryOp::Relu | UnaryOp::RoundI8 | UnaryOp::RoundE4m3 => 0.0,
        UnaryOp::Relu2 | UnaryOp::Sqrt => 1.0,
        UnaryOp::Exp => 2.0,
        UnaryOp::Sigmoid | UnaryOp::Silu | UnaryOp::Tanh => 4.0,
        UnaryOp::Gelu | UnaryOp::Softplus => 8.0,
        UnaryOp::GeluTanh => 4.0 + 4.0 * (0.8 * (x + 0.045 * x.powi(3))).abs(),
    };
    ulps * ULP * value.abs()
}
