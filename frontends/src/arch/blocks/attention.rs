//! Blocks that architectures share: a function each, that asks for its weights where it uses them.

use crate::arch::blocks::attention_gates::{Gate, gated};
use crate::arch::blocks::attention_scores::{Distance, Scoring, attended, clipped};
use crate::arch::blocks::disentangled_attention::{self, Near};
use crate::arch::blocks::indexer::Indexer;
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
    /// A gain multiplies the normalized rows.
    pub gain: bool,
    /// The gain is the stored value plus one.
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
    /// Biases on the projections to the latent (and to the row that queries are made of).
    pub bias: bool,
    /// Multiplies the latent.
    pub factor: Option<f32>,
    /// Added to the mean squares of the short rows.
    pub eps: f32,
    /// Keys are made of the latent alone, and nothing is rotated: `nope` is all of a head, and the
    /// `rope` elements of the rotated key are zeros.
    pub whole: bool,
    /// The rotated key is normalized before it is rotated.
    pub key_norm: bool,
    /// Queries are multiplied by a factor that grows with the position, learned for each head.
    pub head_tuning: bool,
    /// The tokens that are read, where that is not all of them.
    pub indexer: Option<Indexer>,
}

/// An attention block.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Attention {
    /// Heads.
    pub heads: Heads,
    /// Multiplies scores.
    pub scale: f32,
    /// Index of the rotary table; `None`: positions are not rotated.
    pub rotary: Option<usize>,
    /// Sliding window.
    pub window: Option<usize>,
    /// A token sees no later token.
    pub causal: bool,
    /// A learned sink for each head, one more score.
    pub sinks: bool,
    /// Queries are multiplied by a factor that grows with the position.
    pub tuning: Option<Tuning>,
    /// Multiplies the output of the heads.
    pub gate: Option<Gate>,
    /// Activation of the gate.
    pub gate_act: UnaryOp,
    /// How queries, keys and values are made.
    pub form: Form,
}

/// How queries, keys and values are made.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Form {
    /// Each by a product with the input.
    Heads(HeadForm),
    /// Keys and values from one short row.
    Latent(Latent),
}

/// Queries, keys and values as products with the input.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HeadForm {
    /// How the matrices of queries, keys and values are stored.
    pub projection: Projection,
    /// Matrices are stored `[in, out]`.
    pub transposed: bool,
    /// Rows of a head that are stored for rotating neighbours; 0: halves are rotated.
    pub neighbours: usize,
    /// Biases on queries, keys and values.
    pub qkv_bias: bool,
    /// Bias on the output.
    pub out_bias: bool,
    /// Biases that are stored as tensors of no module.
    pub bare_bias: BareBias,
    /// Differences between values and keys.
    pub values: Values,
    /// Norm of queries and keys.
    pub qk_norm: Option<QkNorm>,
    /// Norm of the heads' output, before the output's matrix.
    pub out_norm: Option<OutNorm>,
    /// How scores are made.
    pub scores: ScoreForm,
}

/// How the matrices of queries, keys and values are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Projection {
    /// A matrix for each.
    Apart,
    /// One matrix: all queries, all keys, all values.
    Fused,
    /// One matrix, group by group: for each KV head its queries, its key, its value.
    ByGroup,
    /// One matrix in this many parts: of each its queries, its values, its keys.
    Parts(usize),
}

/// Biases that are stored as tensors of no module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BareBias {
    /// None.
    Absent,
    /// The bias of the output.
    Out,
    /// The biases of queries and of values.
    QueriesAndValues,
}

/// Differences between values and keys.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Values {
    /// Elements of a head, if other than of a key; for [`Projection::Apart`] and [`Projection::Fused`].
    pub dim: Option<usize>,
    /// Multiplies values.
    pub scale: Option<f32>,
    /// Each head is normalized, without gains.
    pub norm: bool,
    /// Values are the keys before their norm and rotation.
    pub is_key: bool,
}

