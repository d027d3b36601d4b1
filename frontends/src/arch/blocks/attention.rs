//! Blocks that architectures share: a function each, that asks for its weights where it uses them.

use crate::arch::blocks::attention_gates::{Gate, gated};
use crate::arch::blocks::attention_scores::{Distance, Scoring, attended, clipped};
use crate::arch::blocks::disentangled_attention::{self, Near};
use crate::arch::blocks::lifter::Draft;
use crate::arch::blocks::names::{
    ATTN_K, ATTN_K_NORM, ATTN_OUT, ATTN_OUT_BIAS, ATTN_OUT_NORM, ATTN_Q, ATTN_Q_BIAS, ATTN_Q_NORM, ATTN_QKV, ATTN_V,
    ATTN_V_BIAS, Kind, Part,
};
use crate::arch::blocks::weight_forms::{halves, run_parts, split_rows, transposed};
use crate::config::common::Heads;
use llmcc_ir::graph::{F32, Op, UnaryOp, Value};

/// RMSNorm or LayerNorm.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Norm {
    /// Added to the mean square.
    pub eps: f32,
    /// The mean is subtracted first: LayerNorm.
    pub center: bool,
    /// What is normalized is multiplied by a gain.
    pub gain: bool,
    /// The gain is one more than what is stored.
    pub from_one: bool,
    /// A bias is added in the end.
    pub bias: bool,
}

impl Norm {
    /// RMSNorm with a gain.
    pub(crate) fn rms(eps: f32) -> Norm {
        Norm { eps, center: false, gain: true, from_one: false, bias: false }
    }

    /// LayerNorm with gain and bias.
    pub(crate) fn layer(eps: f32) -> Norm {
        Norm { center: true, bias: true, ..Norm::rms(eps) }
    }
}

/// Sizes of latent attention.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Latent {
    /// Width of the row that queries are made of; `None` = of the input itself.
    pub q_rank: Option<usize>,
    /// Width of the latent.
    pub kv_rank: usize,
    /// Elements of a query and key head that are not rotated.
    pub nope: usize,
    /// Elements that are, keys having them in common; none where positions say nothing.
    pub rope: usize,
    /// Elements of a value head; at most `nope + rope`.
    pub value: usize,
    /// Neighbours are rotated, not halves.
    pub interleaved: bool,
    /// Biases on what makes the latent (and the row that queries are made of).
    pub bias: bool,
    /// Multiplies the latent.
    pub factor: Option<f32>,
    /// Added to the mean squares of what is short.
    pub eps: f32,
    /// Keys are made of the latent alone, and nothing is rotated: `nope` is all of a head, and what
    /// would be the rotated key is `rope` zeros.
    pub whole: bool,
    /// The rotated key is normalized before it is rotated.
    pub key_norm: bool,
}

