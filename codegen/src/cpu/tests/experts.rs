//! Experts: their choice, their products, the sum of their results.

use super::generate::random;
use super::jit::{Jit, same_bits};
use super::{assert_same, config, own_error, run_all, v3};
use llmcc_ir::eval::OperandData;
use llmcc_ir::graph::{BinaryOp, F32, Router, Score, UnaryOp};
use llmcc_ir::kernel::{Body, ExpertMatmul, Expr, Pointwise, Route, RowElem, Segment, Store};
use llmcc_ir::quant::Elem;
use llmcc_ir::ty::Dim;
use llmcc_test_support::{Bounds, Case, FORMATS};
use proptest::prelude::*;

fn boxed(e: Expr) -> Box<Expr> {
    Box::new(e)
}

/// Products of experts with one or two lanes, rows of every slot or of each, and an epilogue that
/// reads a bias of the expert, rows and a vector.
fn experts(seed: u64, k: usize, group: usize, elems: &[Elem]) -> Case {
    let mut g = random(seed, 6, 40);
    g.rows = Dim::Tokens;
    let count = g.rng.below(2, 9);
    let top = g.rng.below(1, count.min(4) + 1);
    let own = g.rng.chance(2);
    let k = if own && group > 0 { k.next_multiple_of(group) } else { k };
    let cols = if own { top * k } else { k };
    let x = if group == 0 { g.input(g.rows, cols) } else { g.input_q8(cols, group) };
    let routes = g.routes(count, top);
    let n = if g.rng.chance(2) { 16 * g.rng.below(1, 5) } else { 8 * g.rng.below(1, 9) + g.rng.below(0, 8) };
    let rows = count * n.next_multiple_of(16);
    let lanes = g.rng.below(1, 3);
    let mut format = g.format(elems);
    if group != 0 {
        format.group = group as u16;
    }
    let weights = (0..lanes).map(|_| g.matrix(rows, k, format)).collect();
    let last = Expr::Acc(lanes - 1);
    let expr = match g.rng.below(0, 4) {
        0 => Expr::Acc(0),
        1 => Expr::Binary(BinaryOp::Mul, boxed(Expr::Unary(UnaryOp::Silu, boxed(Expr::Acc(0)))), boxed(last)),
        2 => {
            let vector = g.vector(count * n);
            let bias = Expr::Expert { vector, routes, top };
            let rows = Expr::Rows { param: g.input(g.rows, top * n), start: 0 };
            let sum = Expr::Binary(BinaryOp::Add, boxed(Expr::Acc(0)), boxed(bias));
            Expr::Binary(BinaryOp::Add, boxed(Expr::Binary(BinaryOp::Mul, boxed(sum), boxed(last))), boxed(rows))
        }
        _ => {
            let vector = g.vector(if n.is_multiple_of(8) { 8 } else { n });
            Expr::Binary(BinaryOp::Add, boxed(last), boxed(Expr::Vector(vector)))
        }
    };
    let stores = [RowElem::F32, RowElem::Q8 { group: 16 }, RowElem::I8 { group: 32 }];
    let elem = if n.is_multiple_of(32) { g.rng.pick(&stores) } else { RowElem::F32 };
    let store = Store::Rows { param: g.output(top * n, elem), start: 0 };
    let tile_n = (16 * g.rng.below(1, 4)).next_multiple_of(if elem == RowElem::F32 { 16 } else { 32 });
    let tile_m = g.rng.below(1, 6);
    let segment = Segment { n, weights, tile_n, expr, store };
    g.case(Body::ExpertMatmul(ExpertMatmul { x, routes: Some(routes), experts: count, top, segment, tile_m }))
}

/// A product by heads: each slot with the matrix of its number, of any number of rows.
fn by_heads(seed: u64, k: usize, group: usize, elems: &[Elem]) -> Case {
    let mut g = random(seed, 6, 40);
    g.rows = Dim::Tokens;
    let heads = g.rng.below(1, 7);
    let k = if group > 0 { k.next_multiple_of(group) } else { k };
    let x = match group {
        0 => g.input(g.rows, heads * k),
        _ if g.rng.chance(2) => g.input_integers(heads * k, group),
        _ => g.input_q8(heads * k, group),
    };
    let n = g.rng.below(1, 50);
    let mut format = g.format(elems);
    if group != 0 {
        format.group = group as u16;
    }
    let weights = vec![g.matrix(heads * n.next_multiple_of(16), k, format)];
    let expr = Expr::Unary(UnaryOp::Silu, boxed(Expr::Acc(0)));
    let expr = if g.rng.chance(2) { expr } else { Expr::Acc(0) };
    let store = Store::Rows { param: g.output(heads * n, RowElem::F32), start: 0 };
    let (tile_n, tile_m) = (16 * g.rng.below(1, 4), g.rng.below(1, 6));
    let segment = Segment { n, weights, tile_n, expr, store };
    g.case(Body::ExpertMatmul(ExpertMatmul { x, routes: None, experts: heads, top: heads, segment, tile_m }))
}

