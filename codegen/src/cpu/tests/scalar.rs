//! Elementary functions and conversions over their whole ranges, through pointwise kernels.

use super::generate::random;
use super::jit::{Jit, Run};
use half::{bf16, f16};
use llmcc_ir::eval::{Batch, KvState, OperandData, Rows};
use llmcc_ir::graph::UnaryOp;
use llmcc_ir::kernel::{Body, Expr, ParamId, Pointwise, RowElem, Segment, Store};
use llmcc_ir::kv::{KvDType, KvSpec};
use llmcc_ir::ty::Dim;
use llmcc_test_support::{Case, Gen, ULP, reference};

/// `expr(x)` of given numbers, as a pointwise kernel.
fn apply(expr: impl Fn(ParamId) -> Expr, store: impl Fn(&mut Gen, usize) -> Store, x: &[f32]) -> (Case, Store) {
    let mut g = random(1, 1, 1);
    g.batch = Batch { tokens: vec![0], seqs: vec![0], positions: vec![3], out_rows: vec![0], ..Batch::default() };
    g.rows = Dim::Tokens;
    let p = g.input(g.rows, x.len());
    let store = store(&mut g, x.len());
    let segment = Segment { n: x.len(), weights: vec![], tile_n: 16, expr: expr(p), store: store.clone() };
    let mut case = g.case(Body::Pointwise(Pointwise { segments: vec![segment] }));
    case.operands[p] = OperandData::Rows(Rows { cols: x.len(), data: x.to_vec() });
    (case, store)
}

fn function(op: UnaryOp, x: &[f32], run: &Run) -> Vec<f32> {
    let out = |g: &mut Gen, n| Store::Rows { param: g.output(n, RowElem::F32), start: 0 };
    let (case, store) = apply(|p| Expr::Unary(op, Box::new(Expr::Rows { param: p, start: 0 })), out, x);
    let (Store::Rows { param, .. }, mut got) = (store, case.run(run)) else { unreachable!() };
    let OperandData::Rows(r) = got.swap_remove(param) else { unreachable!() };
    r.data
}

/// Numbers of both signs and every exponent from 2⁻³⁰ up, and an even grid.
fn arguments(limit: f32) -> Vec<f32> {
    let mut x: Vec<f32> = (-4000..=4000).map(|i| i as f32 / 4000.0 * limit).collect();
    for e in -30..7 {
        for i in 0..64 {
            let v = (1.0 + i as f32 / 64.0 + 0.003) * 2f32.powi(e);
            x.extend([v, -v].into_iter().filter(|v| v.abs() <= limit));
        }
    }
    x
}

fn check(op: UnaryOp, limit: f32, ulps: impl Fn(f64) -> f64) {
    let x = arguments(limit);
    for run in super::all() {
        let mut worst = (0.0, 0.0);
        for (x, y) in x.iter().zip(function(op, &x, &run)) {
            let want = reference(op, (*x).into());
            // Results in the range of the subnormal numbers have fewer bits.
            let error = (f64::from(y) - want).abs() / (ULP * want.abs().max(2f64.powi(-126)));
            let allowed = ulps((*x).into());
            assert!(error <= allowed, "{op:?}({x}) = {y}, expected {want}: {error:.2} of {allowed:.2} ulp");
            if error > worst.0 {
                worst = (error, *x);
            }
        }
        println!("{op:?}: {:.2} ulp at {}", worst.0, worst.1);
    }
}

#[test]
fn exp() {
    check(UnaryOp::Exp, 88.0, |_| 2.0);
    let special = [f32::NEG_INFINITY, -1e9, -104.5, 0.0, 89.5, 1e30, f32::INFINITY, f32::NAN];
    for run in super::all() {
        let y = function(UnaryOp::Exp, &special, &run);
        assert_eq!(y[..7], [0.0, 0.0, 0.0, 1.0, f32::INFINITY, f32::INFINITY, f32::INFINITY]);
        assert!(y[7].is_nan());
    }
}

