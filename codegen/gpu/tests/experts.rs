//! Experts against the evaluator, through LLVM and the PTX emulator.

use crate::support::{Case, Emulated, Gen, own_error};
use llmcc_gpu::llvm::Compiler;
use llmcc_ir::eval::OperandData;
use llmcc_ir::graph::{BinaryOp, F32, Router, Score, UnaryOp};
use llmcc_ir::kernel::{Body, ExpertMatmul, Expr, Pointwise, Route, RowElem, Segment, Store};
use llmcc_ir::quant::{Format, Packing, unpack_row};
use llmcc_ir::target::{TargetSpec, find};
use llmcc_ir::ty::Dim;
use llmcc_test_support::Bounds;

/// Random cases per test.
const CASES: u64 = 16;

fn target(seed: u64) -> &'static TargetSpec {
    find(["sm80", "sm90"][(seed % 2) as usize]).expect("a target")
}

fn boxed(e: Expr) -> Box<Expr> {
    Box::new(e)
}

/// Products of experts for `tile_m` rows at a time.
fn products(seed: u64, tile_m: usize) -> Case {
    let mut g = Gen::new(seed, 5, 40);
    g.rows = Dim::Tokens;
    let count = g.rng.below(2, 7);
    let top = g.rng.below(1, count.min(3) + 1);
    // Half of the cases have no whole blocks, of inputs, outputs or both.
    let k = if seed.is_multiple_of(2) { 16 * g.rng.below(1, 14) } else { g.rng.below(1, 200) };
    let own = g.rng.chance(2);
    let cols = if own { top * k } else { k };
    let elem = g.rng.pick(&[RowElem::F16, RowElem::Bf16, RowElem::F32]);
    let x = if elem == RowElem::F32 { g.input(g.rows, cols) } else { g.input_half(cols, elem) };
    let routes = g.routes(count, top);
    let n = if seed % 4 < 2 { 16 * g.rng.below(1, 4) } else { g.rng.below(1, 60) };
    let (rows, lanes) = (count * n.next_multiple_of(16), g.rng.below(1, 3));
    // With 16-bit rows those whose weights enter as they are: see `weights_that_are_rounded`.
    let format = match elem {
        RowElem::F32 => {
            let all = ["f32", "f16", "bf16", "w8g32", "w8g128", "w4g64", "w4g32", "w4ag32", "nf4", "q4k"];
            g.rng.pick(&all)
        }
        _ => g.rng.pick(&["f32", "f16", "bf16", "w8g64", "w8g128", "w4g64", "w4g128"]),
    };
    let format = Format::parse(format).expect("a format").with_packing(Packing::Fragment);
    let weights = (0..lanes).map(|_| g.matrix(rows, k, format)).collect();
    let last = Expr::Acc(lanes - 1);
    let expr = match g.rng.below(0, 3) {
        0 => last,
        1 => Expr::Binary(BinaryOp::Mul, boxed(Expr::Unary(UnaryOp::Silu, boxed(Expr::Acc(0)))), boxed(last)),
        _ => {
            let bias = Expr::Expert { vector: g.vector(count * n), routes, top };
            let rows = Expr::Rows { param: g.input(g.rows, top * n), start: 0 };
            let sum = Expr::Binary(BinaryOp::Add, boxed(last), boxed(bias));
            Expr::Binary(BinaryOp::Add, boxed(sum), boxed(rows))
        }
    };
    let out = g.rng.pick(&[RowElem::F32, RowElem::F16, RowElem::Bf16]);
    let store = Store::Rows { param: g.output(top * n, out), start: 0 };
    let segment = Segment { n, weights, tile_n: 16, expr, store };
    g.case(Body::ExpertMatmul(ExpertMatmul { x, routes: Some(routes), experts: count, top, segment, tile_m }))
}