/// Norm of the heads' output.
#[derive(Clone, Copy, Debug)]
pub(crate) enum OutNorm {
    /// Norm of the whole row.
    Row(Norm),
    /// Norm of each head, without gains, before the gate.
    Heads,
}

/// How scores are made.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ScoreForm {
    /// From queries and keys.
    Dot(DotScores),
    /// From queries and keys, and from those that distances have of their own.
    Near(Near),
    /// Two maps of scores, the second subtracted times a learned factor that starts from this one;
    /// values belong to two heads.
    Differential(f32),
}

/// Scores from queries and keys.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct DotScores {
    /// Scores are `cap·tanh(score/cap)`.
    pub softcap: Option<f32>,
    /// Added to scores by the distance of the key.
    pub distance: Option<Distance>,
    /// The window is a chunk.
    pub chunked: bool,
    /// Limit of the elements of queries, keys and values, up and down.
    pub clip: Option<f32>,
}

impl Attention {
    /// Attention without biases and norms, with the scale `1/√dim`.
    pub(crate) fn plain(heads: Heads, window: Option<usize>) -> Attention {
        let scale = heads.scale();
        Attention {
            heads,
            scale,
            rotary: Some(0),
            window,
            causal: true,
            sinks: false,
            tuning: None,
            gate: None,
            gate_act: UnaryOp::Sigmoid,
            form: Form::Heads(HeadForm::PLAIN),
        }
    }

    /// The form of the heads; of latent attention, which has none, the plain one.
    pub(crate) fn own(&self) -> HeadForm {
        match self.form {
            Form::Heads(form) => form,
            Form::Latent(_) => HeadForm::PLAIN,
        }
    }

    /// Elements of a head of values.
    pub(crate) fn value_dim(&self) -> usize {
        self.own().values.dim.unwrap_or(self.heads.dim)
    }

    /// How the scores are made.
    pub(crate) fn scoring(&self) -> Scoring {
        let DotScores { softcap, distance, chunked, clip: _ } = self.own().dot();
        let (scale, sinks, causal) = (self.scale, self.sinks, self.causal);
        Scoring { heads: self.heads.queries, scale, softcap, sinks, distance, chunked, causal }
    }

    /// Changes attention made of heads; latent attention stays as it is.
    pub(crate) fn change_heads(&mut self, change: impl FnOnce(&mut Attention, &mut HeadForm)) {
        let Form::Heads(mut form) = self.form else { return };
        change(self, &mut form);
        self.form = Form::Heads(form);
    }
}

impl HeadForm {
    /// Without biases and norms.
    pub(crate) const PLAIN: HeadForm = HeadForm {
        projection: Projection::Apart,
        transposed: false,
        neighbours: 0,
        qkv_bias: false,
        out_bias: false,
        bare_bias: BareBias::Absent,
        values: Values { dim: None, scale: None, norm: false, is_key: false },
        qk_norm: None,
        out_norm: None,
        scores: ScoreForm::Dot(DotScores { softcap: None, distance: None, chunked: false, clip: None }),
    };

    /// The scores from queries and keys; plain where scores are made otherwise.
    pub(crate) fn dot(&self) -> DotScores {
        match self.scores {
            ScoreForm::Dot(scores) => scores,
            ScoreForm::Near(_) | ScoreForm::Differential(_) => DotScores::default(),
        }
    }

    /// Changes the scores from queries and keys.
    pub(crate) fn with_dot(&mut self, change: impl FnOnce(&mut DotScores)) {
        let mut scores = self.dot();
        change(&mut scores);
        self.scores = ScoreForm::Dot(scores);
    }
}

/// The rows that the norm of queries and keys covers, and its place.
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

