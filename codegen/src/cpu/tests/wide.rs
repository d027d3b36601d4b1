//! Elementwise work by microkernels and by code made here: the same bits.

use super::generate::{random, segments};
use super::jit::{Jit, Run, same_bits};
use super::{assert_same, config, v3, with_microkernels};
use llmcc_abi::math::{Binary, Unary};
use llmcc_abi::{MapFn, Uk};
use llmcc_ir::eval::OperandData;
use llmcc_ir::graph::{BinaryOp, F32, UnaryOp};
use llmcc_ir::kernel::{Body, Expr, Norm, ParamId, Pointwise, RowElem, RowNorm, Segment, Store};
use llmcc_ir::ty::Dim;
use llmcc_test_support::Case;
use proptest::prelude::*;

/// Runs a case with each table of microkernels and without any.
fn check(case: &Case) {
    let Some([here, _]) = v3() else { return };
    let want = case.run(&here);
    for run in with_microkernels() {
        assert_same(&case.run(&run), &want, "made here and called");
    }
}

/// Two matrices of rows, a vector of as many numbers, and `expr` of them.
fn case_of(seed: u64, n: usize, elem: RowElem, expr: impl Fn(ParamId, ParamId, ParamId) -> Expr) -> (Case, ParamId) {
    let mut g = random(seed, 3, 40);
    g.rows = Dim::Tokens;
    let (x, y, v) = (g.input(g.rows, n), g.input(g.rows, n), g.vector(n));
    let out = g.output(n, elem);
    let segment =
        Segment { n, weights: vec![], tile_n: n, expr: expr(x, y, v), store: Store::Rows { param: out, start: 0 } };
    let mut case = g.case(Body::Pointwise(Pointwise { segments: vec![segment] }));
    // All magnitudes, and NaN.
    let special = [
        0.0,
        -0.0,
        1e-45,
        -1e-39,
        14.5,
        -14.5,
        88.9,
        -88.9,
        -103.9,
        200.0,
        -200.0,
        f32::MAX,
        f32::INFINITY,
        f32::NEG_INFINITY,
        f32::NAN,
    ];
    for p in [x, y] {
        let OperandData::Rows(rows) = &mut case.operands[p] else { unreachable!() };
        for (i, value) in rows.data.iter_mut().enumerate() {
            match (seed as usize + i * 7 + p) % 23 {
                k if k < special.len() => *value = special[k],
                k => *value *= k as f32,
            }
        }
    }
    (case, out)
}

fn unary(op: UnaryOp, x: Expr) -> Expr {
    Expr::Unary(op, Box::new(x))
}

fn binary(op: BinaryOp, a: Expr, b: Expr) -> Expr {
    Expr::Binary(op, Box::new(a), Box::new(b))
}

fn rows(param: ParamId) -> Expr {
    Expr::Rows { param, start: 0 }
}

const UNARY: [UnaryOp; 11] = {
    use UnaryOp::*;
    [Neg, Exp, Sigmoid, Silu, Gelu, GeluTanh, Relu, Tanh, Relu2, Softplus, Sqrt]
};
const BINARY: [BinaryOp; 6] = {
    use BinaryOp::*;
    [Add, Sub, Mul, Div, Max, Min]
};

#[test]
fn every_function_of_two_operands() {
    for (i, f) in UNARY.into_iter().enumerate() {
        for (j, op) in BINARY.into_iter().enumerate() {
            for (k, n) in [5, 16, 40, 131, 300].into_iter().enumerate() {
                let elem = [RowElem::F32, RowElem::Q8 { group: 32 }, RowElem::Bf16][(i + j + k) % 3];
                check(&case_of(n as u64, n, elem, |x, y, _| binary(op, unary(f, rows(x)), rows(y))).0);
                check(&case_of(n as u64, n, elem, |x, _, v| binary(op, Expr::Vector(v), unary(f, rows(x)))).0);
            }
        }
    }
}