/// What an attention block is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Attention {
    /// Heads.
    pub heads: Heads,
    /// Multiplies scores.
    pub scale: f32,
    /// Q, K and V are stored as one matrix: all queries, all keys, all values.
    pub fused: bool,
    /// Stored as one, they are so group by group: for each KV head its queries, its key, its value.
    pub by_group: bool,
    /// Stored as one, they are so in this many parts: of each its queries, its values, its keys.
    pub parts: Option<usize>,
    /// Matrices are stored `[in, out]`.
    pub transposed: bool,
    /// So many of a head's rows are for rotating neighbours; 0: halves are rotated.
    pub neighbours: usize,
    /// Multiplies what heads found.
    pub gate: Option<Gate>,
    /// Activation of the gate.
    pub gate_act: UnaryOp,
    /// Biases on Q, K and V.
    pub qkv_bias: bool,
    /// Bias on the output.
    pub out_bias: bool,
    /// The same, stored as a tensor that is no module's bias.
    pub bare_bias: bool,
    /// What heads found is normalized so before the output's matrix.
    pub out_norm: Option<Norm>,
    /// What each head found is normalized, without gains, before the gate.
    pub found_norm: bool,
    /// Values are the keys before their norm and rotation.
    pub value_is_key: bool,
    /// Each head of values is normalized, without gains.
    pub value_norm: bool,
    /// Elements of a head of values, if not those of a key; not of matrices by groups.
    pub value_dim: Option<usize>,
    /// Multiplies values.
    pub value_scale: Option<f32>,
    /// Norm of Q and K.
    pub qk_norm: Option<QkNorm>,
    /// Queries are multiplied by a number that grows with the position.
    pub tuning: Option<Tuning>,
    /// The rotary table, by its number; `None` = positions are not rotated.
    pub rotary: Option<usize>,
    /// Sliding window.
    pub window: Option<usize>,
    /// Scores are `cap·tanh(score/cap)`.
    pub softcap: Option<f32>,
    /// A learned sink for each head, one more score.
    pub sinks: bool,
    /// What is added to scores by the distance of the key.
    pub distance: Option<Distance>,
    /// Distances have keys and queries of their own; what follows but for biases, `value_dim` and what
    /// becomes of the result means nothing then.
    pub near: Option<Near>,
    /// Biases of queries and of values, stored as tensors that are no module's.
    pub bare_biases: bool,
    /// The window is a chunk.
    pub chunked: bool,
    /// Queries, keys and values are no larger than this.
    pub clip: Option<f32>,
    /// Whether a token sees nothing after it.
    pub causal: bool,
    /// It is differential, with this number to begin with: values are those of two heads.
    pub differential: Option<f32>,
    /// Keys and values are made of one row; the rest but `heads`, `scale`, `rotary`, `tuning`,
    /// `head_tuning`, `sinks` and a gate, if not one for each head, means nothing then.
    pub latent: Option<Latent>,
    /// Queries of latent attention are multiplied by a number that grows with the position, a learned
    /// one for each head.
    pub head_tuning: bool,
}

impl Attention {
    /// Without biases, norms or scale of its own.
    pub(crate) fn plain(heads: Heads, window: Option<usize>) -> Attention {
        let scale = heads.scale();
        Attention {
            heads,
            scale,
            fused: false,
            by_group: false,
            parts: None,
            transposed: false,
            neighbours: 0,
            gate: None,
            gate_act: UnaryOp::Sigmoid,
            qkv_bias: false,
            out_bias: false,
            bare_bias: false,
            out_norm: None,
            found_norm: false,
            value_is_key: false,
            value_norm: false,
            value_dim: None,
            value_scale: None,
            qk_norm: None,
            tuning: None,
            rotary: Some(0),
            window,
            softcap: None,
            sinks: false,
            distance: None,
            near: None,
            bare_biases: false,
            chunked: false,
            clip: None,
            causal: true,
            differential: None,
            latent: None,
            head_tuning: false,
        }
    }
}

impl Attention {
    /// Elements of a head of values.
    pub(crate) fn value_dim(&self) -> usize {
        self.value_dim.unwrap_or(self.heads.dim)
    }
}

/// What the norm of queries and keys takes together, and where it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum QkNorm {
    /// Each head, all with the same gains.
    Head,
    /// The whole row.
    Row,
    /// Each head, with gains of its own but no bias, `[heads, dim]`.
    Heads,
    /// The same, each head's gains being a tensor.
    HeadsApart,
    /// Each head, all with the same gains, after the rotation.
    HeadAfter,
    /// Each head, without gains.
    Bare,
    /// Each head that is rotated, after the rotation, without gains.
    BareAfter,
}

impl QkNorm {
    /// Rotation comes first.
    fn after(self) -> bool {
        match self {
            QkNorm::Head | QkNorm::Row | QkNorm::Heads | QkNorm::HeadsApart | QkNorm::Bare => false,
            QkNorm::HeadAfter | QkNorm::BareAfter => true,
        }
    }
}

/// What multiplies queries, by their positions `p`: `1 + beta·ln(1 + ⌊(p + shift)/step⌋)`, which
/// keeps attention over long contexts from flattening (arXiv 2501.19399).
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Tuning {
    /// Weight of the logarithm.
    pub beta: f64,
    /// Added to positions.
    pub shift: usize,
    /// Positions of one step.
    pub step: usize,
    /// It is `(1 + (p + shift)/step)^beta` instead.
    pub power: bool,
}

