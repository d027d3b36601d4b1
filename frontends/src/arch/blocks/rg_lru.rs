//! The gated linear unit of Griffin and Hawk (RG-LRU, arXiv 2402.19427): a number per channel, whose
//! decay depends on the token.

use crate::arch::blocks::attention::linear;
use crate::arch::blocks::lifter::Draft;
use crate::arch::blocks::names::{Kind, Part, Table, names};
use crate::arch::blocks::recurrent::{SSM_CONV, SSM_IN, SSM_OUT, short_conv};
use crate::arch::blocks::weight_forms::{Run, by_heads};
use llmcc_ir::graph::{Input, Op, UnaryOp, Update, Value};

/// The branch that is the gate of the other.
const BRANCH: Part = Part("unit.branch");
const INPUT_GATE: Part = Part("unit.input_gate");
const INPUT_GATE_BIAS: Part = Part("unit.input_gate_bias");
const DECAY_GATE: Part = Part("unit.decay_gate");
const DECAY_GATE_BIAS: Part = Part("unit.decay_gate_bias");
const DECAY: Part = Part("unit.decay");

/// Multiplies logarithms of decays.
const DECAY_SCALE: f32 = -8.0;

/// A block with it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LinearUnit {
    /// Channels.
    pub width: usize,
    /// Heads; each has gates by a matrix of its own.
    pub heads: usize,
    /// Tokens that the convolution sees.
    pub conv: usize,
    /// Activation of the other branch.
    pub act: UnaryOp,
}

/// Names of its tensors in checkpoints.
pub(crate) const NAMES: Table = names! {
    "model.layers.{}." {
        BRANCH => "temporal_block.linear_y", SSM_IN => "temporal_block.linear_x",
        SSM_CONV => "temporal_block.conv_1d", SSM_OUT => "temporal_block.linear_out",
        INPUT_GATE => "temporal_block.rg_lru.input_gate_weight",
        INPUT_GATE_BIAS => "temporal_block.rg_lru.input_gate_bias",
        DECAY_GATE => "temporal_block.rg_lru.recurrent_gate_weight",
        DECAY_GATE_BIAS => "temporal_block.rg_lru.recurrent_gate_bias",
        DECAY => "temporal_block.rg_lru.recurrent_param",
    }
};

/// Its output for `h`, a row per token.
#[track_caller]
pub(crate) fn linear_unit(f: &mut Draft, m: &LinearUnit, h: Value) -> Value {
    let hidden = f.facts().hidden;
    let other = linear(f, BRANCH, [m.width, hidden], true, h);
    let other = f.unary(m.act, other);
    let x = linear(f, SSM_IN, [m.width, hidden], true, h);
    let x = short_conv(f, SSM_CONV, [m.conv, m.width], true, x);
    let input = gate(f, m, [INPUT_GATE, INPUT_GATE_BIAS], x);
    let step = gate(f, m, [DECAY_GATE, DECAY_GATE_BIAS], x);
    let rates = f.weight(DECAY, Kind::Bare, &[m.width]);
    let rates = f.unary(UnaryOp::Softplus, rates);
    let scale = f.scalar(DECAY_SCALE);
    let rates = f.mul(rates, scale);
    let x = f.mul(x, input);
    let v = weighted(f, [step, rates], x);
    // A matrix of one row: the written and read vector is the number itself.
    let one = f.shared_constant("one", "$one", vec![1.0]);
    let state = f.fixed("unit", [1, 1, m.width]);
    let y = f.op(Op::Recurrence { update: Update::Scan }, &[one, one, v, step, rates, state]);
    let y = f.mul(y, other);
    linear(f, SSM_OUT, [hidden, m.width], true, y)
}

/// `x·√(1 − a²)`, `a = e^(step·rate)`; of the first token of a sequence `x` itself.
#[track_caller]
fn weighted(f: &mut Draft, [step, rates]: [Value; 2], x: Value) -> Value {
    // 1 − e^(−2y) = tanh y·(1 + e^(−2y)), in which nothing cancels where a is near 1.
    let y = f.mul(step, rates);
    let two = f.scalar(2.0);
    let square = f.mul(y, two);
    let square = f.unary(UnaryOp::Exp, square);
    let one = f.scalar(1.0);
    let above = f.add(square, one);
    let y = f.unary(UnaryOp::Neg, y);
    let y = f.unary(UnaryOp::Tanh, y);
    let left = f.mul(y, above);
    let weight = f.unary(UnaryOp::Sqrt, left);
    let taken = f.unary(UnaryOp::Neg, weight);
    let taken = f.add(taken, one);
    let mut is_first = vec![0.0; f.max_context()];
    is_first.iter_mut().take(1).for_each(|x| *x = 1.0);
    let is_first = f.shared_table("unit.first", "$first", [is_first.len(), 1], is_first);
    let positions = f.input(Input::Positions);
    let is_first = f.op(Op::EmbedPositions { every: 1, shift: 0 }, &[is_first, positions]);
    let given_back = f.op(Op::Combine, &[is_first, taken]);
    let weight = f.add(weight, given_back);
    f.mul(x, weight)
}

/// The sigmoid of a matrix and a bias for each head, applied to its columns.
#[track_caller]
fn gate(f: &mut Draft, m: &LinearUnit, [w, b]: [Part; 2], x: Value) -> Value {
    let head = m.width / m.heads;
    let w = f.weight(w, Kind::Bare, &[m.heads, head, head]);
    let w = f.op(Op::Flatten, &[w]);
    let w = by_heads(f, m.heads, w, Run { run: head, start: 0, len: head, turned: true }, head);
    let y = f.op(Op::HeadMatMul { heads: m.heads, cols: head }, &[x, w]);
    let b = f.weight(b, Kind::Bare, &[m.heads, head]);
    let b = f.op(Op::Flatten, &[b]);
    let y = f.add(y, b);
    f.unary(UnaryOp::Sigmoid, y)
}
