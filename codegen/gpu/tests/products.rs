//! Products with random epilogues (RoPE, norms, residuals, caches), random shapes and tiles,
//! through the emulator against the evaluator.

use crate::support::{Case, Emulated, Gen};
use llmcc_gpu::llvm::Compiler;
use llmcc_ir::eval::{KvState, OperandData};
use llmcc_ir::graph::{BinaryOp, UnaryOp};
use llmcc_ir::kernel::{Body, Expr, Matmul, Norm, ParamKind, RowElem, Segment, Store};
use llmcc_ir::kv::{KvDType, KvSpec};
use llmcc_ir::quant::{Format, Packing};
use llmcc_ir::target::find;
use llmcc_ir::ty::Dim;

fn boxed(e: Expr) -> Box<Expr> {
    Box::new(e)
}

/// An epilogue as models have them, or a random one.
fn epilogue(g: &mut Gen, n: usize, run: usize, lanes: usize) -> Expr {
    let acc = match lanes {
        1 => Expr::Acc(0),
        _ => Expr::Binary(BinaryOp::Mul, boxed(Expr::Unary(UnaryOp::Silu, boxed(Expr::Acc(0)))), boxed(Expr::Acc(1))),
    };
    match g.rng.below(0, 5) {
        0 => acc,
        1 => {
            let param = g.input(Dim::Tokens, n + 3);
            Expr::Binary(BinaryOp::Add, boxed(acc), boxed(Expr::Rows { param, start: 3 }))
        }
        2 => {
            let table = g.input(Dim::Tokens, run / 2 * 2);
            let gain = g.vector(run);
            let normed = Expr::Normalize(Norm::rms(1e-2, run), boxed(acc));
            let x = Expr::Binary(BinaryOp::Mul, boxed(normed), boxed(Expr::Vector(gain)));
            Expr::Rope { head_dim: run, table, x: boxed(x) }
        }
        3 => {
            let table = g.input(Dim::Tokens, run / 4 * 2);
            Expr::Rope { head_dim: run, table, x: boxed(acc) }
        }
        _ => {
            let vector = g.vector(n);
            Expr::Binary(BinaryOp::Add, boxed(acc), boxed(Expr::Vector(vector)))
        }
    }
}

fn store(g: &mut Gen, n: usize, run: usize) -> Store {
    if g.rng.chance(2) {
        // Codes of 4 bits come in pairs.
        let dtype = match g.rng.pick(KvDType::ALL).0 {
            KvDType::Int4 if !run.is_multiple_of(2) => KvDType::Int8,
            dtype => dtype,
        };
        let spec = KvSpec {
            dtype,
            kv_heads: n / run,
            key_dim: run,
            value_dim: run,
            latent: false,
            window: None,
            every: 1,
            first: None,
        };
        if g.rng.chance(4) {
            // Rows that are key and value, of several tokens.
            let spec = KvSpec { latent: true, every: g.rng.below(2, 6), ..spec };
            return Store::KvValue(g.kv(KvState::new(spec)));
        }
        let kv = g.kv(KvState::new(spec));
        return if g.rng.chance(2) { Store::KvKey(kv) } else { Store::KvValue(kv) };
    }
    let start = g.rng.pick(&[0, 0, 8, 5]);
    let elem = g.rng.pick(&[RowElem::F32, RowElem::F16, RowElem::Bf16]);
    let extra = g.rng.pick(&[0, 3]);
    Store::Rows { param: g.output(start + n + extra, elem), start }
}

fn product(seed: u64, tokens: usize, tile_m: usize) -> Case {
    let mut g = Gen::new(seed, tokens, tokens + 20);
    let k = g.rng.pick(&[64, 128, 320]);
    let x = g.input_half(k, RowElem::F16);
    let lanes = g.rng.below(1, 3);
    // Products with f16 input are exact.
    let format = Format::F16.with_packing(Packing::Fragment);
    let mut segments = vec![];
    for _ in 0..g.rng.below(1, 4) {
        let run = g.rng.pick(&[16, 32, 64]);
        let n = run * g.rng.below(1, 5);
        let weights = (0..lanes).map(|_| g.matrix(n, k, format)).collect();
        let tile_n = if tile_m > 8 { 128 / lanes } else { 64 };
        let expr = epilogue(&mut g, n, run, lanes);
        let store = store(&mut g, n, run);
        segments.push(Segment { n, weights, tile_n, expr, store });
    }
    g.case(Body::Matmul(Matmul { x, prologue: None, segments, tile_m, k_parts: 1 }))
}

/// A product of two segments that differ in the number of their matrices, so that the second goes
/// through the rings and sums that the first has left.
fn two_phases(seed: u64, tokens: usize, tile_m: usize) -> Case {
    let mut g = Gen::new(seed, tokens, tokens + 20);
    let k = g.rng.pick(&[64, 128, 320]);
    let x = g.input_half(k, RowElem::F16);
    let format = Format::F16.with_packing(Packing::Fragment);
    let first = g.rng.below(1, 3);
    let mut segments = vec![];
    for lanes in [first, 3 - first] {
        let run = g.rng.pick(&[16, 32, 64]);
        let n = run * g.rng.below(1, 7);
        let weights = (0..lanes).map(|_| g.matrix(n, k, format)).collect();
        let tile_n = if tile_m > 8 { 128 / lanes } else { 64 };
        let expr = epilogue(&mut g, n, run, lanes);
        let store = store(&mut g, n, run);
        segments.push(Segment { n, weights, tile_n, expr, store });
    }
    g.case(Body::Matmul(Matmul { x, prologue: None, segments, tile_m, k_parts: 1 }))
}

