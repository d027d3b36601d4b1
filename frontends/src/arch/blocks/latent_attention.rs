//! Latent attention (DeepSeek-V2, arXiv 2405.04434): keys and values of all heads are made of one
//! short row per token, the latent, beside which one rotated key serves all heads.
//!
//! Only these two are cached, as one KV head: its keys are the rotated key followed by the latent,
//! its values the latent. The matrix for a head's keys, `W_k`, is applied to the queries instead
//! (`q·(W_k c) = (W_kᵀ q)·c`), and the matrix for its values to the weighted sum (`Σ p·(W_v c) =
//! W_v (Σ p·c)`): two products by heads (the absorbed form, section 2.1.2 of the paper).

pub(crate) use crate::arch::blocks::attention::Latent;
use crate::arch::blocks::attention::{Attention, Norm, linear, norm, product, scaled, tuned};
use crate::arch::blocks::attention_gates::{Gate, gated};
use crate::arch::blocks::head_tuning::tuned_by_heads;
use crate::arch::blocks::indexer::{Indexed, selection as selection_of};
use crate::arch::blocks::lifter::Draft;
use crate::arch::blocks::names::{ATTN_OUT, ATTN_Q, ATTN_SINKS, Kind, Part, Table, names};
use crate::arch::blocks::weight_forms::{Run, by_heads, run_parts, split_rows};
use crate::config::ConfigError;
use crate::config::common::Heads;
use crate::config::dictionary::fields;
use crate::config::fields::{Accepts, Field, Fields, Given};
use llmcc_ir::graph::{F32, Op, Value};

pub(crate) const Q_DOWN: Part = Part("attn.q_down");
pub(crate) const Q_DOWN_NORM: Part = Part("attn.q_down_norm");
pub(crate) const Q_UP: Part = Part("attn.q_up");
pub(crate) const KV_DOWN: Part = Part("attn.kv_down");
pub(crate) const KV_DOWN_NORM: Part = Part("attn.kv_down_norm");
/// Norm of the rotated key.
pub(crate) const KEY_NORM: Part = Part("attn.key_norm");
pub(crate) const KV_UP: Part = Part("attn.kv_up");
/// The part of [`KV_UP`] for keys, transposed for each head, `[heads, kv_rank, nope]`, as GGUF
/// files have it.
pub(crate) const K_UP: Part = Part("attn.k_up");
/// The part of [`KV_UP`] for values, `[heads, value, kv_rank]`.
pub(crate) const V_UP: Part = Part("attn.v_up");

/// Factor of each head's queries per logarithm of the position, `[heads]`…
pub(crate) const TUNING: Part = Part("attn.tuning.scale");
/// … and this more.
pub(crate) const TUNING_BIAS: Part = Part("attn.tuning.bias");

/// Names of its tensors in Transformers' checkpoints. Before
/// [`HUGGING_FACE`](crate::arch::blocks::names::HUGGING_FACE).
pub(crate) const NAMES: Table = names! {
    "model.layers.{}." {
        Q_DOWN => "self_attn.q_a_proj", Q_DOWN_NORM => "self_attn.q_a_layernorm", Q_UP => "self_attn.q_b_proj",
        KV_DOWN => "self_attn.kv_a_proj_with_mqa", KV_DOWN_NORM => "self_attn.kv_a_layernorm",
        KV_UP => "self_attn.kv_b_proj", K_UP => "self_attn.k_b_proj", V_UP => "self_attn.v_b_proj",
    }
};

/// Largest width of a latent, or of a part of a head.
pub(crate) const WIDEST: Accepts = Accepts::Size(1 << 16);

/// The fields that [`Latent::read`] reads.
pub(crate) const LATENT: &[Field] = fields! {
    q_lora_rank: WIDEST, kv_lora_rank: WIDEST, qk_nope_head_dim: WIDEST, qk_rope_head_dim: WIDEST,
    v_head_dim: WIDEST, qk_head_dim: WIDEST,
};

impl Latent {
    /// DeepSeek-V2 and V3.
    pub(crate) const DEEPSEEK: Latent = Latent {
        q_rank: Some(1536),
        kv_rank: 512,
        nope: 128,
        rope: 64,
        value: 128,
        interleaved: true,
        bias: false,
        factor: None,
        eps: 1e-6,
        whole: false,
        key_norm: false,
        head_tuning: false,
        indexer: None,
    };

    /// The same, with the biases and the order of the rotation that a file says.
    pub(crate) fn of(f: &Fields) -> Latent {
        let (bias, interleaved) = (f.flag("attention_bias"), f.flag_or("rope_interleave", true));
        Latent { bias, interleaved, ..Latent::DEEPSEEK }
    }

    /// Queries are made of something short: `q_lora_rank` is not null.
    pub(crate) fn short_queries(f: &Fields) -> Result<(), ConfigError> {
        match f.size("q_lora_rank") {
            Given::Null => Err(f.missing("q_lora_rank")),
            Given::Value(_) | Given::Absent => Ok(()),
        }
    }