/// A product by heads, of any number of columns and rows.
fn by_heads(seed: u64, tile_m: usize) -> Case {
    let mut g = Gen::new(seed, 5, 40);
    g.rows = Dim::Tokens;
    let heads = g.rng.below(1, 6);
    let k = if seed.is_multiple_of(2) { 16 * g.rng.below(1, 9) } else { g.rng.below(1, 130) };
    let elem = g.rng.pick(&[RowElem::F16, RowElem::Bf16, RowElem::F32]);
    let x = if elem == RowElem::F32 { g.input(g.rows, heads * k) } else { g.input_half(heads * k, elem) };
    let n = if seed.is_multiple_of(3) { 16 * g.rng.below(1, 4) } else { g.rng.below(1, 50) };
    // With 16-bit rows those whose weights enter as they are.
    let all = ["f32", "f16", "bf16", "w8g64", "w4g64", "nf4"];
    let format = g.rng.pick(if elem == RowElem::F32 { &all } else { &all[..5] });
    let format = Format::parse(format).expect("a format").with_packing(Packing::Fragment);
    let weights = vec![g.matrix(heads * n.next_multiple_of(16), k, format)];
    let out = g.rng.pick(&[RowElem::F32, RowElem::F16]);
    let store = Store::Rows { param: g.output(heads * n, out), start: 0 };
    let segment = Segment { n, weights, tile_n: 16, expr: Expr::Acc(0), store };
    g.case(Body::ExpertMatmul(ExpertMatmul { x, routes: None, experts: heads, top: heads, segment, tile_m }))
}

#[test]
fn products_by_heads() {
    let compiler = Compiler::new();
    for seed in 0..CASES {
        let case = by_heads(seed, [1, 8][seed as usize / 2 % 2]);
        Bounds::new(&case, own_error).check_segments(&case.run(&compiler, target(seed)));
    }
}

/// And the bits of both are the same.
#[test]
fn products_of_few_and_of_many_tokens() {
    let compiler = Compiler::new();
    for seed in 0..CASES {
        let [few, many] = [1, 8].map(|tile_m| {
            let case = products(seed, tile_m);
            let done = case.run(&compiler, target(seed));
            Bounds::new(&case, own_error).check_segments(&done);
            done
        });
        assert!(few == many, "seed {seed}");
    }
}

/// Scales that change inside of a unit, and minima, are applied to the weights, which are rounded to
/// 16 bits, as are numbers of tables.
#[test]
fn weights_that_are_rounded() {
    let compiler = Compiler::new();
    let formats = [
        "w4g32", "w8g32", "w4ag32", "w4ag128", "nf4", "q4k", "mxfp4", "iq4xs", "nvfp4", "w4zg64", "q6k", "ternaryr",
        "c4", "c3", "t3", "t2", "w4sg32",
    ];
    for (seed, format) in formats.into_iter().enumerate() {
        for (elem, relative) in [(RowElem::Bf16, 2f64.powi(-8)), (RowElem::F16, 2f64.powi(-11))] {
            let mut g = Gen::new(seed as u64, 5, 40);
            g.rows = Dim::Tokens;
            let (experts, top, n, k) = (3, 2, 32, 192);
            let (x, routes) = (g.input_half(k, elem), g.routes(experts, top));
            let format = Format::parse(format).expect("a format").with_packing(Packing::Fragment);
            let w = g.matrix(experts * n, k, format);
            let out = g.output(top * n, RowElem::F32);
            let store = Store::Rows { param: out, start: 0 };
            let segment = Segment { n, weights: vec![w], tile_n: 16, expr: Expr::Acc(0), store };
            let tile_m = [1, 8][seed % 2];
            let case =
                g.case(Body::ExpertMatmul(ExpertMatmul { x, routes: Some(routes), experts, top, segment, tile_m }));
            let (got, expected) = (case.run(&compiler, target(seed as u64)), case.expected());
            let (OperandData::Rows(got), OperandData::Rows(want)) = (&got[out], &expected[out]) else { unreachable!() };
            let OperandData::Matrix(bytes) = &expected[w] else { unreachable!() };
            let (mut row, mut most) = (vec![0f32; k], 0f32);
            for i in 0..experts * n {
                unpack_row(format, bytes, k, i, &mut row);
                most = row.iter().fold(most, |most, w| most.max(w.abs()));
            }
            // Numbers of the input are below 2 in magnitude.
            let allowed = k as f64 * 2.0 * f64::from(most) * relative;
            for (a, b) in got.data.iter().zip(&want.data) {
                assert!(f64::from((a - b).abs()) <= allowed, "{format}, {elem}: {a} {b}");
            }
        }
    }
}