#[test]
fn sigmoid_and_silu() {
    check(UnaryOp::Sigmoid, 87.0, |_| 4.0);
    check(UnaryOp::Silu, 87.0, |_| 4.0);
    for run in super::all() {
        assert_eq!(function(UnaryOp::Silu, &[-200.0, 200.0], &run), [-0.0, 200.0]);
        assert_eq!(function(UnaryOp::Sigmoid, &[-200.0, 200.0], &run), [0.0, 1.0]);
    }
}

#[test]
fn sqrt() {
    check(UnaryOp::Sqrt, 1e30, |_| 1.0);
    for run in super::all() {
        let y = function(UnaryOp::Sqrt, &[f32::NEG_INFINITY, -2.0, 0.0, 1e-30, f32::INFINITY, f32::NAN], &run);
        assert_eq!(y[..5], [0.0, 0.0, 0.0, 1e-15, f32::INFINITY]);
        assert!(y[5].is_nan());
    }
}

#[test]
fn softplus() {
    check(UnaryOp::Softplus, 86.0, |_| 3.0);
    for run in super::all() {
        let y = function(UnaryOp::Softplus, &[f32::NEG_INFINITY, -200.0, 200.0, f32::INFINITY, f32::NAN], &run);
        assert_eq!(y[..4], [0.0, 0.0, 200.0, f32::INFINITY]);
        assert!(y[4].is_nan());
    }
}

#[test]
fn tanh() {
    check(UnaryOp::Tanh, 100.0, |_| 4.0);
}

#[test]
fn gelu() {
    check(UnaryOp::Gelu, 13.0, |_| 8.0);
    for run in super::all() {
        let x = [-100.0, 100.0, 0.0, -1e6, 1e6, -1e30, 1e30];
        assert_eq!(function(UnaryOp::Gelu, &x, &run), [0.0, 100.0, 0.0, 0.0, 1e6, 0.0, 1e30]);
        assert_eq!(function(UnaryOp::GeluTanh, &x, &run), [0.0, 100.0, 0.0, 0.0, 1e6, 0.0, 1e30]);
        assert_eq!(function(UnaryOp::Tanh, &x, &run), [-1.0, 1.0, 0.0, -1.0, 1.0, -1.0, 1.0]);
    }
}

#[test]
fn gelu_tanh() {
    check(UnaryOp::GeluTanh, 9.0, |x| 4.0 + 2.0 * (1.6 * (x + 0.045 * x * x * x)).abs());
}

#[test]
fn relu_and_neg_are_exact() {
    check(UnaryOp::Relu, 100.0, |_| 0.0);
    check(UnaryOp::Neg, 100.0, |_| 0.0);
    check(UnaryOp::Relu2, 100.0, |_| 1.0);
}

#[test]
fn rounding_is_exact() {
    for op in [UnaryOp::RoundI8, UnaryOp::RoundE4m3] {
        check(op, 500.0, |_| 0.0);
        // Ties, of every distance.
        let ties: Vec<f32> = (-130 * 4..130 * 4).map(|i| i as f32 / 4.0).collect();
        let small: Vec<f32> = (-600..600).map(|i| i as f32 / 8192.0).collect();
        for run in super::all() {
            for x in [&ties, &small] {
                let wanted: Vec<f32> = x.iter().map(|x| op.eval(f64::from(*x)) as f32).collect();
                assert_eq!(function(op, x, &run), wanted);
            }
            let y = function(op, &[f32::NEG_INFINITY, f32::INFINITY, f32::NAN], &run);
            assert_eq!(y[..2], [op.eval(-1e9) as f32, op.eval(1e9) as f32]);
            assert!(y[2].is_nan());
        }
    }
}