/// Factor of queries, by their positions `p`: `1 + beta·ln(1 + ⌊(p + shift)/step⌋)`, which keeps
/// attention over long contexts from flattening (arXiv 2501.19399).
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
    /// The factors of positions `0..count`, and how positions name them: `every` and `shift` of
    /// [`Op::EmbedPositions`]. All positions of a step have one factor, so that a table has few rows
    /// (a power grows with each position).
    fn factors(&self, count: usize) -> (Vec<f32>, usize, usize) {
        let (step, end) = (self.step.max(1), count.saturating_add(self.shift));
        if self.power {
            let factor = |p: usize| libm::exp(self.beta * libm::log1p(p as f64 / step as f64)) as f32;
            return ((self.shift..end).map(factor).collect(), 1, 0);
        }
        let factor = |s: usize| (1.0 + self.beta * libm::log(1.0 + s as f64)) as f32;
        ((0..end.div_ceil(step)).map(factor).collect(), step, self.shift)
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
    let (hidden, own) = (f.facts().hidden, a.own());
    let ([q, k, v], gate) = projections(f, a, hidden);
    let made = |f: &mut Draft, (w, b): Linear| product(f, h, w, b);
    let by = [q, k];
    let (q, k) = (made(f, q), made(f, k));
    let v = if own.values.is_key { k } else { made(f, v) };
    let v = if own.values.norm { norm(f, ATTN_V, Norm { gain: false, bias: false, ..eps }, v, a.heads.dim) } else { v };
    let v = scaled(f, v, own.values.scale);
    let mut y = match &own.scores {
        ScoreForm::Near(near) => {
            disentangled_attention::attended(f, (a.heads, a.scale), near, by, [q, k, v], (kv, positions))
        }
        ScoreForm::Dot(_) | ScoreForm::Differential(_) => attend(f, a, eps, [q, k, v], kv, positions, rope),
    };
    let gate = gate.map(|(w, b)| product(f, h, w, b));
    if let Some(OutNorm::Heads) = own.out_norm {
        y = norm(f, ATTN_OUT_NORM, Norm { gain: false, bias: false, ..eps }, y, a.value_dim());
    }
    y = gated(f, (a.gate, a.gate_act), gate, h, y, [a.heads.queries, a.value_dim()]);
    let width = a.heads.queries * a.value_dim();
    if let Some(OutNorm::Row(spec)) = own.out_norm {
        y = norm(f, ATTN_OUT_NORM, spec, y, width);
    }
    let (w, b) = stored(f, ATTN_OUT, [hidden, width], own.out_bias, own.transposed);
    let b = match own.bare_bias {
        BareBias::Out => Some(f.weight(ATTN_OUT_BIAS, Kind::Bare, &[hidden])),
        BareBias::Absent | BareBias::QueriesAndValues => b,
    };
    product(f, y, w, b)
}

