//! Latent attention (DeepSeek-V2, arXiv 2405.04434): keys and values of all heads are made of one
//! short row per token, the latent, beside which one rotated key serves all heads.
//!
//! Only these two are cached, as one KV head: its keys are the rotated key followed by the latent,
//! its values the latent. What makes a head's keys of it, `W_k`, is applied to the queries instead
//! (`q·(W_k c) = (W_kᵀ q)·c`), and what makes its values to the weighted sum (`Σ p·(W_v c) =
//! W_v (Σ p·c)`): two products by heads (the absorbed form, section 2.1.2 of the paper).

pub(super) use super::blocks::Latent;
use super::blocks::{Attention, Norm, linear, norm, scaled, tuned};
use super::gates::gated;
use super::lifter::Draft;
use super::names::{ATTN_OUT, ATTN_Q, Kind, Part, Table};
use super::weights::{Run, by_heads, split_rows};
use crate::config::ConfigError;
use crate::config::common::Heads;
use crate::config::fields::{Accepts, Field, Fields, Given};
use llmcc_ir::graph::{F32, Op, Value};

pub(super) const Q_DOWN: Part = Part("attn.q_down");
pub(super) const Q_DOWN_NORM: Part = Part("attn.q_down_norm");
pub(super) const Q_UP: Part = Part("attn.q_up");
pub(super) const KV_DOWN: Part = Part("attn.kv_down");
pub(super) const KV_DOWN_NORM: Part = Part("attn.kv_down_norm");
pub(super) const KV_UP: Part = Part("attn.kv_up");
/// Of [`KV_UP`] what makes keys, transposed for each head, `[heads, kv_rank, nope]`, as GGUF files
/// have it.
pub(super) const K_UP: Part = Part("attn.k_up");
/// Of [`KV_UP`] what makes values, `[heads, value, kv_rank]`.
pub(super) const V_UP: Part = Part("attn.v_up");

/// What checkpoints of Transformers call its tensors. Before
/// [`HUGGING_FACE`](super::names::HUGGING_FACE).
pub(super) const NAMES: Table = &[
    (Q_DOWN, "model.layers.{}.self_attn.q_a_proj"),
    (Q_DOWN_NORM, "model.layers.{}.self_attn.q_a_layernorm"),
    (Q_UP, "model.layers.{}.self_attn.q_b_proj"),
    (KV_DOWN, "model.layers.{}.self_attn.kv_a_proj_with_mqa"),
    (KV_DOWN_NORM, "model.layers.{}.self_attn.kv_a_layernorm"),
    (KV_UP, "model.layers.{}.self_attn.kv_b_proj"),
    (K_UP, "model.layers.{}.self_attn.k_b_proj"),
    (V_UP, "model.layers.{}.self_attn.v_b_proj"),
];

/// Largest width of a latent, or of a part of a head.
const WIDTH: Accepts = Accepts::Size(1 << 16);

/// The fields that [`Latent::read`] reads.
pub(super) const LATENT: &[Field] = &[
    Field::new("q_lora_rank", WIDTH),
    Field::new("kv_lora_rank", WIDTH),
    Field::new("qk_nope_head_dim", WIDTH),
    Field::new("qk_rope_head_dim", WIDTH),
    Field::new("v_head_dim", WIDTH),
    Field::new("qk_head_dim", WIDTH),
];

impl Latent {
    /// Those of DeepSeek-V2 and V3.
    pub(super) const DEEPSEEK: Latent = Latent {
        q_rank: Some(1536),
        kv_rank: 512,
        nope: 128,
        rope: 64,
        value: 128,
        interleaved: true,
        bias: false,
        factor: None,
        // That of no file.
        eps: 1e-6,
    };

    /// Columns of a key before the latent: those that are rotated. A latent state has some; where positions
    /// say nothing they are zeros.
    pub(super) fn beside(&self) -> usize {
        if self.rope == 0 { self.kv_rank.min(16) } else { self.rope }
    }

