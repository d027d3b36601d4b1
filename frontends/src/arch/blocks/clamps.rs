//! Limits of a gated MLP's operands.

use crate::arch::blocks::attention::capped;
use crate::arch::blocks::lifter::Draft;
use llmcc_ir::graph::{BinaryOp, Op, UnaryOp, Value};

/// Limits of a gate `g` and its operand `u`.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Limits {
    /// `g·σ(alpha·g)·(u + 1)` of numbers that are not larger than a limit, in place of the
    /// activation (gpt-oss).
    Clamped {
        /// Factor of the sigmoid's argument.
        alpha: f32,
        /// Most of `g`, and of the magnitude of `u`.
        limit: f32,
    },
    /// Most of the activation of `g`, and of the magnitude of `u`.
    Activated(f32),
    /// Most of `g` before its activation, and of the magnitude of `u`.
    Entering(f32),
    /// `σ(g)` times `g`, and `u`, each bent to come closer to a limit than to any larger number (`c·tanh(x/c)`),
    /// in place of the activation (SiTU of Kimi K3).
    Bent {
        /// Limit of `g`.
        gate: f32,
        /// Limit of `u`, if there is one.
        up: Option<f32>,
    },
}

/// `act(gate)·up`, within limits.
pub(crate) fn activated(
    f: &mut Draft,
    act: UnaryOp,
    limits: Option<Limits>,
    gate: Value,
    up: impl FnOnce(&mut Draft) -> Value,
) -> Value {
    match limits {
        None => {
            let gate = f.unary(act, gate);
            let up = up(f);
            f.mul(gate, up)
        }
        Some(Limits::Clamped { alpha, limit }) => {
            let up = up(f);
            clamped(f, [alpha, limit], gate, up)
        }
        Some(Limits::Activated(limit)) => {
            let gate = f.unary(act, gate);
            let up = up(f);
            let [gate, up] = limited(f, limit, gate, up);
            f.mul(gate, up)
        }
        Some(Limits::Entering(limit)) => {
            let up = up(f);
            let [gate, up] = limited(f, limit, gate, up);
            let gate = f.unary(act, gate);
            f.mul(gate, up)
        }
        Some(Limits::Bent { gate: limit, up: of_up }) => {
            let up = up(f);
            let up = capped(f, up, of_up);
            let open = f.unary(UnaryOp::Sigmoid, gate);
            let gate = capped(f, gate, Some(limit));
            let gate = f.mul(gate, open);
            f.mul(gate, up)
        }
    }
}

/// Bounds the gate from above by `limit`, and the operand in magnitude.
fn limited(f: &mut Draft, limit: f32, gate: Value, up: Value) -> [Value; 2] {
    let [most, least] = [limit, -limit].map(|x| f.scalar(x));
    let gate = f.op(Op::Binary(BinaryOp::Min), &[gate, most]);
    let up = f.op(Op::Binary(BinaryOp::Min), &[up, most]);
    [gate, f.op(Op::Binary(BinaryOp::Max), &[up, least])]
}

/// [`Limits::Clamped`].
fn clamped(f: &mut Draft, [alpha, limit]: [f32; 2], gate: Value, up: Value) -> Value {
    let [most, least, alpha, inverse, one] = [limit, -limit, alpha, 1.0 / alpha, 1.0].map(|x| f.scalar(x));
    let gate = f.op(Op::Binary(BinaryOp::Min), &[gate, most]);
    // g·σ(a·g) = silu(a·g)/a, which reads g once.
    let gate = f.mul(gate, alpha);
    let gate = f.unary(UnaryOp::Silu, gate);
    let gate = f.mul(gate, inverse);
    let up = f.op(Op::Binary(BinaryOp::Min), &[up, most]);
    let up = f.op(Op::Binary(BinaryOp::Max), &[up, least]);
    let up = f.add(up, one);
    f.mul(gate, up)
}
