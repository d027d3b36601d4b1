//! Linear attention whose states decay, with a norm of each head and a gate behind it: gated linear
//! attention (GLA, arXiv 2312.06635), where each row of a state decays as the token says, and
//! retention (RetNet, 2307.08621), where a state decays by a number of its head. Layout and names of
//! flash-linear-attention.

use super::blocks::{Norm, linear, norm};
use super::decoder::{Decoder, Defaults};
use super::lifter::Draft;
use super::mixer::Mixer;
use super::names::{ATTN_NORM, MLP_NORM, Part, TABLE, Table};
use super::recurrent::{
    CONV_K, CONV_Q, CONV_V, DELTA_GATE, DELTA_K, DELTA_Q, DELTA_V, SSM_NORM, SSM_OUT, convolved, split_cols,
};
use crate::config::common::WIDTH;
use crate::config::fields::{Accepts, Field, Fields};
use crate::config::known::Neutral;
use crate::config::{ConfigError, rope as read_rope};
use llmcc_ir::graph::{Op, UnaryOp, Update, Value};

/// What a layer with it is.
#[derive(Clone, Copy, Debug)]
pub(super) struct GatedLinear {
    /// Heads.
    heads: usize,
    /// Columns of all keys.
    keys: usize,
    /// Columns of all values.
    values: usize,
    /// Tokens that the convolutions of queries, keys and values see, if there are any.
    conv: Option<usize>,
    /// How states decay.
    decay: Decay,
}

/// How states decay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Decay {
    /// Each row as the token says: `sigmoid(x)^(1/16)`.
    OfTokens,
    /// Head `i` by `1 − 2^(−5−i)`, and queries and keys are rotated.
    OfHeads,
}

/// What the configuration classes fill in for absent fields.
pub(super) struct Absent {
    /// `num_heads`.
    pub heads: usize,
    /// `expand_k` and `expand_v`.
    pub expand: [f64; 2],
    /// `hidden_ratio`.
    pub ratio: usize,
}

/// Rank of the matrices of decays, and what their logarithms are divided by; no file says them.
const RANK: usize = 16;
const TEMPERATURE: f32 = 16.0;

const DECAY_DOWN: Part = Part("linear.decay_down");
const DECAY_UP: Part = Part("linear.decay_up");

/// What checkpoints call its tensors.
pub(super) const NAMES: Table = &[
    (TABLE, "model.embeddings"),
    (ATTN_NORM, "model.layers.{}.attn_norm"),
    (MLP_NORM, "model.layers.{}.mlp_norm"),
    (DELTA_Q, "model.layers.{}.attn.q_proj"),
    (DELTA_K, "model.layers.{}.attn.k_proj"),
    (DELTA_V, "model.layers.{}.attn.v_proj"),
    (CONV_Q, "model.layers.{}.attn.q_conv1d"),
    (CONV_K, "model.layers.{}.attn.k_conv1d"),
    (CONV_V, "model.layers.{}.attn.v_conv1d"),
    (DECAY_DOWN, "model.layers.{}.attn.gk_proj.0"),
    (DECAY_UP, "model.layers.{}.attn.gk_proj.1"),
    (DELTA_GATE, "model.layers.{}.attn.g_proj"),
    (SSM_NORM, "model.layers.{}.attn.g_norm_swish_gate"),
    (SSM_NORM, "model.layers.{}.attn.g_norm"),
    (SSM_OUT, "model.layers.{}.attn.o_proj"),
];

/// What both configurations say.
pub(super) const FIELDS: &[Field] = &[
    Field::new("num_attention_heads", Accepts::Size(1 << 14)).or(&["num_heads"]),
    Field::new("intermediate_size", WIDTH),
    Field::new("hidden_ratio", Accepts::Size(64)),
    Field::new("norm_eps", Accepts::Number),
    Field::new("expand_k", Accepts::Number),
    Field::new("expand_v", Accepts::Number),
];

/// What both classes decide by themselves: how it is computed, and what no published model has.
pub(super) const FIXED: &[(&str, Neutral)] = &[
    ("attn_mode", Neutral::Any),
    ("fuse_norm", Neutral::Any),
    ("fuse_swiglu", Neutral::Any),
    ("fuse_cross_entropy", Neutral::Any),
    ("fuse_linear_cross_entropy", Neutral::Any),
    ("use_l2warp", Neutral::Any),
    ("elementwise_affine", Neutral::On),
    ("use_output_gate", Neutral::On),
    ("use_gk", Neutral::On),
    ("use_gv", Neutral::Off),
    ("clamp_min", Neutral::Off),
    ("feature_map", Neutral::Off),
    ("attn", Neutral::Off),
    ("hidden_act", Neutral::Words(&["swish", "silu"])),
    ("num_kv_heads", Neutral::Same("num_heads")),
    // Read by one of them only; the other has no convolutions.
    ("use_short_conv", Neutral::Off),
    ("conv_size", Neutral::Any),
];

