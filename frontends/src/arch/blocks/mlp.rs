//! The MLP of a layer: two matrices, or three with one for a gate.

use crate::arch::blocks::attention::{Norm, norm, parts, product, scaled, stored};
use crate::arch::blocks::clamps::{Limits, activated};
use crate::arch::blocks::lifter::Draft;
use crate::arch::blocks::names::{MLP_DOWN, MLP_DOWN_NORM, MLP_GATE, MLP_GATE_UP, MLP_UP};
use crate::arch::blocks::row_statistics::above_deviations;
use crate::arch::blocks::xielu::xielu;
use llmcc_ir::graph::{UnaryOp, Value};

/// An MLP.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mlp {
    /// Width.
    pub ffn: usize,
    /// Activation.
    pub act: UnaryOp,
    /// The input is multiplied by the activation of a gate, else it is activated itself.
    pub gated: bool,
    /// Biases on all matrices.
    pub bias: bool,
    /// Bias on the last matrix, whatever the others have.
    pub out_bias: bool,
    /// Matrices are stored `[in, out]`.
    pub transposed: bool,
    /// Gate and up are stored as one matrix, in this order.
    pub joined: Option<Joined>,
    /// Changes to the gate before its activation.
    pub gate: GateForm,
    /// Limits of gate and up.
    pub limits: Option<Limits>,
    /// Factor of the output.
    pub scale: Option<f32>,
    /// Norm of the last matrix's input.
    pub inner_norm: Option<Norm>,
    /// Activated by [`xielu`] instead, whose parameters are learned.
    pub xielu: bool,
}

/// The order of gate and up in one matrix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Joined {
    /// The gate, then up.
    GateUp,
    /// Up, then the gate.
    UpGate,
}

/// Changes to a gate before its activation.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct GateForm {
    /// Multiplies the gate.
    pub scale: Option<f32>,
    /// Elements count as far as they are above the mean of their row plus this many standard deviations.
    pub above: Option<f32>,
}

/// `down(act(gate(h)) · up(h))`, or `down(act(up(h)))` without a gate.
#[track_caller]
pub(crate) fn mlp(f: &mut Draft, m: &Mlp, h: Value) -> Value {
    let (hidden, shape) = (f.facts().hidden, [m.ffn, f.facts().hidden]);
    let h = if m.gated {
        // GPTQModel takes them apart.
        let apart = f.matrix_of(MLP_GATE).is_some_and(|(ckpt, name)| ckpt.info(&name).is_some());
        let fused = m.joined.filter(|_| !apart).map(|order| {
            let all = stored(f, MLP_GATE_UP, [m.ffn.saturating_mul(2), hidden], m.bias, m.transposed);
            let [first, last] = parts(f, all, [m.ffn, m.ffn]).map(|(w, b)| product(f, h, w, b));
            if order == Joined::UpGate { [last, first] } else { [first, last] }
        });
        let one = |f: &mut Draft, part| {
            let (w, b) = stored(f, part, shape, m.bias, m.transposed);
            product(f, h, w, b)
        };
        let gate = fused.map_or_else(|| one(f, MLP_GATE), |[gate, _]| gate);
        let gate = scaled(f, gate, m.gate.scale);
        let gate = m.gate.above.map_or(gate, |count| above_deviations(f, gate, count, m.ffn));
        activated(f, m.act, m.limits, gate, |f| fused.map_or_else(|| one(f, MLP_UP), |[_, up]| up))
    } else {
        let (w, b) = stored(f, MLP_UP, shape, m.bias, m.transposed);
        let up = product(f, h, w, b);
        if m.xielu { xielu(f, up) } else { f.unary(m.act, up) }
    };
    let h = m.inner_norm.map_or(h, |spec| norm(f, MLP_DOWN_NORM, spec, h, m.ffn));
    let (w, b) = stored(f, MLP_DOWN, [hidden, m.ffn], m.bias || m.out_bias, m.transposed);
    let y = product(f, h, w, b);
    scaled(f, y, m.scale)
}

impl Mlp {
    /// With a gate, stored as three matrices without biases.
    pub(crate) fn gated(ffn: usize, act: UnaryOp) -> Mlp {
        Mlp {
            ffn,
            act,
            gated: true,
            bias: false,
            out_bias: false,
            transposed: false,
            joined: None,
            gate: GateForm::default(),
            limits: None,
            inner_norm: None,
            scale: None,
            xielu: false,
        }
    }
}