impl Tuning {
    /// The factors of positions `0..count`.
    fn factors(&self, count: usize) -> Vec<f32> {
        let step = self.step.max(1);
        let factor = |p: usize| match self.power {
            false => 1.0 + self.beta * libm::log(1.0 + (p / step) as f64),
            true => libm::exp(self.beta * libm::log1p(p as f64 / step as f64)),
        };
        (self.shift..count.saturating_add(self.shift)).map(|p| factor(p) as f32).collect()
    }
}

/// RMSNorm or LayerNorm over runs of `width` columns.
#[track_caller]
pub(crate) fn norm(f: &mut Draft, part: Part, spec: Norm, x: Value, width: usize) -> Value {
    let Norm { eps, center, gain, from_one, bias } = spec;
    let gain = gain.then(|| {
        let gain = f.weight(part, Kind::Gain, &[width]);
        if !from_one {
            return gain;
        }
        let one = f.scalar(1.0);
        f.add(gain, one)
    });
    let bias = bias.then(|| f.weight(part, Kind::Bias, &[width]));
    let eps = F32::new(eps);
    let x = f.op(if center { Op::Standardize { eps, width } } else { Op::Normalize { eps, width } }, &[x]);
    let x = gain.map_or(x, |gain| f.mul(x, gain));
    bias.map_or(x, |bias| f.add(x, bias))
}

/// `x·wᵀ (+ b)` with a matrix of `shape` `[out, in]`.
#[track_caller]
pub(crate) fn linear(f: &mut Draft, part: Part, shape: [usize; 2], bias: bool, x: Value) -> Value {
    let w = f.matrix(part, shape);
    let b = bias.then(|| f.bias(part, shape[0]));
    product(f, x, w, b)
}

/// A matrix and its bias.
type Linear = (Value, Option<Value>);

/// The matrix and the bias of a part, the matrix perhaps stored transposed.
#[track_caller]
pub(crate) fn stored(f: &mut Draft, part: Part, shape: [usize; 2], bias: bool, turned: bool) -> (Value, Option<Value>) {
    let w = if turned { transposed(f, part, shape) } else { f.matrix(part, shape) };
    (w, bias.then(|| f.bias(part, shape[0])))
}

/// `x·wᵀ (+ b)`
#[track_caller]
pub(crate) fn product(f: &mut Draft, x: Value, w: Value, b: Option<Value>) -> Value {
    let y = f.matmul(x, w);
    b.map_or(y, |b| f.add(y, b))
}

/// Several matrices with biases that are stored one below the other as one.
#[track_caller]
pub(crate) fn parts<const N: usize>(
    f: &mut Draft,
    (w, b): (Value, Option<Value>),
    rows: [usize; N],
) -> [(Value, Option<Value>); N] {
    let w = split_rows(f, w, rows);
    let b = b.map(|b| split_rows(f, b, rows));
    std::array::from_fn(|i| (w[i], b.map(|b| b[i])))
}

/// `x` times a number, if there is one.
pub(crate) fn scaled(f: &mut Draft, x: Value, by: Option<f32>) -> Value {
    by.map_or(x, |by| {
        let by = f.scalar(by);
        f.mul(x, by)
    })
}

/// `cap·tanh(x/cap)`, if there is a cap.
pub(crate) fn capped(f: &mut Draft, x: Value, cap: Option<f32>) -> Value {
    let Some(cap) = cap else { return x };
    let x = scaled(f, x, Some(1.0 / cap));
    let x = f.unary(UnaryOp::Tanh, x);
    scaled(f, x, Some(cap))
}