    /// Reads [`LATENT`] for `heads` query heads; absent fields are as in `default`. The queries of
    /// attention have the width that is returned beside, before they are those of the latent.
    pub(super) fn read(f: &Fields, queries: usize, default: Latent) -> Result<(Latent, Heads), ConfigError> {
        let q_rank = match f.size("q_lora_rank") {
            Given::Value(n) => Some(n),
            Given::Null => None,
            Given::Absent => default.q_rank,
        };
        let size = |name, default| f.size(name).or(default);
        if let Some(n) = f.size("num_key_value_heads").value().filter(|n| *n != queries) {
            let help = format!("this architecture has as many as query heads ({queries})");
            return Err(f.unsupported("num_key_value_heads", n.to_string(), help));
        }
        let latent = Latent {
            q_rank,
            kv_rank: size("kv_lora_rank", default.kv_rank),
            nope: size("qk_nope_head_dim", default.nope),
            rope: size("qk_rope_head_dim", default.rope),
            value: size("v_head_dim", default.value),
            ..default
        };
        if latent.rope != 0 && default.rope == 0 {
            let help = "this architecture has no rotated part, and 0 there".to_string();
            return Err(f.unsupported("qk_rope_head_dim", latent.rope.to_string(), help));
        }
        let dim = latent.nope + latent.rope;
        if latent.rope == 0 && default.rope != 0 || !latent.rope.is_multiple_of(2) {
            return Err(f.invalid("qk_rope_head_dim", &latent.rope, "even, as pairs of elements are rotated".into()));
        }
        if let Some(n) = f.size("qk_head_dim").value().filter(|n| *n != dim) {
            let help =
                format!("this architecture has `qk_nope_head_dim` and `qk_rope_head_dim` together ({dim}) there");
            return Err(f.unsupported("qk_head_dim", n.to_string(), help));
        }
        Ok((latent, Heads { queries, kv: queries, dim }))
    }
}

/// Latent attention over `h`, a row per token.
#[track_caller]
pub(super) fn attention(
    f: &mut Draft,
    (a, l): (&Attention, &Latent),
    spec: Norm,
    h: Value,
    kv: Value,
    positions: Value,
    rope: Option<Value>,
) -> Value {
    let (heads, hidden) = (a.heads.queries, f.facts().hidden);
    let (up, part) = up(f, heads, l);
    let (own, q) = queries(f, l, heads, spec, h);
    let (latent, k) = keys(f, l, spec, h);
    let [own, k] = [own, k].map(|x| match (x, rope) {
        (Some(x), Some(rope)) => Some(f.op(Op::Rope { head_dim: l.rope }, &[x, rope])),
        (x, _) => x,
    });
    let wk = by_heads(f, heads, up[0], part[0], l.kv_rank);
    let mut q = f.op(Op::HeadMatMul { heads, cols: l.kv_rank }, &[q, wk]);
    let mut own = own.unwrap_or_else(|| zeros_of(f, q, heads.saturating_mul(l.beside())));
    let k = k.unwrap_or_else(|| zeros_of(f, latent, l.beside()));
    if let Some(tuning) = &a.tuning {
        [q, own] = tuned(f, tuning, [q, own], positions);
    }
    let kv = f.op(Op::KvAppend, &[kv, k, latent, positions]);
    let y = f.op(Op::LatentAttention { heads, scale: F32::new(a.scale) }, &[q, own, kv, positions]);
    let wv = by_heads(f, heads, up[1], part[1], l.value);
    let y = f.op(Op::HeadMatMul { heads, cols: l.value }, &[y, wv]);
    let y = gated(f, (a.gate, a.gate_act), None, h, y, [heads, l.value]);
    let out = f.matrix(ATTN_OUT, [hidden, heads.saturating_mul(l.value)]);
    let y = f.matmul(y, out);
    if !l.bias {
        return y;
    }
    let b = f.bias(ATTN_OUT, hidden);
    f.add(y, b)
}