proptest! {
    #![proptest_config(config(60))]

    #[test]
    fn products_of_f32_rows(seed in any::<u64>(), k in 1usize..150) {
        let case = experts(seed, k, 0, &FORMATS);
        let bounds = Bounds::new(&case, own_error);
        run_all(&case, |got| bounds.check_segments(got));
    }

    #[test]
    fn products_of_int8_rows(seed in any::<u64>(), k in 1usize..300, group in prop_oneof![Just(32usize), Just(64), Just(128)]) {
        let case = experts(seed, k, group, &[Elem::W8, Elem::W4, Elem::W4A]);
        let bounds = Bounds::new(&case, own_error);
        run_all(&case, |got| bounds.check_segments(got));
    }

    #[test]
    fn products_by_heads(
        seed in any::<u64>(),
        k in 1usize..150,
        group in prop_oneof![Just(0usize), Just(32), Just(128)],
    ) {
        let elems: &[Elem] = if group == 0 { &FORMATS } else { &[Elem::W8, Elem::W4, Elem::W4A] };
        let case = by_heads(seed, k, group, elems);
        let bounds = Bounds::new(&case, own_error);
        run_all(&case, |got| bounds.check_segments(got));
    }

    #[test]
    fn code_made_here_equals_microkernels(seed in any::<u64>(), k in 1usize..200, group in prop_oneof![Just(0usize), Just(32)]) {
        let Some([here, calls]) = v3() else { return Ok(()) };
        let elems: &[Elem] = if group == 0 { &FORMATS } else { &[Elem::W8, Elem::W4, Elem::W4A] };
        let case = experts(seed, k, group, elems);
        assert_same(&case.run(&here), &case.run(&calls), "made here and called");
    }

    /// How many rows go through a pass together changes no bit.
    #[test]
    fn passes_of_any_size_give_the_same_bits(seed in any::<u64>(), group in prop_oneof![Just(0usize), Just(32)]) {
        let elems: &[Elem] = if group == 0 { &FORMATS } else { &[Elem::W8, Elem::W4, Elem::W4A] };
        let mut case = experts(seed, 96, group, elems);
        for run in super::with_microkernels() {
            let first = case.run(&run);
            for size in [1, 2, 7, 64] {
                let Body::ExpertMatmul(k) = &mut case.kernel.body else { unreachable!() };
                k.tile_m = size;
                assert_same(&first, &case.run(&run), "other passes");
            }
        }
    }

    #[test]
    fn combined_runs_and_parts_of_vectors(seed in any::<u64>(), part in 1usize..40, count in 1usize..5) {
        let mut g = random(seed, 5, 40);
        g.rows = Dim::Tokens;
        let experts = count + g.rng.below(0, 4);
        let (routes, y) = (g.routes(experts, count), g.input(Dim::Tokens, count * part));
        let (x, sum) = (g.input(Dim::Tokens, part), g.output(part, RowElem::F32));
        let combine = Expr::Combine { weights: routes, from: count, y, count };
        let expr = Expr::Binary(BinaryOp::Add, boxed(Expr::Rows { param: x, start: 0 }), boxed(combine));
        let first = Segment { n: part, weights: vec![], tile_n: part, expr, store: Store::Rows { param: sum, start: 0 } };
        let (vector, parts) = (g.vector(experts * part), g.output(count * part, RowElem::F32));
        let expr = Expr::Expert { vector, routes, top: count };
        let expr = Expr::Binary(BinaryOp::Mul, boxed(expr), boxed(Expr::Rows { param: y, start: 0 }));
        let store = Store::Rows { param: parts, start: 0 };
        let second = Segment { n: count * part, weights: vec![], tile_n: count * part, expr, store };
        let case = g.case(Body::Pointwise(Pointwise { segments: vec![first, second] }));
        let bounds = Bounds::new(&case, own_error);
        run_all(&case, |got| bounds.check_segments(got));
    }

    /// Columns in another order, alone and as part of an expression, in tiles.
    #[test]
    fn picked_columns(seed in any::<u64>(), cols in 1usize..200) {
        let mut g = random(seed, 5, 40);
        let (rows, order, gains) = (g.input(g.rows, cols), g.order(cols), g.vector(cols));
        let tile_n = if g.rng.chance(2) { cols.next_multiple_of(16) } else { 16 };
        let segment = |out, expr| {
            let store = Store::Rows { param: out, start: 0 };
            Segment { n: cols, weights: vec![], tile_n, expr, store }
        };
        let picked = || Expr::Pick { rows, order };
        let (plain, scaled) = (g.output(cols, RowElem::F32), g.output(cols, RowElem::F32));
        let product = Expr::Binary(BinaryOp::Mul, boxed(picked()), boxed(Expr::Vector(gains)));
        let segments = vec![segment(plain, picked()), segment(scaled, product)];
        let case = g.case(Body::Pointwise(Pointwise { segments }));
        let bounds = Bounds::new(&case, own_error);
        run_all(&case, |got| bounds.check_segments(got));
    }

    /// The same experts as the evaluator's, and weights to a few units in the last place.
    #[test]
    fn choices(seed in any::<u64>(), experts in 1usize..80, score in 0usize..Score::ALL.len()) {
        let mut g = random(seed, 5, 40);
        g.rows = Dim::Tokens;
        let score = Score::ALL[score];
        let groups = [4, 2, 1].into_iter().find(|n| experts % n == 0 && experts / n >= 2).unwrap_or(1);
        let groups = if score == Score::Mixer || g.rng.chance(2) { 1 } else { groups };
        let kept = g.rng.below(1, groups + 1);
        let most = (kept * (experts / groups)).min(6);
        let top = if score == Score::Mixer { 2 } else { g.rng.below(1, most + 1) };
        prop_assume!(top <= experts);
        let eps = F32::new(if score == Score::Mixer { 0.1 } else { 1e-6 });
        let (pairs, normalize) = (experts / groups >= 2 && g.rng.chance(2), g.rng.chance(2));
        let router = Router { score, top, normalize, eps, scale: F32::new(1.5), groups, kept, pairs };
        let (x, bias) = (g.input(Dim::Tokens, experts), g.vector(experts));
        if score == Score::Given {
            g.change_rows(x, f32::abs);
        }
        let out = g.output(2 * top, RowElem::F32);
        let case = g.case(Body::Route(Route { x, bias, router, out }));
        let oracle = case.expected();
        let OperandData::Rows(want) = &oracle[out] else { unreachable!() };
        run_all(&case, |got| {
            let OperandData::Rows(got) = &got[out] else { unreachable!() };
            for (a, b) in got.data.chunks(2 * top).zip(want.data.chunks(2 * top)) {
                assert_eq!(a[..top], b[..top], "{a:?} {b:?}");
                for (a, b) in a[top..].iter().zip(&b[top..]) {
                    assert!((a - b).abs() <= 1e-5 * b.abs(), "{a} {b}");
                }
            }
        });
    }
}