/// Grouped-query attention over `h`, a row per token; `kv` is its state, `rope` its rotary table.
#[track_caller]
pub(crate) fn attention(
    f: &mut Draft,
    a: &Attention,
    eps: Norm,
    h: Value,
    kv: Value,
    positions: Value,
    rope: Option<Value>,
) -> Value {
    let hidden = f.facts().hidden;
    let ([q, k, v], gate) = projections(f, a, hidden);
    let made = |f: &mut Draft, (w, b): Linear| product(f, h, w, b);
    let by = [q, k];
    let (q, k) = (made(f, q), made(f, k));
    let v = if a.value_is_key { k } else { made(f, v) };
    let v = if a.value_norm { norm(f, ATTN_V, Norm { gain: false, bias: false, ..eps }, v, a.heads.dim) } else { v };
    let v = scaled(f, v, a.value_scale);
    let mut y = match &a.near {
        Some(near) => disentangled_attention::attended(f, (a.heads, a.scale), near, by, [q, k, v], (kv, positions)),
        None => attend(f, a, eps, [q, k, v], kv, positions, rope),
    };
    let gate = gate.map(|(w, b)| product(f, h, w, b));
    if a.found_norm {
        y = norm(f, ATTN_OUT_NORM, Norm { gain: false, bias: false, ..eps }, y, a.value_dim());
    }
    y = gated(f, (a.gate, a.gate_act), gate, h, y, [a.heads.queries, a.value_dim()]);
    let width = a.heads.queries * a.value_dim();
    y = a.out_norm.map_or(y, |spec| norm(f, ATTN_OUT_NORM, spec, y, width));
    let (w, b) = stored(f, ATTN_OUT, [hidden, width], a.out_bias, a.transposed);
    let b = if a.bare_bias { Some(f.weight(ATTN_OUT_BIAS, Kind::Bare, &[hidden])) } else { b };
    product(f, y, w, b)
}

/// The matrices and biases of queries, keys and values, for rotating halves, and those of the gate.
#[track_caller]
fn projections(f: &mut Draft, a: &Attention, hidden: usize) -> ([Linear; 3], Option<Linear>) {
    let Heads { queries, kv, dim } = a.heads;
    let beside = a.gate == Some(Gate::BesideQueries);
    let rows = [if beside { 2 * queries } else { queries } * dim, kv * dim, kv * a.value_dim()];
    let joined = a.fused || a.by_group || a.parts.is_some();
    let all = joined.then(|| [rows.iter().sum(), hidden]);
    let all = all.map(|shape| stored(f, ATTN_QKV, shape, a.qkv_bias, a.transposed));
    let each = match (all, a.parts) {
        (Some((w, b)), Some(count)) => {
            let run = rows[0] / count.max(1);
            let mut part = |i| {
                let mut pick = |w| run_parts(f, w, 3 * run, i * run, run);
                (pick(w), b.map(pick))
            };
            [part(0), part(2), part(1)]
        }
        (Some((w, b)), None) if a.by_group => {
            let group = queries / kv.max(1);
            let mut part = |start, heads| {
                let mut pick = |w| run_parts(f, w, (group + 2) * dim, start * dim, heads * dim);
                (pick(w), b.map(pick))
            };
            [part(0, group), part(group, 1), part(group + 1, 1)]
        }
        (Some(all), None) => parts(f, all, rows),
        (None, _) => {
            let mut one = |i: usize| {
                let part = [ATTN_Q, ATTN_K, ATTN_V][i];
                stored(f, part, [rows[i], hidden], a.qkv_bias, a.transposed)
            };
            let (q, k) = (one(0), one(1));
            [q, k, if a.value_is_key { k } else { one(2) }]
        }
    };
    let [mut q, k, mut v] = each;
    if a.bare_biases {
        q.1 = Some(f.weight(ATTN_Q_BIAS, Kind::Bare, &[rows[0]]));
        v.1 = Some(f.weight(ATTN_V_BIAS, Kind::Bare, &[rows[2]]));
    }
    let half = |f: &mut Draft, (w, b): Linear, start| {
        let mut pick = |w| run_parts(f, w, 2 * dim, start, dim);
        (pick(w), b.map(pick))
    };
    let (q, gate) = if beside { (half(f, q, 0), Some(half(f, q, dim))) } else { (q, None) };
    let turned = |f: &mut Draft, (w, b): (Value, Option<Value>)| match a.neighbours {
        0 => (w, b),
        rotated => (halves(f, w, dim, rotated), b.map(|b| halves(f, b, dim, rotated))),
    };
    ([turned(f, q), turned(f, k), v], gate)
}

