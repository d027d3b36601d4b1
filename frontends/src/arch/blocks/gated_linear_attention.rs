//! Linear attention whose states decay, with a norm of each head and a gate behind it: gated linear
//! attention (GLA, arXiv 2312.06635), where each row of a state decays as the token says, and
//! retention (RetNet, 2307.08621), where a state decays by a number of its head. Layout and names of
//! flash-linear-attention.

use crate::arch::blocks::attention::{Norm, linear, norm};
use crate::arch::blocks::lifter::Draft;
use crate::arch::blocks::names::{ATTN_NORM, MLP_NORM, Part, TABLE, Table, names};
use crate::arch::blocks::recurrent::{
    CONV_K, CONV_Q, CONV_V, DELTA_GATE, DELTA_K, DELTA_Q, DELTA_V, SSM_NORM, SSM_OUT, convolved, split_cols,
};
use llmcc_ir::graph::{Op, UnaryOp, Update, Value};

/// A layer with it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct GatedLinear {
    /// Heads.
    pub heads: usize,
    /// Heads of keys, values and decays, each of as many heads one after the other; divides `heads`.
    pub kv: usize,
    /// Columns of the keys of all heads.
    pub keys: usize,
    /// Columns of the values of all heads.
    pub values: usize,
    /// Tokens that the convolutions of queries, keys and values see, if there are any.
    pub conv: Option<usize>,
    /// How states decay.
    pub decay: Decay,
}

/// How states decay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Decay {
    /// Each row as the token says: `sigmoid(x)^(1/16)`.
    OfTokens,
    /// Head `i` by `1 − 2^(−5−i)`, and queries and keys are rotated.
    OfHeads,
}

/// Rank of the matrices of decays, and the divisor of their logarithms; no file has them.
const RANK: usize = 16;
const TEMPERATURE: f32 = 16.0;

const DECAY_DOWN: Part = Part("linear.decay_down");
const DECAY_UP: Part = Part("linear.decay_up");

/// Names of its tensors in checkpoints.
pub(crate) const NAMES: Table = names! {
    "" { TABLE => "model.embeddings" }
    "model.layers.{}." {
        ATTN_NORM => "attn_norm", MLP_NORM => "mlp_norm", DELTA_Q => "attn.q_proj", DELTA_K => "attn.k_proj",
        DELTA_V => "attn.v_proj", CONV_Q => "attn.q_conv1d", CONV_K => "attn.k_conv1d", CONV_V => "attn.v_conv1d",
        DECAY_DOWN => "attn.gk_proj.0", DECAY_UP => "attn.gk_proj.1", DELTA_GATE => "attn.g_proj",
        SSM_NORM => "attn.g_norm_swish_gate", SSM_NORM => "attn.g_norm", SSM_OUT => "attn.o_proj",
    }
};

impl GatedLinear {
    /// Queries and keys are rotated.
    pub(crate) fn rotates(&self) -> bool {
        self.decay == Decay::OfHeads
    }
}

/// Its output for `h`, a row per token; `rope` is its rotary table.
#[track_caller]
pub(crate) fn gated_linear(f: &mut Draft, m: &GatedLinear, eps: Norm, rope: Option<Value>, h: Value) -> Value {
    let hidden = f.facts().hidden;
    let (key_dim, value_dim) = (m.keys / m.heads, m.values / m.heads);
    let [keys, values] = [key_dim, value_dim].map(|dim| m.kv.saturating_mul(dim));
    let widths = [m.keys, keys, values];
    let each = [(DELTA_Q, m.keys), (DELTA_K, keys), (DELTA_V, values)].map(|(part, n)| f.matrix(part, [n, hidden]));
    let mut x = f.matmul_all(h, &each);
    if let Some(conv) = m.conv {
        x = convolved(f, &[(CONV_Q, m.keys), (CONV_K, keys), (CONV_V, values)], conv, x);
        x = f.unary(UnaryOp::Silu, x);
    }
    let [mut q, mut k, v] = split_cols(f, x, widths);
    if let Some(rope) = rope {
        [q, k] = [q, k].map(|x| f.op(Op::Rope { head_dim: key_dim }, &[x, rope]));
    }
    let scale = f.scalar((key_dim as f32).powf(-0.5));
    let q = f.mul(q, scale);
    let [of_keys, of_values] = [("key", key_dim), ("value", value_dim)].map(|(name, dim)| order(f, m, name, dim));
    let each = |f: &mut Draft, x, order: Option<Value>| order.map_or(x, |order| f.op(Op::PickCols, &[x, order]));
    let (k, v) = (each(f, k, of_keys), each(f, v, of_values));
    let decay = match m.decay {
        Decay::OfTokens => {
            let decay = decays(f, keys, h);
            each(f, decay, of_keys)
        }
        Decay::OfHeads => {
            let decays = (0..m.heads).map(|i| 1.0 - 0.5f32.powi(5 + i as i32)).collect();
            f.shared_constant("linear.decays", "$linear.decays", decays)
        }
    };
    let ones = f.shared_constant("linear.rates", "$linear.rates", vec![1.0; m.heads]);
    let state = f.fixed("linear", [m.heads, key_dim, value_dim]);
    let y = f.op(Op::Recurrence { update: Update::Plain }, &[q, k, v, decay, ones, state]);
    let y = norm(f, SSM_NORM, eps, y, value_dim);
    let gate = linear(f, DELTA_GATE, [m.values, hidden], false, h);
    let gate = f.unary(UnaryOp::Silu, gate);
    let y = f.mul(y, gate);
    linear(f, SSM_OUT, [hidden, m.values], false, y)
}

/// Which columns each head has of those that several have in common, `dim` of them.
#[track_caller]
fn order(f: &mut Draft, m: &GatedLinear, name: &str, dim: usize) -> Option<Value> {
    if m.kv == m.heads {
        return None;
    }
    let group = m.heads / m.kv.max(1);
    let order = (0..m.heads).flat_map(|i| (0..dim).map(move |j| (i / group.max(1) * dim + j) as f32)).collect();
    Some(f.shared_constant(&format!("linear.{name}_order"), &format!("$linear.order{}x{dim}", m.kv), order))
}

/// `sigmoid(x)^(1/16) = e^(−softplus(−x)/16)`, of each row of each state.
#[track_caller]
fn decays(f: &mut Draft, keys: usize, h: Value) -> Value {
    let low = linear(f, DECAY_DOWN, [RANK, f.facts().hidden], false, h);
    let x = linear(f, DECAY_UP, [keys, RANK], true, low);
    let x = f.unary(UnaryOp::Neg, x);
    let x = f.unary(UnaryOp::Softplus, x);
    let by = f.scalar(-1.0 / TEMPERATURE);
    let x = f.mul(x, by);
    f.unary(UnaryOp::Exp, x)
}
