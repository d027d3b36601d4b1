//! xIELU, an activation with parameters that are learned.

use crate::arch::blocks::lifter::Draft;
use crate::arch::blocks::names::{Kind, XIELU_N, XIELU_P};
use llmcc_ir::graph::{BinaryOp, Op, UnaryOp, Value};

/// The slope at 0, which is a constant of the class.
const BETA: f32 = 0.5;

/// xIELU (arXiv 2411.13010): `p·x² + β·x` where `x` is positive, `n·(eˣ − 1 − x) + β·x` elsewhere,
/// `p = ln(1 + e^alpha_p)`, `n = β + ln(1 + e^alpha_n)`.
///
/// Transformers takes `e` to no more than −10⁻⁶, which changes numbers nearer to 0 by as much.
#[track_caller]
pub(crate) fn xielu(f: &mut Draft, x: Value) -> Value {
    let [p, n] = [XIELU_P, XIELU_N].map(|part| {
        let alpha = f.weight(part, Kind::Bare, &[1]);
        f.unary(UnaryOp::Softplus, alpha)
    });
    let beta = f.scalar(BETA);
    let n = f.add(n, beta);
    let zero = f.scalar(0.0);
    let square = f.unary(UnaryOp::Relu2, x);
    let square = f.mul(square, p);
    let negative = f.op(Op::Binary(BinaryOp::Min), &[x, zero]);
    let curve = f.unary(UnaryOp::Exp, negative);
    let one = f.scalar(1.0);
    let curve = f.op(Op::Binary(BinaryOp::Sub), &[curve, one]);
    let curve = f.op(Op::Binary(BinaryOp::Sub), &[curve, negative]);
    let curve = f.mul(curve, n);
    let line = f.mul(x, beta);
    let y = f.add(square, curve);
    f.add(y, line)
}