/// [`attention`] of projected rows, before the output's projection.
#[track_caller]
pub(crate) fn attend(
    f: &mut Draft,
    a: &Attention,
    eps: Norm,
    [mut q, mut k, mut v]: [Value; 3],
    kv: Value,
    positions: Value,
    rope: Option<Value>,
) -> Value {
    let head_dim = a.heads.dim;
    let normalized = |f: &mut Draft, of, [q, k]: [Value; 2]| {
        let q = qk_norm(f, of, ATTN_Q_NORM, a, a.heads.queries, eps, q);
        [q, qk_norm(f, of, ATTN_K_NORM, a, a.heads.kv, eps, k)]
    };
    if let Some(of) = a.qk_norm.filter(|of| !of.after()) {
        [q, k] = normalized(f, of, [q, k]);
    }
    [q, k, v] = [q, k, v].map(|x| clipped(f, x, a.clip));
    if let Some(rope) = rope {
        q = f.op(Op::Rope { head_dim }, &[q, rope]);
        k = f.op(Op::Rope { head_dim }, &[k, rope]);
    }
    if let Some(of) = a.qk_norm.filter(|of| of.after() && (*of != QkNorm::BareAfter || rope.is_some())) {
        [q, k] = normalized(f, of, [q, k]);
    }
    if let Some(tuning) = &a.tuning {
        [q] = tuned(f, tuning, [q], positions);
    }
    let kv = f.op(Op::KvAppend, &[kv, k, v, positions]);
    let Attention { scale, softcap, sinks, distance, chunked, causal, .. } = *a;
    let scores = Scoring { heads: a.heads.queries, scale, softcap, sinks, distance, chunked, causal };
    attended(f, &scores, q, kv, positions)
}

/// The norm of queries or of keys, `heads` of them.
#[track_caller]
pub(crate) fn qk_norm(
    f: &mut Draft,
    of: QkNorm,
    part: Part,
    a: &Attention,
    heads: usize,
    eps: Norm,
    x: Value,
) -> Value {
    let dim = a.heads.dim;
    let width = match of {
        QkNorm::Row => heads * dim,
        QkNorm::Head | QkNorm::HeadAfter | QkNorm::Heads | QkNorm::HeadsApart | QkNorm::Bare | QkNorm::BareAfter => dim,
    };
    let one_gain = matches!(of, QkNorm::Head | QkNorm::HeadAfter | QkNorm::Row);
    if one_gain && a.neighbours == 0 {
        return norm(f, part, eps, x, width);
    }
    let x = norm(f, part, Norm { gain: false, bias: false, ..eps }, x, width);
    let gains = match of {
        QkNorm::Bare | QkNorm::BareAfter => return x,
        QkNorm::Head | QkNorm::HeadAfter | QkNorm::Row => f.weight(part, Kind::Gain, &[width]),
        QkNorm::Heads => {
            let gains = f.weight(part, Kind::Gain, &[heads, dim]);
            f.op(Op::Flatten, &[gains])
        }
        QkNorm::HeadsApart => {
            let gains: Vec<Value> = (0..heads).map(|i| f.numbered(part, Kind::Gain, i, &[dim])).collect();
            if let [one] = gains[..] { one } else { f.op(Op::ConcatRows, &gains) }
        }
    };
    // In the order that the columns have been brought into.
    let gains = if a.neighbours > 0 { halves(f, gains, dim, a.neighbours) } else { gains };
    f.mul(x, gains)
}

/// Queries times what [`Tuning`] says of their positions.
#[track_caller]
pub(crate) fn tuned<const N: usize>(f: &mut Draft, tuning: &Tuning, q: [Value; N], positions: Value) -> [Value; N] {
    let count = f.max_context();
    let Tuning { beta, shift, step, power } = tuning;
    let kind = if *power { "power" } else { "tuning" };
    let name = format!("$attention.{kind}{beta}_{shift}_{step}");
    let table = f.shared_table("attn.tuning", &name, [count, 1], tuning.factors(count));
    let factors = f.op(Op::EmbedPositions, &[table, positions]);
    q.map(|q| f.op(Op::Combine, &[factors, q]))
}