proptest! {
    #![proptest_config(config(60))]

    #[test]
    fn expressions(seed in any::<u64>()) {
        let mut g = random(seed, 5, 40);
        let segments = segments(&mut g, &mut |_, _| vec![]);
        check(&g.case(Body::Pointwise(Pointwise { segments })));
    }

    #[test]
    fn row_norms(seed in any::<u64>(), width in 1usize..300) {
        let mut g = random(seed, 5, 40);
        g.rows = Dim::Tokens;
        let x = g.input(g.rows, width);
        let center = g.rng.chance(2);
        let norm = (!g.rng.chance(4)).then_some(Norm { center, ..Norm::rms(1e-5, width) });
        let gain = (norm.is_none() || g.rng.chance(2)).then(|| g.vector(width));
        let bias = g.rng.chance(2).then(|| g.vector(width));
        let residual = g.rng.chance(2).then(|| g.input(g.rows, width));
        let elem = RowElem::Q8 { group: g.rng.pick(&[16, 32, 128]) };
        let elem = g.rng.pick(&[RowElem::F32, RowElem::Bf16, elem, elem]);
        let out = g.output(width, elem);
        check(&g.case(Body::RowNorm(RowNorm { norm, gain, bias, residual, ..RowNorm::plain(x, out) })));
    }
}

/// Which expressions are called: with another function in the table they give its result.
#[test]
fn what_models_have_is_called() {
    unsafe extern "C" fn seven(_: Unary, _: Binary, n: u64, _: *const f32, _: *const f32, out: *mut f32) {
        // SAFETY: there is room for `n` numbers, by the contract of the microkernel.
        (0..n as usize).for_each(|i| unsafe { out.add(i).write(7.0) });
    }
    let Some([_, mut calls]) = v3() else { return };
    calls.table.f[Uk::Map as usize] = seven as MapFn as usize;
    let is_called = |run: &Run, expr: &dyn Fn(ParamId, ParamId, ParamId) -> Expr| {
        let (case, out) = case_of(1, 40, RowElem::F32, expr);
        let got = case.run(run);
        let OperandData::Rows(r) = &got[out] else { unreachable!() };
        r.data.iter().all(|x| *x == 7.0)
    };
    use BinaryOp::{Add, Mul, Sub};
    use UnaryOp::{GeluTanh, Neg, Relu, Silu};
    assert!(is_called(&calls, &|x, y, _| binary(Mul, unary(Silu, rows(x)), rows(y))));
    assert!(is_called(&calls, &|x, y, _| binary(Mul, rows(y), unary(GeluTanh, rows(x)))));
    assert!(is_called(&calls, &|x, y, _| binary(Add, rows(x), rows(y))));
    assert!(is_called(&calls, &|x, _, v| binary(Add, rows(x), Expr::Vector(v))));
    assert!(is_called(&calls, &|x, _, _| unary(Relu, rows(x))));
    for f in [UnaryOp::Exp, UnaryOp::Sigmoid, UnaryOp::Tanh, UnaryOp::Softplus] {
        assert!(is_called(&calls, &|x, _, _| unary(f, rows(x))), "{f:?}");
    }
    // The rest is code, with its own numbers.
    for expr in [
        &(|x, y, _| binary(Sub, rows(x), rows(y))) as &dyn Fn(ParamId, ParamId, ParamId) -> Expr,
        &|x, y, _| binary(Mul, unary(Neg, rows(x)), rows(y)),
        &|x, _, _| binary(Mul, rows(x), Expr::Const(F32::new(2.0))),
        &|x, y, v| binary(Add, binary(Add, rows(x), rows(y)), Expr::Vector(v)),
    ] {
        let (case, out) = case_of(1, 40, RowElem::F32, expr);
        let plain = Run { table: llmcc_ukernels::table(llmcc_ukernels::Level::Scalar), ..calls.clone() };
        assert!(same_bits(&case.run(&calls)[out], &case.run(&plain)[out]));
    }
}