/// Equal logits, infinite ones and NaN: the lower index first, NaN last, and always valid experts.
#[test]
fn choices_among_equals() {
    let mut g = random(1, 5, 40);
    g.rows = Dim::Tokens;
    let (x, bias) = (g.input(Dim::Tokens, 6), g.vector(6));
    let out = g.output(6, RowElem::F32);
    let mut case = g.case(Body::Route(Route { x, bias, router: Router::softmax(3, false), out }));
    let rows = [
        ([1.0, 2.0, 2.0, 2.0, 2.0, 2.0], [1.0, 2.0, 3.0]),
        ([f32::NAN, 0.0, f32::NAN, -0.0, 0.0, f32::NAN], [1.0, 3.0, 4.0]),
        ([f32::NAN; 6], [0.0, 1.0, 2.0]),
        ([f32::NEG_INFINITY, f32::INFINITY, 0.0, f32::INFINITY, -1.0, 5.0], [1.0, 3.0, 5.0]),
    ];
    for score in [Score::Softmax, Score::Chosen] {
        for (logits, want) in rows {
            let Body::Route(route) = &mut case.kernel.body else { unreachable!() };
            route.router.score = score;
            let OperandData::Rows(x) = &mut case.operands[x] else { unreachable!() };
            x.data.chunks_mut(6).for_each(|row| row.copy_from_slice(&logits));
            case.operands[bias] = OperandData::Vector(vec![0.0; 6].into());
            for run in super::with_microkernels() {
                let got = case.run(&run);
                let OperandData::Rows(got) = &got[out] else { unreachable!() };
                assert!(got.data.chunks(6).all(|row| row[..3] == want), "{:?}, {logits:?}", got.data);
            }
        }
    }
}

/// Routes that name experts which do not exist read nothing beyond the matrices.
#[test]
fn routes_beyond_the_experts_do_no_harm() {
    let mut case = experts(3, 64, 0, &[Elem::F32]);
    let Body::ExpertMatmul(k) = &case.kernel.body else { unreachable!() };
    let routes = k.routes.expect("routes");
    let OperandData::Rows(r) = &mut case.operands[routes] else { unreachable!() };
    let wrong = [1e9, -3.0, f32::NAN, f32::INFINITY];
    r.data.iter_mut().zip(wrong.iter().cycle()).for_each(|(v, w)| *v = *w);
    for run in super::with_microkernels() {
        let once = case.run(&run);
        assert!(once.iter().zip(&case.run(&run)).all(|(a, b)| same_bits(a, b)));
    }
}
