//! Kimi's delta attention (arXiv 2510.26692): the gated delta rule with a decay of its own for
//! every row of the state, and gates of low rank; Ling's (inclusionAI, 2026) have matrices for both.

use crate::arch::blocks::attention::{Norm, linear, norm, scaled};
use crate::arch::blocks::lifter::Draft;
use crate::arch::blocks::names::{Kind, Part, Table, names};
use crate::arch::blocks::recurrent::{
    CONV_K, CONV_Q, CONV_V, DELTA_K, DELTA_Q, DELTA_RATE, DELTA_V, SSM_A, SSM_DT, SSM_NORM, SSM_OUT, convolved,
    of_length_one, split_cols,
};
use crate::config::dictionary::fields;
use crate::config::fields::Field;
use llmcc_ir::graph::{Op, UnaryOp, Update, Value};

const DECAY_DOWN: Part = Part("delta.decay_down");
pub(crate) const DECAY_UP: Part = Part("delta.decay_up");
const GATE_DOWN: Part = Part("delta.gate_down");
pub(crate) const GATE_UP: Part = Part("delta.gate_up");

/// The object in which published files describe it, the same with a point, and the members common
/// to all.
pub(crate) const OBJECT: &str = "linear_attn_config";
pub(crate) const IN_OBJECT: &str = "linear_attn_config.";
pub(crate) const DESCRIPTION: &[Field] = fields! { num_heads, head_dim, short_conv_kernel_size, gate_lower_bound };

/// A layer with it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KimiDelta {
    /// Heads.
    pub heads: usize,
    /// Columns of each, and the rank of the gates.
    pub dim: usize,
    /// Tokens that the convolution sees.
    pub conv: usize,
    /// Activation of the convolution.
    pub act: UnaryOp,
    /// How the rates of heads are stored.
    pub rates: Kind,
    /// There may be more of them than heads; only the first count.
    pub spare_rates: bool,
    /// Decays, and gates, are made by two matrices, with [`dim`](KimiDelta::dim) columns between.
    pub low_rank: [bool; 2],
    /// Decays are `e^(floor·σ(e^A·(f + b)))`, no less than `e^floor`, instead of
    /// `e^(−e^A·softplus(f + b))`.
    pub floor: Option<f32>,
}

/// Names of its tensors in checkpoints.
pub(crate) const NAMES: Table = names! {
    "model.layers.{}." {
        DELTA_Q => "self_attn.q_proj", DELTA_K => "self_attn.k_proj", DELTA_V => "self_attn.v_proj",
        CONV_Q => "self_attn.q_conv1d", CONV_K => "self_attn.k_conv1d", CONV_V => "self_attn.v_conv1d",
        DECAY_DOWN => "self_attn.f_a_proj", DECAY_UP => "self_attn.f_b_proj", GATE_DOWN => "self_attn.g_a_proj",
        GATE_UP => "self_attn.g_b_proj", DELTA_RATE => "self_attn.b_proj", SSM_DT => "self_attn.dt_bias",
        SSM_A => "self_attn.A_log", SSM_NORM => "self_attn.o_norm", SSM_OUT => "self_attn.o_proj",
    }
};

/// Its output for `h`, a row per token.
#[track_caller]
pub(crate) fn kimi_delta(f: &mut Draft, m: &KimiDelta, eps: Norm, h: Value) -> Value {
    let (hidden, width) = (f.facts().hidden, m.heads * m.dim);
    let each = [DELTA_Q, DELTA_K, DELTA_V].map(|part| f.matrix(part, [width, hidden]));
    let x = f.matmul_all(h, &each);
    let x = convolved(f, &[(CONV_Q, width), (CONV_K, width), (CONV_V, width)], m.conv, x);
    let x = f.unary(m.act, x);
    let [q, k, v] = split_cols(f, x, [width; 3]);
    let [q, k] = of_length_one(f, [q, k], m.dim);
    let rate = linear(f, DELTA_RATE, [m.heads, hidden], false, h);
    let rate = f.unary(UnaryOp::Sigmoid, rate);
    let decay = decays(f, m, h);
    let state = f.fixed("delta", [m.heads, m.dim, m.dim]);
    let y = f.op(Op::Recurrence { update: Update::Delta }, &[q, k, v, decay, rate, state]);
    let y = norm(f, SSM_NORM, eps, y, m.dim);
    let gate = made(f, m, ([GATE_DOWN, GATE_UP], m.low_rank[1]), h);
    let gate = f.unary(UnaryOp::Sigmoid, gate);
    let y = f.mul(y, gate);
    linear(f, SSM_OUT, [hidden, width], false, y)
}

/// A number for each column of the heads.
#[track_caller]
fn made(f: &mut Draft, m: &KimiDelta, ([down, up], low_rank): ([Part; 2], bool), h: Value) -> Value {
    let (hidden, width) = (f.facts().hidden, m.heads * m.dim);
    if !low_rank {
        return linear(f, up, [width, hidden], false, h);
    }
    let x = linear(f, down, [m.dim, hidden], false, h);
    linear(f, up, [width, m.dim], false, x)
}

/// The decay of each row of each head's state.
#[track_caller]
fn decays(f: &mut Draft, m: &KimiDelta, h: Value) -> Value {
    let dt = made(f, m, ([DECAY_DOWN, DECAY_UP], m.low_rank[0]), h);
    let bias = f.weight(SSM_DT, Kind::Bare, &[m.heads * m.dim]);
    let dt = f.add(dt, bias);
    let a = match f.shape_of(SSM_A, m.rates) {
        Some([n]) if m.spare_rates && *n > m.heads => {
            let all = f.weight(SSM_A, m.rates, &[*n]);
            f.op(Op::SliceRows { start: 0, len: m.heads }, &[all])
        }
        _ => f.weight(SSM_A, m.rates, &[m.heads]),
    };
    let a = f.unary(UnaryOp::Exp, a);
    let repeated = Op::RepeatEach { times: m.dim };
    let decay = match m.floor {
        Some(floor) => {
            let a = f.op(repeated, &[a]);
            let x = f.mul(dt, a);
            let x = f.unary(UnaryOp::Sigmoid, x);
            scaled(f, x, Some(floor))
        }
        None => {
            let dt = f.unary(UnaryOp::Softplus, dt);
            let a = f.unary(UnaryOp::Neg, a);
            let a = f.op(repeated, &[a]);
            f.mul(dt, a)
        }
    };
    f.unary(UnaryOp::Exp, decay)
}