#[test]
fn combined_runs_and_parts_of_vectors() {
    let compiler = Compiler::new();
    for seed in 0..4 {
        let mut g = Gen::new(seed, 5, 40);
        g.rows = Dim::Tokens;
        let (part, count) = (g.rng.below(1, 40), g.rng.below(1, 5));
        let experts = count + g.rng.below(0, 4);
        let (routes, y) = (g.routes(experts, count), g.input(Dim::Tokens, count * part));
        let (x, sum) = (g.input(Dim::Tokens, part), g.output(part, RowElem::F32));
        let combine = Expr::Combine { weights: routes, from: count, y, count };
        let expr = Expr::Binary(BinaryOp::Add, boxed(Expr::Rows { param: x, start: 0 }), boxed(combine));
        let tile = |n: usize| n.next_multiple_of(16);
        let store = Store::Rows { param: sum, start: 0 };
        let first = Segment { n: part, weights: vec![], tile_n: tile(part), expr, store };
        let (vector, parts) = (g.vector(experts * part), g.output(count * part, RowElem::F32));
        let expr = Expr::Expert { vector, routes, top: count };
        let expr = Expr::Binary(BinaryOp::Mul, boxed(expr), boxed(Expr::Rows { param: y, start: 0 }));
        let store = Store::Rows { param: parts, start: 0 };
        let second = Segment { n: count * part, weights: vec![], tile_n: tile(count * part), expr, store };
        let case = g.case(Body::Pointwise(Pointwise { segments: vec![first, second] }));
        Bounds::new(&case, own_error).check_segments(&case.run(&compiler, target(seed)));
    }
}

/// Columns in another order, alone and as part of an expression.
#[test]
fn picked_columns() {
    let compiler = Compiler::new();
    for seed in 0..4 {
        let mut g = Gen::new(seed, 5, 40);
        let cols = g.rng.below(1, 200);
        let (rows, order, gains) = (g.input(g.rows, cols), g.order(cols), g.vector(cols));
        let segment = |out, expr| {
            let store = Store::Rows { param: out, start: 0 };
            Segment { n: cols, weights: vec![], tile_n: cols.next_multiple_of(16), expr, store }
        };
        let picked = || Expr::Pick { rows, order };
        let (plain, scaled) = (g.output(cols, RowElem::F32), g.output(cols, RowElem::F32));
        let product = Expr::Binary(BinaryOp::Mul, boxed(picked()), boxed(Expr::Vector(gains)));
        let segments = vec![segment(plain, picked()), segment(scaled, product)];
        let case = g.case(Body::Pointwise(Pointwise { segments }));
        Bounds::new(&case, own_error).check_segments(&case.run(&compiler, target(seed)));
    }
}

/// The same experts as the evaluator's, and weights to some units in the last place.
#[test]
fn choices() {
    let compiler = Compiler::new();
    for seed in 0..CASES {
        let mut g = Gen::new(seed, 5, 40);
        g.rows = Dim::Tokens;
        let score = Score::ALL[seed as usize % Score::ALL.len()];
        let experts = [8, 12, 64, 6, 40, 33, 128, 3][seed as usize / 2];
        let groups = if score == Score::Mixer || experts % 4 != 0 || seed.is_multiple_of(3) { 1 } else { 4 };
        let kept = if groups == 1 { 1 } else { g.rng.below(2, 4) };
        let top = if score == Score::Mixer { 2 } else { g.rng.below(1, 4) };
        let eps = F32::new(if score == Score::Mixer { 0.1 } else { 1e-6 });
        let (pairs, normalize) = (groups > 1 && g.rng.chance(2), g.rng.chance(2));
        let router = Router { score, top, normalize, eps, scale: F32::new(1.5), groups, kept, pairs };
        let (x, bias) = (g.input(Dim::Tokens, experts), g.vector(experts));
        if score == Score::Given {
            g.change_rows(x, f32::abs);
        }
        let out = g.output(2 * top, RowElem::F32);
        let case = g.case(Body::Route(Route { x, bias, router, out }));
        let (got, want) = (case.run(&compiler, target(seed)), case.expected());
        let (OperandData::Rows(got), OperandData::Rows(want)) = (&got[out], &want[out]) else { unreachable!() };
        for (a, b) in got.data.chunks(2 * top).zip(want.data.chunks(2 * top)) {
            assert_eq!(a[..top], b[..top], "{router:?}: {a:?} {b:?}");
            for (a, b) in a[top..].iter().zip(&b[top..]) {
                assert!((a - b).abs() <= 2e-5 * b.abs(), "{router:?}: {a} {b}");
            }
        }
    }
}