    /// Reads [`LATENT`] for `heads` query heads; absent fields are as in `default`. The second
    /// result gives the heads with the queries' width before they become the latent's.
    pub(crate) fn read(f: &Fields, queries: usize, default: Latent) -> Result<(Latent, Heads), ConfigError> {
        let q_rank = match f.size("q_lora_rank") {
            Given::Value(n) => Some(n),
            Given::Null => None,
            Given::Absent => default.q_rank,
        };
        let size = |name, default| f.size(name).or(default);
        if let Some(n) = f.size("num_key_value_heads").value().filter(|n| *n != queries) {
            let help = format!("this architecture expects as many as query heads ({queries})");
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
        let dim = latent.nope.saturating_add(latent.rope);
        let rotates = default.rope > 0;
        if !rotates && latent.rope > 0 {
            let help = "this architecture expects no rotated part, so it must be 0".to_string();
            return Err(f.unsupported("qk_rope_head_dim", latent.rope.to_string(), help));
        }
        if rotates && (latent.rope == 0 || !latent.rope.is_multiple_of(2)) {
            return Err(f.invalid("qk_rope_head_dim", &latent.rope, "even, as pairs of elements are rotated".into()));
        }
        if let Some(n) = f.size("qk_head_dim").value().filter(|n| *n != dim) {
            let help = format!("this architecture expects `qk_nope_head_dim` and `qk_rope_head_dim` together ({dim})");
            return Err(f.unsupported("qk_head_dim", n.to_string(), help));
        }
        // A latent state has some columns before the latent.
        let latent = if rotates { latent } else { Latent { whole: true, rope: latent.nope.min(16), ..latent } };
        Ok((latent, Heads { queries, kv: queries, dim }))
    }
}

/// The inputs of latent attention beside a row.
#[derive(Clone, Copy)]
pub(crate) struct Over {
    /// Another layer has put keys and values into `kv` in this step, and nothing is added to them.
    pub stored: bool,
    /// Keys and values.
    pub kv: Value,
    /// Positions of the tokens.
    pub positions: Value,
    /// Cosines and sines.
    pub rope: Option<Value>,
    /// The tokens that an earlier layer has selected.
    pub selection: Option<Value>,
}

/// Latent attention over `h`, a row per token; and the tokens that are selected, where they are.
#[track_caller]
pub(crate) fn attention(
    f: &mut Draft,
    (a, l): (&Attention, &Latent),
    spec: Norm,
    h: Value,
    over: Over,
) -> (Value, Option<Value>) {
    let Over { stored, kv, positions, rope, selection } = over;
    let (heads, hidden, spec) = (a.heads.queries, f.facts().hidden, Norm { eps: l.eps, ..spec });
    let (up, part) = up(f, heads, l);
    let beside = a.gate == Some(Gate::BesideQueries);
    let Queries { parts: [mut own, mut q], gate, short } = queries(f, (l, beside), heads, spec, h);
    let mut appended = (!stored).then(|| keys(f, l, spec, h, own));
    // Keys and values are products with the latent alone.
    appended = appended.map(|(latent, k)| (f.as_input_of(up[0], latent), k));
    if let Some(rope) = rope {
        own = f.op(Op::Rope { head_dim: l.rope }, &[own, rope]);
        appended = appended.map(|(latent, k)| (latent, f.op(Op::Rope { head_dim: l.rope }, &[k, rope])));
    }
    if l.head_tuning {
        [q, own] = tuned_by_heads(f, heads, [TUNING, TUNING_BIAS], [(q, l.nope), (own, l.rope)], positions);
    }
    let wk = by_heads(f, heads, up[0], part[0], l.kv_rank);
    q = f.op(Op::HeadMatMul { heads, cols: l.kv_rank }, &[q, wk]);
    if let Some(tuning) = &a.tuning {
        [q, own] = tuned(f, tuning, [q, own], positions);
    }
    let kv = appended.map_or(kv, |(latent, k)| f.op(Op::KvAppend, &[kv, k, latent, positions]));
    let selection = selected(f, l, (h, short), (positions, rope), selection);
    let mut operands = vec![q, own, kv, positions];
    operands.extend(selection);
    if a.sinks {
        operands.push(f.weight(ATTN_SINKS, Kind::Bare, &[heads]));
    }
    let scale = F32::new(a.scale);
    let attend = match selection {
        Some(_) => Op::SelectedLatentAttention { heads, scale },
        None => Op::LatentAttention { heads, scale },
    };
    let y = f.op(attend, &operands);
    let wv = by_heads(f, heads, up[1], part[1], l.value);
    let y = f.op(Op::HeadMatMul { heads, cols: l.value }, &[y, wv]);
    let y = gated(f, (a.gate, a.gate_act), gate, h, y, [heads, l.value]);
    let out = f.matrix(ATTN_OUT, [hidden, heads.saturating_mul(l.value)]);
    let y = f.matmul(y, out);
    if !l.bias {
        return (y, selection);
    }
    let b = f.bias(ATTN_OUT, hidden);
    (f.add(y, b), selection)
}

/// The tokens that are read, where that is not all: an earlier layer's, or those of an indexer of the
/// layer's own.
fn selected(
    f: &mut Draft,
    l: &Latent,
    (row, short): (Value, Option<(Value, usize)>),
    (positions, rope): (Value, Option<Value>),
    earlier: Option<Value>,
) -> Option<Value> {
    let indexer = l.indexer.filter(|i| i.selects(f))?;
    match (indexer.shared, earlier) {
        (true, Some(earlier)) => Some(earlier),
        (true, None) => Some(f.misfit("selects the tokens of an earlier layer, and there is none")),
        (false, _) => {
            let rope = rope.map(|rope| (rope, l.rope));
            Some(selection_of(f, &indexer, Indexed { row, short, rope, positions }))
        }
    }
}

/// The matrices that make keys and values of the latent, and the rows of a head in each.
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

/// Queries of all heads, their gate, and the short row that they are made of with its width.
struct Queries {
    parts: [Value; 2],
    gate: Option<Value>,
    short: Option<(Value, usize)>,
}

/// Queries of all heads: those to be rotated, and the others. Where nothing is, the first of the
/// others stand for those, as their keys are zeros. With gates `beside` them both are made of the short
/// row, normalized and as it is, and the gate of a head comes after its queries.
fn queries(f: &mut Draft, (l, beside): (&Latent, bool), heads: usize, spec: Norm, h: Value) -> Queries {
    let hidden = f.facts().hidden;
    let dim = if l.whole { l.nope } else { l.nope + l.rope };
    let run = if beside { dim + l.value } else { dim };
    let rows = heads.saturating_mul(run);
    let (x, w, short) = match l.q_rank {
        None => (h, f.matrix(ATTN_Q, [rows, hidden]), None),
        Some(rank) => {
            let short = linear(f, Q_DOWN, [rank, hidden], l.bias, h);
            let normed = norm(f, Q_DOWN_NORM, spec, short, rank);
            let (x, columns) = match beside {
                true => (f.op(Op::ConcatCols, &[normed, short]), rank.saturating_mul(2)),
                false => (normed, rank),
            };
            (x, f.matrix(Q_UP, [rows, columns]), Some((normed, rank)))
        }
    };
    if l.whole {
        let q = f.matmul(x, w);
        let some = f.op(Op::SliceCols { start: 0, len: heads.saturating_mul(l.rope) }, &[q]);
        return Queries { parts: [some, q], gate: None, short };
    }
    let rotated = f.op(Op::PickRows { run, start: l.nope, len: l.rope, pairs: pairs(l) }, &[w]);
    let rest = f.op(Op::PickRows { run, start: 0, len: l.nope, pairs: 0 }, &[w]);
    let parts = [f.matmul(x, rotated), f.matmul(x, rest)];
    let gate = beside.then(|| {
        let w = run_parts(f, w, run, dim, l.value);
        f.matmul(x, w)
    });
    Queries { parts, gate, short }
}

/// The latent, and the key of all heads that is to be rotated: zeros where nothing is, as many as
/// `own` has for a head.
fn keys(f: &mut Draft, l: &Latent, spec: Norm, h: Value, own: Value) -> (Value, Value) {
    let rotated = if l.whole { 0 } else { l.rope };
    let down = f.matrix(KV_DOWN, [l.kv_rank + rotated, f.facts().hidden]);
    let bias = l.bias.then(|| f.bias(KV_DOWN, l.kv_rank + rotated));
    if l.whole {
        let latent = product(f, h, down, bias);
        let (some, zero) = (f.op(Op::SliceCols { start: 0, len: l.rope }, &[own]), f.scalar(0.0));
        let zeros = f.mul(some, zero);
        return (short(f, l, spec, latent), zeros);
    }
    let in_order = Op::PickRows { run: l.rope, start: 0, len: l.rope, pairs: pairs(l) };
    let [c, r] = split_rows(f, down, [l.kv_rank, l.rope]);
    let r = f.op(in_order.clone(), &[r]);
    let (mut latent, mut k) = (f.matmul(h, c), f.matmul(h, r));
    if let Some(bias) = bias {
        let [of_latent, of_key] = split_rows(f, bias, [l.kv_rank, l.rope]);
        latent = f.add(latent, of_latent);
        let of_key = f.op(in_order.clone(), &[of_key]);
        k = f.add(k, of_key);
    }
    if l.key_norm {
        k = f.op(Op::Normalize { eps: F32::new(l.eps), width: l.rope }, &[k]);
        let gains = f.weight(KEY_NORM, Kind::Gain, &[l.rope]);
        // In the order that the columns have been brought into.
        let gains = f.op(in_order, &[gains]);
        k = f.mul(k, gains);
    }
    (short(f, l, spec, latent), k)
}

/// The latent as it is stored.
fn short(f: &mut Draft, l: &Latent, spec: Norm, latent: Value) -> Value {
    let latent = norm(f, KV_DOWN_NORM, spec, latent, l.kv_rank);
    scaled(f, latent, l.factor)
}

/// Rows of a rotated part that are stored as neighbours.
fn pairs(l: &Latent) -> usize {
    if l.interleaved { l.rope } else { 0 }
}