/// What makes keys and values of the latent: the matrices, and the rows of a head in each.
fn up(f: &mut Draft, heads: usize, l: &Latent) -> ([Value; 2], [Run; 2]) {
    if f.stores(K_UP, Kind::Matrix) {
        let k = f.weight(K_UP, Kind::Matrix, &[heads, l.kv_rank, l.nope]);
        let v = f.weight(V_UP, Kind::Matrix, &[heads, l.value, l.kv_rank]);
        let own = |rows| Run { run: rows, start: 0, len: rows, turned: false };
        return ([k, v].map(|w| f.op(Op::Flatten, &[w])), [own(l.kv_rank), own(l.value)]);
    }
    let both = f.matrix(KV_UP, [heads.saturating_mul(l.nope + l.value), l.kv_rank]);
    let part = |start, len, turned| Run { run: l.nope + l.value, start, len, turned };
    ([both; 2], [part(0, l.nope, true), part(l.nope, l.value, false)])
}

/// As many columns of zeros as are asked for, of rows that have no fewer.
fn zeros_of(f: &mut Draft, x: Value, len: usize) -> Value {
    let x = f.op(Op::SliceCols { start: 0, len }, &[x]);
    scaled(f, x, Some(0.0))
}

/// Queries of all heads: those to be rotated, if there are any, and the others.
fn queries(f: &mut Draft, l: &Latent, heads: usize, spec: Norm, h: Value) -> (Option<Value>, Value) {
    let (hidden, dim) = (f.facts().hidden, l.nope + l.rope);
    let rows = heads.saturating_mul(dim);
    let (x, w) = match l.q_rank {
        None => (h, f.matrix(ATTN_Q, [rows, hidden])),
        Some(rank) => {
            let x = linear(f, Q_DOWN, [rank, hidden], l.bias, h);
            let x = norm(f, Q_DOWN_NORM, Norm { eps: l.eps, ..spec }, x, rank);
            (x, f.matrix(Q_UP, [rows, rank]))
        }
    };
    if l.rope == 0 {
        return (None, f.matmul(x, w));
    }
    let rotated = f.op(Op::PickRows { run: dim, start: l.nope, len: l.rope, pairs: pairs(l) }, &[w]);
    let rest = f.op(Op::PickRows { run: dim, start: 0, len: l.nope, pairs: 0 }, &[w]);
    (Some(f.matmul(x, rotated)), f.matmul(x, rest))
}

/// The latent, and the key of all heads that is to be rotated, if there is one.
fn keys(f: &mut Draft, l: &Latent, spec: Norm, h: Value) -> (Value, Option<Value>) {
    let spec = Norm { eps: l.eps, ..spec };
    if l.rope == 0 {
        let latent = linear(f, KV_DOWN, [l.kv_rank, f.facts().hidden], l.bias, h);
        let latent = norm(f, KV_DOWN_NORM, spec, latent, l.kv_rank);
        return (scaled(f, latent, l.factor), None);
    }
    let down = f.matrix(KV_DOWN, [l.kv_rank + l.rope, f.facts().hidden]);
    let bias = l.bias.then(|| f.bias(KV_DOWN, l.kv_rank + l.rope));
    let in_order = Op::PickRows { run: l.rope, start: 0, len: l.rope, pairs: pairs(l) };
    let [c, r] = split_rows(f, down, [l.kv_rank, l.rope]);
    let r = f.op(in_order.clone(), &[r]);
    let (mut latent, mut k) = (f.matmul(h, c), f.matmul(h, r));
    if let Some(bias) = bias {
        let [of_latent, of_key] = split_rows(f, bias, [l.kv_rank, l.rope]);
        latent = f.add(latent, of_latent);
        let of_key = f.op(in_order, &[of_key]);
        k = f.add(k, of_key);
    }
    let latent = norm(f, KV_DOWN_NORM, spec, latent, l.kv_rank);
    (scaled(f, latent, l.factor), Some(k))
}

/// Rows of a rotated part that are stored as neighbours.
fn pairs(l: &Latent) -> usize {
    if l.interleaved { l.rope } else { 0 }
}
