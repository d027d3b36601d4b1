//! Gates behind norms (A.X K2): a normalized row is multiplied by sigmoids that a narrow MLP makes of it.

use crate::arch::blocks::attention::linear;
use crate::arch::blocks::lifter::Draft;
use crate::arch::blocks::names::Part;
use llmcc_ir::graph::{UnaryOp, Value};

/// The two matrices of a gate.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NormGate {
    /// `[rank, hidden]`.
    pub down: Part,
    /// `[hidden, rank]`.
    pub up: Part,
}

/// Gate of the norm before attention.
pub(crate) const ATTN_NORM_GATE: NormGate =
    NormGate { down: Part("attn.norm_gate.down"), up: Part("attn.norm_gate.up") };
/// Gate of the norm before experts.
pub(crate) const MLP_NORM_GATE: NormGate = NormGate { down: Part("mlp.norm_gate.down"), up: Part("mlp.norm_gate.up") };

/// `h·σ(up(silu(down(h))))` with so many columns between, if norms have gates.
#[track_caller]
pub(crate) fn gated_norm(f: &mut Draft, gate: NormGate, rank: Option<usize>, h: Value) -> Value {
    let Some(rank) = rank else { return h };
    let hidden = f.facts().hidden;
    let y = linear(f, gate.down, [rank, hidden], false, h);
    let y = f.unary(UnaryOp::Silu, y);
    let y = linear(f, gate.up, [hidden, rank], false, y);
    let y = f.unary(UnaryOp::Sigmoid, y);
    f.mul(h, y)
}
