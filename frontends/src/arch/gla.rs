//! Gated linear attention (GLA, arXiv 2312.06635): a state for each head whose rows decay as the
//! tokens say. Layout and names of flash-linear-attention.

use super::blocks::{Norm, linear, norm};
use super::decoder::{Decoder, Defaults};
use super::entry::Arch;
use super::lifter::Draft;
use super::mixer::Mixer;
use super::names::{ATTN_NORM, HUGGING_FACE, MLP_NORM, Names, Part, TABLE, Table};
use super::recurrent::{
    CONV_K, CONV_Q, CONV_V, DELTA_GATE, DELTA_K, DELTA_Q, DELTA_V, SSM_NORM, SSM_OUT, convolved, split_cols,
};
use crate::config::ConfigError;
use crate::config::common::{MODEL, WIDTH};
use crate::config::fields::{Accepts, Field, Fields, IDENTITY};
use crate::config::known::Neutral;
use llmcc_ir::graph::{Op, UnaryOp, Update, Value};

pub(super) const ARCH: Arch = Arch {
    model_type: "gla",
    class: "GLAForCausalLM",
    fields: &[IDENTITY, MODEL, OWN],
    fixed: &[
        // How the same is computed.
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
        ("feature_map", Neutral::Off),
        ("clamp_min", Neutral::Off),
        ("attn", Neutral::Off),
        ("attnres_block_size", Neutral::Off),
        ("hidden_act", Neutral::Words(&["swish", "silu"])),
        ("num_kv_heads", Neutral::Same("num_attention_heads")),
    ],
    goldens: &["gla_paper", "gla_conv_paper"],
    names: Names(&[NAMES, HUGGING_FACE]),
    read: |f| {
        let defaults =
            Defaults { vocab: Some(32_000), heads: Some(4), eps_field: "norm_eps", ffn: Some(1), ..Defaults::LLAMA };
        let mut d = Decoder::read_with(f, &defaults, |_, _| Ok(vec![]))?;
        let ffn = match f.size("intermediate_size").value() {
            Some(n) => n,
            None => ffn(f, d.facts.hidden)?,
        };
        let gla = Gla::read(f, d.facts.hidden)?;
        d = d.with_attention(|_, a| a.rotary = None).with_mixers(|_| Some(Mixer::Gla(gla)));
        Ok(Box::new(d.with_mlp(|m| (m.ffn, m.act) = (ffn, UnaryOp::Silu))))
    },
};

const OWN: &[Field] = &[
    Field::new("num_attention_heads", Accepts::Size(1 << 14)).or(&["num_heads"]),
    Field::new("intermediate_size", WIDTH),
    Field::new("hidden_ratio", Accepts::Size(64)),
    Field::new("norm_eps", Accepts::Number),
    Field::new("expand_k", Accepts::Number),
    Field::new("expand_v", Accepts::Number),
    Field::new("use_short_conv", Accepts::Flag),
    Field::new("conv_size", Accepts::Size(64)),
];

const DECAY_DOWN: Part = Part("gla.decay_down");
const DECAY_UP: Part = Part("gla.decay_up");

const NAMES: Table = &[
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

/// What a layer with it is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Gla {
    /// Heads.
    heads: usize,
    /// Columns of all keys.
    keys: usize,
    /// Columns of all values.
    values: usize,
    /// Tokens that the convolutions of queries, keys and values see, if there are any.
    conv: Option<usize>,
}

/// Rank of the decays' matrices, and what their logarithms are divided by; no file says them.
const RANK: usize = 16;
const TEMPERATURE: f32 = 16.0;

impl Gla {
    fn read(f: &Fields, hidden: usize) -> Result<Gla, ConfigError> {
        let heads = f.size("num_attention_heads").or(4);
        let width = |field: &str, default: f64| {
            let times = f.factor_or(field, default)?;
            let width = (hidden as f64 * times) as usize;
            match width.is_multiple_of(heads) && (1..=1 << 20).contains(&width) {
                true => Ok(width),
                false => {
                    Err(f.invalid(field, &times, format!("a factor that gives each of {heads} heads as many columns")))
                }
            }
        };
        let conv = f.size("conv_size").or(4);
        if conv < 2 {
            return Err(f.invalid("conv_size", &conv, "at least 2".into()));
        }
        let conv = f.flag("use_short_conv").then_some(conv);
        Ok(Gla { heads, keys: width("expand_k", 0.5)?, values: width("expand_v", 1.0)?, conv })
    }
}

/// The width of MLPs where none is given.
fn ffn(f: &Fields, hidden: usize) -> Result<usize, ConfigError> {
    let ratio = f.size("hidden_ratio").or(4);
    let wide = hidden.saturating_mul(ratio).saturating_mul(2) / 3;
    match wide.div_ceil(256).checked_mul(256).filter(|n| (1..=1 << 20).contains(n)) {
        Some(n) => Ok(n),
        None => Err(f.invalid("hidden_ratio", &ratio, format!("a ratio that makes MLPs of 1 to {} columns", 1 << 20))),
    }
}

/// What it makes of `h`, a row per token.
#[track_caller]
pub(super) fn gated_linear_attention(f: &mut Draft, m: &Gla, eps: Norm, h: Value) -> Value {
    let hidden = f.facts().hidden;
    let (rows, value_dim) = (m.keys / m.heads, m.values / m.heads);
    let widths = [m.keys, m.keys, m.values];
    let [q, k, v] = [DELTA_Q, DELTA_K, DELTA_V];
    let each = [(q, m.keys), (k, m.keys), (v, m.values)].map(|(part, n)| f.matrix(part, [n, hidden]));
    let all = f.op(Op::ConcatRows, &each);
    let mut x = f.matmul(h, all);
    if let Some(conv) = m.conv {
        x = convolved(f, &[(CONV_Q, m.keys), (CONV_K, m.keys), (CONV_V, m.values)], conv, x);
        x = f.unary(UnaryOp::Silu, x);
    }
    let [q, k, v] = split_cols(f, x, widths);
    let scale = f.scalar((rows as f32).powf(-0.5));
    let q = f.mul(q, scale);
    let low = linear(f, DECAY_DOWN, [RANK, hidden], false, h);
    let decay = linear(f, DECAY_UP, [m.keys, RANK], true, low);
    let decay = decays(f, decay);
    let ones = f.shared_constant("gla.rates", "$gla.rates", vec![1.0; m.heads]);
    let state = f.fixed("gla", [m.heads, rows, value_dim]);
    let y = f.op(Op::Recurrence { update: Update::Plain }, &[q, k, v, decay, ones, state]);
    let y = norm(f, SSM_NORM, eps, y, value_dim);
    let gate = linear(f, DELTA_GATE, [m.values, hidden], false, h);
    let gate = f.unary(UnaryOp::Silu, gate);
    let y = f.mul(y, gate);
    linear(f, SSM_OUT, [hidden, m.values], false, y)
}

/// `sigmoid(x)^(1/16) = e^(−softplus(−x)/16)`.
#[track_caller]
fn decays(f: &mut Draft, x: Value) -> Value {
    let x = f.unary(UnaryOp::Neg, x);
    let x = f.unary(UnaryOp::Softplus, x);
    let by = f.scalar(-1.0 / TEMPERATURE);
    let x = f.mul(x, by);
    f.unary(UnaryOp::Exp, x)
}