/// Rows within f32 rounding of sums of `k` products, and of the storage; caches likewise.
fn compare(case: &Case, seed: u64) {
    let compiler = Compiler::new();
    let want = case.expected();
    // Little shared memory, much, and wgmma.
    let mut target = *find(["sm80", "sm86", "sm90", "sm90"][seed as usize % 4]).unwrap();
    if let (llmcc_ir::target::Arch::Gpu(gpu), true) = (&mut target.arch, seed.is_multiple_of(3)) {
        // So few multiprocessors that tiles are cut.
        gpu.sms = 1 + seed as u32 % 3;
        target.wish.cut = Some(true);
    }
    let got = case.run(&compiler, &target);
    for (i, (want, got)) in want.iter().zip(&got).enumerate() {
        match (want, got, &case.kernel.params[i].kind) {
            (OperandData::Rows(w), OperandData::Rows(g), ParamKind::Rows { elem, .. }) => {
                // Values on either side of a tie round to neighbours.
                let store = match elem {
                    RowElem::F16 => 2f32.powi(-10),
                    RowElem::Bf16 => 2f32.powi(-7),
                    _ => 0.0,
                };
                for (a, b) in w.data.iter().zip(&g.data) {
                    let close = (a - b).abs() <= 2e-4 + (store + 2e-5) * a.abs() || a.is_nan() && b.is_nan();
                    assert!(close, "seed {seed} operand {i}: {b}, not {a}\n{}", case.text());
                }
            }
            (OperandData::State(w), OperandData::State(g), _) => {
                compare_caches(case, w.paged().expect("a cache"), g.paged().expect("a cache"), seed);
            }
            _ => {}
        }
    }
}

fn compare_caches(case: &Case, want: &KvState, got: &KvState, seed: u64) {
    for (seq, position) in case.batch.seqs.iter().zip(&case.batch.positions) {
        for head in 0..want.spec.kv_heads {
            let at = *position as usize;
            let read = |kv: &KvState, key: bool| if key { kv.key(*seq, at, head) } else { kv.value(*seq, at, head) };
            for key in [true, false] {
                let (Ok(a), Ok(b)) = (read(want, key), read(got, key)) else { continue };
                let most = a.iter().fold(0f64, |m, v| m.max(v.abs()));
                let step = match want.spec.dtype {
                    KvDType::F32 => 2f64.powi(-22),
                    KvDType::F16 => 2f64.powi(-10),
                    KvDType::Bf16 => 2f64.powi(-7),
                    KvDType::Int8 => 1.01 / 127.0,
                    KvDType::Int4 => 1.01 / 7.0,
                };
                for (a, b) in a.iter().zip(&b) {
                    assert!(
                        (a - b).abs() <= 2e-4 + step * most,
                        "seed {seed} token {position}: {b}, not {a}\n{}",
                        case.text()
                    );
                }
            }
        }
    }
}

#[test]
fn segments_of_one_matrix_and_of_two() {
    for seed in 1..25 {
        let (tokens, tile_m) = [(3, 8), (8, 8), (20, 32), (70, 128)][seed as usize % 4];
        compare(&two_phases(seed, tokens, tile_m), seed);
    }
}

#[test]
fn few_rows() {
    for seed in 1..12 {
        compare(&product(seed, 5, 8), seed);
    }
}

#[test]
fn tiles_of_rows() {
    for (seed, tile_m) in [(21, 16), (22, 32), (23, 64), (24, 64), (25, 128), (26, 128), (28, 128), (31, 256)] {
        compare(&product(seed, tile_m + 7, tile_m), seed);
    }
}

/// Tiles that leave warps without a part: whole heads of 24 columns, of few rows.
#[test]
fn warps_without_a_part() {
    for (seed, tile_n, tile_m) in [(41, 96, 16), (42, 48, 16), (43, 96, 32), (44, 96, 64)] {
        let mut g = Gen::new(seed, tile_m, tile_m);
        let x = g.input_half(128, RowElem::F16);
        let weights = vec![g.matrix(96, 128, Format::F16.with_packing(Packing::Fragment))];
        let store = Store::Rows { param: g.output(96, RowElem::F32), start: 0 };
        let segments = vec![Segment { n: 96, weights, tile_n, expr: Expr::Acc(0), store }];
        compare(&g.case(Body::Matmul(Matmul { x, prologue: None, segments, tile_m, k_parts: 1 })), seed);
    }
}

/// Norms of 24 columns in tiles of many rows, whose sums and values lie where stages were.
#[test]
fn norms_where_stages_were() {
    for (seed, tile_n) in [(53, 48), (54, 96), (55, 144)] {
        let mut g = Gen::new(seed, 130, 130);
        let x = g.input_half(64, RowElem::F16);
        let weights = vec![g.matrix(24, 64, Format::F16.with_packing(Packing::Fragment))];
        let store = Store::Rows { param: g.output(24, RowElem::F32), start: 0 };
        let expr = Expr::Normalize(Norm::rms(1e-6, 24), Box::new(Expr::Acc(0)));
        let segments = vec![Segment { n: 24, weights, tile_n, expr, store }];
        compare(&g.case(Body::Matmul(Matmul { x, prologue: None, segments, tile_m: 128, k_parts: 1 })), seed);
    }
}