/// A decoder of such layers; `conv` is how many tokens their convolutions see.
pub(super) fn read(f: &Fields, decay: Decay, conv: Option<usize>, absent: &Absent) -> Result<Decoder, ConfigError> {
    let heads = f.size("num_attention_heads").or(absent.heads);
    let hidden = f.required_size("hidden_size")?;
    let width = |field: &str, default: f64| {
        let times = f.factor_or(field, default)?;
        let width = (hidden as f64 * times) as usize;
        let whole = width.is_multiple_of(heads) && (1..=1 << 20).contains(&width);
        let expected = || format!("a factor that gives each of {heads} heads as many columns");
        whole.then_some(width).ok_or_else(|| f.invalid(field, &times, expected()))
    };
    let [keys, values] = [width("expand_k", absent.expand[0])?, width("expand_v", absent.expand[1])?];
    let (key_dim, rotates) = (keys / heads, decay == Decay::OfHeads);
    if rotates && !key_dim.is_multiple_of(2) {
        let times = f.factor_or("expand_k", absent.expand[0])?;
        return Err(f.invalid("expand_k", &times, "a factor that gives each head an even number of columns".into()));
    }
    let defaults = Defaults {
        vocab: Some(32_000),
        heads: Some(absent.heads),
        head_dim: Some(key_dim),
        eps_field: "norm_eps",
        ffn: Some(1),
        ..Defaults::LLAMA
    };
    let d = Decoder::read_with(f, &defaults, |heads, max_position| match rotates {
        true => Ok(vec![read_rope::read(f, heads.dim, max_position, defaults.theta)?]),
        false => Ok(vec![]),
    })?;
    let ffn = match f.size("intermediate_size").value() {
        Some(n) => n,
        None => ffn(f, hidden, absent.ratio)?,
    };
    let mixer = GatedLinear { heads, keys, values, conv, decay };
    let d = d.with_attention(|_, a| a.rotary = rotates.then_some(0)).with_mixers(|_| Some(Mixer::GatedLinear(mixer)));
    Ok(d.with_mlp(|m| (m.ffn, m.act) = (ffn, UnaryOp::Silu)))
}

/// The width of MLPs where none is given: two thirds of the ratio, in whole 256.
fn ffn(f: &Fields, hidden: usize, ratio: usize) -> Result<usize, ConfigError> {
    let ratio = f.size("hidden_ratio").or(ratio);
    let wide = hidden.saturating_mul(ratio).saturating_mul(2) / 3;
    let width = wide.checked_next_multiple_of(256).filter(|n| (1..=1 << 20).contains(n));
    let expected = || format!("a ratio that makes MLPs of 1 to {} columns", 1 << 20);
    width.ok_or_else(|| f.invalid("hidden_ratio", &ratio, expected()))
}

impl GatedLinear {
    /// Queries and keys are rotated.
    pub(super) fn rotates(&self) -> bool {
        self.decay == Decay::OfHeads
    }
}

/// What it makes of `h`, a row per token; `rope` is its rotary table.
#[track_caller]
pub(super) fn gated_linear(f: &mut Draft, m: &GatedLinear, eps: Norm, rope: Option<Value>, h: Value) -> Value {
    let hidden = f.facts().hidden;
    let (key_dim, value_dim) = (m.keys / m.heads, m.values / m.heads);
    let widths = [m.keys, m.keys, m.values];
    let each = [(DELTA_Q, m.keys), (DELTA_K, m.keys), (DELTA_V, m.values)].map(|(part, n)| f.matrix(part, [n, hidden]));
    let all = f.op(Op::ConcatRows, &each);
    let mut x = f.matmul(h, all);
    if let Some(conv) = m.conv {
        x = convolved(f, &[(CONV_Q, m.keys), (CONV_K, m.keys), (CONV_V, m.values)], conv, x);
        x = f.unary(UnaryOp::Silu, x);
    }
    let [mut q, mut k, v] = split_cols(f, x, widths);
    if let Some(rope) = rope {
        [q, k] = [q, k].map(|x| f.op(Op::Rope { head_dim: key_dim }, &[x, rope]));
    }
    let scale = f.scalar((key_dim as f32).powf(-0.5));
    let q = f.mul(q, scale);
    let decay = match m.decay {
        Decay::OfTokens => decays(f, m, h),
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

/// `sigmoid(x)^(1/16) = e^(−softplus(−x)/16)`, of each row of each state: two square roots, each rounded
/// once, leave a quarter of the exponential's error, which tokens add up.
#[track_caller]
fn decays(f: &mut Draft, m: &GatedLinear, h: Value) -> Value {
    let low = linear(f, DECAY_DOWN, [RANK, f.facts().hidden], false, h);
    let x = linear(f, DECAY_UP, [m.keys, RANK], true, low);
    let x = f.unary(UnaryOp::Neg, x);
    let x = f.unary(UnaryOp::Softplus, x);
    let by = f.scalar(-4.0 / TEMPERATURE);
    let x = f.mul(x, by);
    let x = f.unary(UnaryOp::Exp, x);
    let x = f.unary(UnaryOp::Sqrt, x);
    f.unary(UnaryOp::Sqrt, x)
}
