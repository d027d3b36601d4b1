//! Latent attention (DeepSeek-V2, arXiv 2405.04434): keys and values of all heads are made of one
//! short row per token, the latent, beside which one rotated key serves all heads.
//!
//! Here it is attention as any other, with a KV head for each query head: a head's columns are its
//! rotated part, then the rest, then zeros, so that queries, keys and values are as wide and one
//! rotation of heads in part serves both. Matrices get rows of zeros for that when they are packed.
//! Keys are the sum of two products, of the latent and of the input, whose rows for the rotated part
//! are repeated for every head.

pub(super) use super::blocks::Latent;
use super::blocks::{Attention, Norm, linear, norm, tuned};
use super::lifter::Draft;
use super::names::{ATTN_OUT, ATTN_Q, Part, Table};
use super::weights::{run_parts, split_rows};
use crate::config::ConfigError;
use crate::config::common::Heads;
use crate::config::fields::{Accepts, Field, Fields, Given};
use llmcc_ir::graph::{F32, Op, Value};

const Q_DOWN: Part = Part("attn.q_down");
const Q_DOWN_NORM: Part = Part("attn.q_down_norm");
const Q_UP: Part = Part("attn.q_up");
const KV_DOWN: Part = Part("attn.kv_down");
const KV_DOWN_NORM: Part = Part("attn.kv_down_norm");
const KV_UP: Part = Part("attn.kv_up");

/// What checkpoints of Transformers call its tensors. Before
/// [`HUGGING_FACE`](super::names::HUGGING_FACE).
pub(super) const NAMES: Table = &[
    (Q_DOWN, "model.layers.{}.self_attn.q_a_proj"),
    (Q_DOWN_NORM, "model.layers.{}.self_attn.q_a_layernorm"),
    (Q_UP, "model.layers.{}.self_attn.q_b_proj"),
    (KV_DOWN, "model.layers.{}.self_attn.kv_a_proj_with_mqa"),
    (KV_DOWN_NORM, "model.layers.{}.self_attn.kv_a_layernorm"),
    (KV_UP, "model.layers.{}.self_attn.kv_b_proj"),
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
];

impl Latent {
    /// Reads [`LATENT`] for `heads` query heads; absent fields are as in `default`. The heads of
    /// attention have the width that is returned beside.
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
        let dim = latent.nope + latent.rope;
        if latent.value > dim || latent.value == 0 {
            return Err(f.invalid("v_head_dim", &latent.value, format!("from 1 to the size of a key head ({dim})")));
        }
        if !latent.rope.is_multiple_of(2) {
            return Err(f.invalid("qk_rope_head_dim", &latent.rope, "even, as pairs of elements are rotated".into()));
        }
        Ok((latent, Heads { queries, kv: queries, dim }))
    }
}

/// Rows of a matrix, for each head so many.
#[derive(Clone, Copy)]
struct Rows {
    of: Value,
    /// Of a head.
    len: usize,
    /// All heads have the same.
    shared: bool,
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
    let (heads, dim, hidden) = (a.heads.queries, a.heads.dim, f.facts().hidden);
    let mut q = queries(f, l, heads, spec, h);
    let (latent, mut k) = keys(f, l, heads, spec, h);
    let run = l.nope + l.value;
    let up = f.matrix(KV_UP, [heads.saturating_mul(run), l.kv_rank]);
    let of_keys = run_parts(f, up, run, 0, l.nope);
    let of_keys = Rows { of: in_f32(f, of_keys), len: l.nope, shared: false };
    let nothing = zeros(f, of_keys, l.rope);
    let wk = head_by_head(f, heads, &[nothing, of_keys]);
    let of_values = run_parts(f, up, run, l.nope, l.value);
    let wv = widened(f, (of_values, l.value), heads, dim);
    let own = f.matmul(latent, wk);
    k = f.add(k, own);
    let v = f.matmul(latent, wv);
    if let Some(rope) = rope {
        q = f.op(Op::Rope { head_dim: dim }, &[q, rope]);
        k = f.op(Op::Rope { head_dim: dim }, &[k, rope]);
    }
    if let Some(tuning) = &a.tuning {
        q = tuned(f, tuning, q, positions);
    }
    let kv = f.op(Op::KvAppend, &[kv, k, v, positions]);
    let op = Op::Attention { heads, scale: F32::new(a.scale), softcap: F32::new(0.0), causal: true };
    let y = f.op(op, &[q, kv, positions]);
    let out = f.matrix(ATTN_OUT, [hidden, heads.saturating_mul(l.value)]);
    let columns = f.op(Op::Transpose, &[out]);
    let columns = widened(f, (columns, l.value), heads, dim);
    let out = f.op(Op::Transpose, &[columns]);
    let y = f.matmul(y, out);
    if !l.bias {
        return y;
    }
    let b = f.bias(ATTN_OUT, hidden);
    f.add(y, b)
}