/// The matrices and biases of queries, keys and values, for rotating halves, and the gate's.
#[track_caller]
fn projections(f: &mut Draft, a: &Attention, hidden: usize) -> ([Linear; 3], Option<Linear>) {
    let (Heads { queries, kv, dim }, own) = (a.heads, a.own());
    let beside = a.gate == Some(Gate::BesideQueries);
    let rows = [if beside { 2 * queries } else { queries } * dim, kv * dim, kv * a.value_dim()];
    let all = |f: &mut Draft| stored(f, ATTN_QKV, [rows.iter().sum(), hidden], own.qkv_bias, own.transposed);
    let each = match own.projection {
        Projection::Parts(count) => {
            let ((w, b), run) = (all(f), rows[0] / count.max(1));
            let mut part = |i| {
                let mut pick = |w| run_parts(f, w, 3 * run, i * run, run);
                (pick(w), b.map(pick))
            };
            [part(0), part(2), part(1)]
        }
        Projection::ByGroup => {
            let ((w, b), group) = (all(f), queries / kv.max(1));
            let mut part = |start, heads| {
                let mut pick = |w| run_parts(f, w, (group + 2) * dim, start * dim, heads * dim);
                (pick(w), b.map(pick))
            };
            [part(0, group), part(group, 1), part(group + 1, 1)]
        }
        Projection::Fused => {
            let all = all(f);
            parts(f, all, rows)
        }
        Projection::Apart => {
            let mut one = |i: usize| {
                let part = [ATTN_Q, ATTN_K, ATTN_V][i];
                stored(f, part, [rows[i], hidden], own.qkv_bias, own.transposed)
            };
            let (q, k) = (one(0), one(1));
            [q, k, if own.values.is_key { k } else { one(2) }]
        }
    };
    let [mut q, k, mut v] = each;
    if own.bare_bias == BareBias::QueriesAndValues {
        q.1 = Some(f.weight(ATTN_Q_BIAS, Kind::Bare, &[rows[0]]));
        v.1 = Some(f.weight(ATTN_V_BIAS, Kind::Bare, &[rows[2]]));
    }
    let half = |f: &mut Draft, (w, b): Linear, start| {
        let mut pick = |w| run_parts(f, w, 2 * dim, start, dim);
        (pick(w), b.map(pick))
    };
    let (q, gate) = if beside { (half(f, q, 0), Some(half(f, q, dim))) } else { (q, None) };
    let turned = |f: &mut Draft, (w, b): (Value, Option<Value>)| match own.neighbours {
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
    let (head_dim, own, dot) = (a.heads.dim, a.own(), a.own().dot());
    let normalized = |f: &mut Draft, of, [q, k]: [Value; 2]| {
        let q = qk_norm(f, of, ATTN_Q_NORM, a, a.heads.queries, eps, q);
        [q, qk_norm(f, of, ATTN_K_NORM, a, a.heads.kv, eps, k)]
    };
    if let Some(of) = own.qk_norm.filter(|of| !of.after()) {
        [q, k] = normalized(f, of, [q, k]);
    }
    [q, k, v] = [q, k, v].map(|x| clipped(f, x, dot.clip));
    if let Some(rope) = rope {
        q = f.op(Op::Rope { head_dim }, &[q, rope]);
        k = f.op(Op::Rope { head_dim }, &[k, rope]);
    }
    if let Some(of) = own.qk_norm.filter(|of| of.after() && (*of != QkNorm::BareAfter || rope.is_some())) {
        [q, k] = normalized(f, of, [q, k]);
    }
    if let Some(tuning) = &a.tuning {
        [q] = tuned(f, tuning, [q], positions);
    }
    let kv = f.op(Op::KvAppend, &[kv, k, v, positions]);
    attended(f, &a.scoring(), q, kv, positions)
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
    let (dim, own) = (a.heads.dim, a.own());
    let width = match of {
        QkNorm::Row => heads * dim,
        QkNorm::Head | QkNorm::HeadAfter | QkNorm::Heads | QkNorm::HeadsApart | QkNorm::Bare | QkNorm::BareAfter => dim,
    };
    let one_gain = matches!(of, QkNorm::Head | QkNorm::HeadAfter | QkNorm::Row);
    if one_gain && own.neighbours == 0 {
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
    let gains = if own.neighbours > 0 { halves(f, gains, dim, own.neighbours) } else { gains };
    f.mul(x, gains)
}

/// Queries times the factor of [`Tuning`] for their positions.
#[track_caller]
pub(crate) fn tuned<const N: usize>(f: &mut Draft, tuning: &Tuning, q: [Value; N], positions: Value) -> [Value; N] {
    let count = f.max_context();
    let Tuning { beta, shift, step, power } = tuning;
    let kind = if *power { "power" } else { "tuning" };
    let name = format!("$attention.{kind}{beta}_{shift}_{step}");
    let (factors, every, shift) = tuning.factors(count);
    let table = f.shared_table("attn.tuning", &name, [factors.len(), 1], factors);
    let factors = f.op(Op::EmbedPositions { every, shift }, &[table, positions]);
    q.map(|q| f.op(Op::Combine, &[factors, q]))
}
