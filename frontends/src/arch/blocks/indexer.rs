//! The indexer of DeepSeek Sparse Attention (DeepSeek-V3.2, arXiv 2512.02556): a few small heads that
//! score every token of the context by a key of its own, so that attention reads the best of them only.
//!
//! A token's score is `Σ_h w_h·max(q_h·k, 0)`, with queries from the same short row as attention's, one
//! key for all heads, and weights from the layer's input. Transformers multiplies scores by the root of
//! the heads' number and size, which is the same for all, and so changes no choice. Nor does the
//! Hadamard transform of the published code, which is orthogonal.

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

/// Names of its tensors in Transformers' checkpoints.
pub(crate) const NAMES: Table = names! {
    "model.layers.{}.self_attn.indexer." {
        INDEX_Q => "wq_b", INDEX_K => "wk", INDEX_K_NORM => "k_norm", INDEX_WEIGHTS => "weights_proj",
    }
};

/// Added to the variance of keys.
const EPS: f32 = 1e-6;

/// The tokens that a layer's attention reads.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Indexer {
    /// Heads.
    pub heads: usize,
    /// Elements of a query of a head, and of a key.
    pub dim: usize,
    /// Tokens selected.
    pub top: usize,
    /// Neighbours are rotated, not halves.
    pub interleaved: bool,
    /// The tokens are those that the last layer with an indexer of its own has selected.
    pub shared: bool,
}

impl Indexer {
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
    /// The short row that queries are made of, and its width.
    pub short: (Value, usize),
    /// Cosines and sines, and columns of a head that they rotate.
    pub rope: (Value, usize),
    /// Positions of the tokens.
    pub positions: Value,
}

/// The numbers of the tokens that each token selects, `[T, top]`.
#[track_caller]
pub(crate) fn selection(f: &mut Draft, of: &Indexer, x: Indexed) -> Value {
    let (hidden, (table, rotated)) = (f.facts().hidden, x.rope);
    let Indexer { heads, dim, top, .. } = *of;
    let pairs = if of.interleaved { rotated } else { 0 };
    let in_order = Op::PickRows { run: dim, start: 0, len: dim, pairs };
    let ordered = |f: &mut Draft, w: Value| if pairs > 0 { f.op(in_order.clone(), &[w]) } else { w };
    let w = f.matrix(INDEX_Q, [heads.saturating_mul(dim), x.short.1]);
    let w = ordered(f, w);
    let q = f.matmul(x.short.0, w);
    let w = f.matrix(INDEX_K, [dim, hidden]);
    let w = ordered(f, w);
    let k = f.matmul(x.row, w);
    let k = f.op(Op::Standardize { eps: F32::new(EPS), width: dim }, &[k]);
    let gain = f.weight(INDEX_K_NORM, Kind::Gain, &[dim]);
    let gain = ordered(f, gain);
    let k = f.mul(k, gain);
    let bias = f.weight(INDEX_K_NORM, Kind::Bias, &[dim]);
    let bias = ordered(f, bias);
    let k = f.add(k, bias);
    let [q, k] = [q, k].map(|x| f.op(Op::Rope { head_dim: dim }, &[x, table]));
    let w = f.matrix(INDEX_WEIGHTS, [heads, hidden]);
    let weights = f.matmul(x.row, w);
    let keys = f.latent_kv("index", (dim, dim), None);
    let keys = f.op(Op::KvAppend, &[keys, k, k, x.positions]);
    f.op(Op::Select { heads, top }, &[q, weights, keys, x.positions])
}