/// Queries of all heads, not rotated yet.
fn queries(f: &mut Draft, l: &Latent, heads: usize, spec: Norm, h: Value) -> Value {
    let (hidden, dim) = (f.facts().hidden, l.nope + l.rope);
    let rows = heads.saturating_mul(dim);
    let (x, w) = match l.q_rank {
        None => (h, f.matrix(ATTN_Q, [rows, hidden])),
        Some(rank) => {
            let x = linear(f, Q_DOWN, [rank, hidden], l.bias, h);
            let x = norm(f, Q_DOWN_NORM, of_latent(spec), x, rank);
            (x, f.matrix(Q_UP, [rows, rank]))
        }
    };
    let pairs = if l.interleaved { l.rope } else { 0 };
    let rotated = f.op(Op::PickRows { run: dim, start: l.nope, len: l.rope, pairs }, &[w]);
    let rest = run_parts(f, w, dim, 0, l.nope);
    let parts = [(rotated, l.rope), (rest, l.nope)].map(|(of, len)| Rows { of, len, shared: false });
    let w = head_by_head(f, heads, &parts);
    f.matmul(x, w)
}

/// The latent, and keys of all heads as far as they are rotated, zero elsewhere.
fn keys(f: &mut Draft, l: &Latent, heads: usize, spec: Norm, h: Value) -> (Value, Value) {
    let hidden = f.facts().hidden;
    let down = f.matrix(KV_DOWN, [l.kv_rank + l.rope, hidden]);
    let bias = l.bias.then(|| f.bias(KV_DOWN, l.kv_rank + l.rope));
    let pairs = if l.interleaved { l.rope } else { 0 };
    let in_order = Op::PickRows { run: l.rope, start: 0, len: l.rope, pairs };
    let [c, r] = split_rows(f, down, [l.kv_rank, l.rope]);
    let mut latent = f.matmul(h, c);
    let shared = f.op(in_order.clone(), &[r]);
    let shared = Rows { of: in_f32(f, shared), len: l.rope, shared: true };
    let nothing = zeros(f, shared, l.nope);
    let repeated = head_by_head(f, heads, &[shared, nothing]);
    let mut k = f.matmul(h, repeated);
    if let Some(bias) = bias {
        let [of_latent, of_key] = split_rows(f, bias, [l.kv_rank, l.rope]);
        latent = f.add(latent, of_latent);
        let of_key = f.op(in_order, &[of_key]);
        let of_key = Rows { of: in_f32(f, of_key), len: l.rope, shared: true };
        let none = zeros(f, of_key, l.nope);
        // A vector shorter than the row is repeated.
        let head = f.op(Op::ConcatRows, &[of_key.of, none.of]);
        k = f.add(k, head);
    }
    (norm(f, KV_DOWN_NORM, of_latent(spec), latent, l.kv_rank), k)
}

/// The norms of what is short have an `eps` of their own, that of no file.
fn of_latent(spec: Norm) -> Norm {
    Norm { eps: 1e-6, ..spec }
}

/// The same numbers in f32, as zeros are.
fn in_f32(f: &mut Draft, w: Value) -> Value {
    let one = f.scalar(1.0);
    f.mul(w, one)
}

/// Rows of heads one below the other: of each head its rows of every part.
fn head_by_head(f: &mut Draft, heads: usize, parts: &[Rows]) -> Value {
    let mut all = vec![];
    for h in 0..heads {
        for part in parts {
            let own = |f: &mut Draft| f.op(Op::SliceRows { start: h * part.len, len: part.len }, &[part.of]);
            all.push(if part.shared { part.of } else { own(f) });
        }
    }
    f.op(Op::ConcatRows, &all)
}

/// `w` has `rows.1` rows for each head: the same, followed by rows of zeros up to `dim`.
fn widened(f: &mut Draft, rows: (Value, usize), heads: usize, dim: usize) -> Value {
    let (of, len) = rows;
    if len == dim {
        return of;
    }
    let own = Rows { of: in_f32(f, of), len, shared: false };
    let nothing = zeros(f, own, dim - len);
    head_by_head(f, heads, &[own, nothing])
}

/// `n` rows of zeros, as long as those of `like`, which are f32.
fn zeros(f: &mut Draft, like: Rows, n: usize) -> Rows {
    let (have, start) = (like.len, 0);
    let nothing = f.scalar(0.0);
    let first = f.op(Op::SliceRows { start, len: have }, &[like.of]);
    let block = f.mul(first, nothing);
    let mut parts = vec![block; n / have];
    if !n.is_multiple_of(have) {
        parts.push(f.op(Op::SliceRows { start, len: n % have }, &[block]));
    }
    let of = match parts[..] {
        [one] => one,
        _ => f.op(Op::ConcatRows, &parts),
    };
    Rows { of, len: n, shared: true }
}