/// Every boundary of rounding: all 16-bit patterns, and the f32 around their midpoints.
fn sixteen_bit_cases(widen: impl Fn(u16) -> f32) -> Vec<f32> {
    let mut x = vec![f32::NAN, f32::INFINITY, f32::NEG_INFINITY, f32::MAX, f32::MIN, 1e-45, -1e-45, 0.0, -0.0];
    for pattern in (0..0x8000u16).step_by(7).chain(0..64).chain(0x3f0..0x410).chain(0x7b00..0x7c00) {
        let (a, b) = (widen(pattern), widen(pattern + 1));
        if a.is_finite() && b.is_finite() {
            let middle = ((f64::from(a) + f64::from(b)) / 2.0) as f32;
            for v in
                [a, middle, f32::from_bits(middle.to_bits() + 1), f32::from_bits(middle.to_bits().saturating_sub(1))]
            {
                x.extend([v, -v]);
            }
        }
    }
    x
}

/// The cache's contents after storing `x` as one head, and the oracle's.
fn stored(dtype: KvDType, x: &[f32], key: bool, run: &Run) -> (Vec<f64>, Vec<f64>) {
    let spec = KvSpec {
        dtype,
        kv_heads: 1,
        key_dim: x.len(),
        value_dim: x.len(),
        latent: false,
        window: None,
        every: 1,
        first: None,
    };
    let kv = |g: &mut Gen, _| {
        let p = g.kv(KvState::new(spec));
        if key { Store::KvKey(p) } else { Store::KvValue(p) }
    };
    let (case, store) = apply(|p| Expr::Rows { param: p, start: 0 }, kv, x);
    let (Store::KvKey(param) | Store::KvValue(param)) = store else { unreachable!() };
    let read = |o: OperandData| {
        let OperandData::State(state) = o else { unreachable!() };
        let state = state.paged().expect("a cache");
        if key { state.key(0, 3, 0) } else { state.value(0, 3, 0) }.unwrap()
    };
    (read(case.run(run).swap_remove(param)), read(case.expected().swap_remove(param)))
}

fn check_stored(dtype: KvDType, x: &[f32], round: impl Fn(f32) -> f64) {
    for run in super::all() {
        for key in [true, false] {
            for (x, got) in x.iter().zip(stored(dtype, x, key, &run).0) {
                let want = round(*x);
                assert!(
                    got.to_bits() == want.to_bits() || (got.is_nan() && want.is_nan()),
                    "{dtype} of {x:e}: {got:e}, expected {want:e}"
                );
            }
        }
    }
}

#[test]
fn cached_floats_round_to_nearest_even() {
    // The oracle rounds from f64 with the same crate, whose conversion to bf16 drops bits below the
    // subnormal numbers; from f32 it is exact.
    check_stored(KvDType::F16, &sixteen_bit_cases(|h| f16::from_bits(h).to_f32()), |x| f16::from_f32(x).to_f64());
    check_stored(KvDType::Bf16, &sixteen_bit_cases(|b| bf16::from_bits(b).to_f32()), |x| bf16::from_f32(x).to_f64());
    check_stored(KvDType::F32, &sixteen_bit_cases(|h| f16::from_bits(h).to_f32()), f64::from);
}

#[test]
fn cached_codes_equal_the_oracle() {
    let wave: Vec<f32> = (0..77).map(|i| (i as f32 * 0.7).sin() * 3.0).collect();
    let int8 = [&wave[..], &[0.0; 5], &[127.0, 0.5, 1.5, 2.5, -0.5, -1.5]];
    let int4 = [&wave[..76], &[0.0; 6], &[7.0, 0.5, 1.5, 2.5, -0.5, -1.5], &[-1e-30, 7.0], &wave[..18]];
    let cases = int8.into_iter().map(|x| (KvDType::Int8, x)).chain(int4.into_iter().map(|x| (KvDType::Int4, x)));
    for (dtype, x) in cases {
        for run in super::all() {
            for key in [true, false] {
                let (got, want) = stored(dtype, x, key, &run);
                assert_eq!(got, want, "{dtype}");
            }
        }
    }
}
