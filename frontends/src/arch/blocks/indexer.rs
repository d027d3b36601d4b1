//! The indexer of DeepSeek Sparse Attention (DeepSeek-V3.2, arXiv 2512.02556): a few small heads that
//! score every token of the context by a key of its own, so that attention reads the best of them only.
//!
//! A token's score is `Σ_h w_h·max(q_h·k, 0)`, with queries from the same short row as attention's, one
//! key for all heads, and weights from the layer's input. Transformers multiplies scores by the root of
//! the heads' number and size, which is the same for all, and so changes no choice. Nor does the
//! Hadamard transform of the published code, which is orthogonal.

use crate::arch::blocks::head_tuning::tuned_by_heads;
use crate::arch::blocks::lifter::Draft;
use crate::arch::blocks::names::{Kind, Part, Table, names};
use llmcc_ir::graph::{F32, Op, Value};

/// Queries of the indexer.
pub(crate) const INDEX_Q: Part = Part("index.q");
/// Its keys.
pub(crate) const INDEX_K: Part = Part("index.k");
/// Norm of its keys.
pub(crate) const INDEX_K_NORM: Part = Part("index.k_norm");
/// Weights of its heads.
pub(crate) const INDEX_WEIGHTS: Part = Part("index.weights");
/// Norm of the row that its queries are made of, where that is the layer's input.
pub(crate) const INDEX_Q_NORM: Part = Part("index.q_norm");
/// Factors by which its queries grow with the logarithm of the position, one for each head.
pub(crate) const INDEX_TUNING: Part = Part("index.tuning");
/// Factors of its queries at the first position.
pub(crate) const INDEX_TUNING_BIAS: Part = Part("index.tuning_bias");

/// Names of its tensors in Transformers' checkpoints.
pub(crate) const NAMES: Table = names! {
    "model.layers.{}.self_attn.indexer." {
        INDEX_Q => "wq_b", INDEX_K => "wk", INDEX_K_NORM => "k_norm", INDEX_WEIGHTS => "weights_proj",
        INDEX_Q_NORM => "q_input_norm", INDEX_TUNING => "softmax_scaling.scale",
        INDEX_TUNING_BIAS => "softmax_scaling.bias",
    }
};

/// The tokens that a layer's attention reads.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Indexer {
    /// Heads.
    pub heads: usize,
    /// Elements of a query of a head, and of a key.
    pub dim: usize,
    /// Tokens selected.
    pub top: usize,
    /// The last columns of a head are rotated, not the first.
    pub last: bool,
    /// Added to the variance of keys.
    pub eps: f32,
    /// Queries are made of the layer's input and grow with the position, as those of Mistral Large 4.
    pub tuned: bool,
    /// Neighbours are rotated, not halves.
    pub interleaved: bool,
    /// The tokens are those that the last layer with an indexer of its own has selected.
    pub shared: bool,
}

impl Indexer {
    /// That of DeepSeek-V3.2.
    pub(crate) const DEEPSEEK: Indexer = Indexer {
        heads: 64,
        dim: 128,
        top: 2048,
        interleaved: false,
        last: false,
        eps: 1e-6,
        tuned: false,
        shared: false,
    };

    /// Whether it leaves tokens out of the contexts of the model.
    pub(crate) fn selects(&self, f: &Draft) -> bool {
        f.max_context() > self.top
    }
}

/// The inputs of an indexer.
#[derive(Clone, Copy)]
pub(crate) struct Indexed {
    /// The layer's input, normalized.
    pub row: Value,
    /// The short row that queries are made of, and its width, if there is one.
    pub short: Option<(Value, usize)>,
    /// Cosines and sines, and columns of a head that they rotate; `None`: nothing is rotated.
    pub rope: Option<(Value, usize)>,
    /// Positions of the tokens.
    pub positions: Value,
}

/// The numbers of the tokens that each token selects, `[T, top]`.
#[track_caller]
pub(crate) fn selection(f: &mut Draft, of: &Indexer, x: Indexed) -> Value {
    let hidden = f.facts().hidden;
    let Indexer { heads, dim, top, .. } = *of;
    let pairs = x.rope.filter(|_| of.interleaved).map_or(0, |(_, rotated)| rotated);
    let in_order = Op::PickRows { run: dim, start: 0, len: dim, pairs };
    let ordered = |f: &mut Draft, w: Value| if pairs > 0 { f.op(in_order.clone(), &[w]) } else { w };
    let (row, columns) = of_queries(f, of, x);
    let w = f.matrix(INDEX_Q, [heads.saturating_mul(dim), columns]);
    let w = ordered(f, w);
    let mut q = f.matmul(row, w);
    if of.tuned {
        [q] = tuned_by_heads(f, heads, [INDEX_TUNING, INDEX_TUNING_BIAS], [(q, dim)], x.positions);
    }
    let w = f.matrix(INDEX_K, [dim, hidden]);
    let w = ordered(f, w);
    let k = f.matmul(x.row, w);
    let k = standardized(f, (INDEX_K_NORM, of.eps), (k, dim), ordered);
    let [q, k] = [(q, heads), (k, 1)].map(|part| rotated(f, of, x.rope, part));
    let w = f.matrix(INDEX_WEIGHTS, [heads, hidden]);
    let weights = f.matmul(x.row, w);
    let keys = f.latent_kv("index", (dim, dim), None);
    let keys = f.op(Op::KvAppend, &[keys, k, k, x.positions]);
    f.op(Op::Select { heads, top }, &[q, weights, keys, x.positions])
}

/// The row that queries are made of, and its width.
#[track_caller]
fn of_queries(f: &mut Draft, of: &Indexer, x: Indexed) -> (Value, usize) {
    match x.short {
        _ if of.tuned => {
            let hidden = f.facts().hidden;
            (standardized(f, (INDEX_Q_NORM, of.eps), (x.row, hidden), |_, w| w), hidden)
        }
        Some(short) => short,
        None => (f.misfit("selects tokens by queries that are made of a short row"), 0),
    }
}

/// LayerNorm of rows `x` of so many columns; `ordered` puts its weights in their order.
#[track_caller]
fn standardized(
    f: &mut Draft,
    (part, eps): (Part, f32),
    (x, width): (Value, usize),
    ordered: impl Fn(&mut Draft, Value) -> Value,
) -> Value {
    let x = f.op(Op::Standardize { eps: F32::new(eps), width }, &[x]);
    let gain = f.weight(part, Kind::Gain, &[width]);
    let gain = ordered(f, gain);
    let x = f.mul(x, gain);
    let bias = f.weight(part, Kind::Bias, &[width]);
    let bias = ordered(f, bias);
    f.add(x, bias)
}

/// `x`, of so many heads, rotated. Heads that end with what is rotated begin with it here, which changes no score,
/// since queries and keys agree.
#[track_caller]
fn rotated(f: &mut Draft, of: &Indexer, rope: Option<(Value, usize)>, (x, heads): (Value, usize)) -> Value {
    let Some((table, columns)) = rope else { return x };
    let mut x = x;
    if of.last && columns < of.dim {
        let (dim, rest) = (of.dim, of.dim - columns);
        let of_head = |h: usize| (h * dim + rest..(h + 1) * dim).chain(h * dim..h * dim + rest);
        let order = (0..heads).flat_map(of_head).map(|c| c as f32).collect();
        let order = f.shared_constant(&format!("index.order{heads}"), &format!("$index.order{heads}"), order);
        x = f.op(Op::PickCols, &[x, order]);
    }
    f.op(Op::Rope { head_dim: of.dim }, &[x, table])
}
