//! Kernel level: the executed work.
//!
//! A [`Kernel`] is one launch: a family with its tile sizes, operands with their storage and
//! packing, and for fused work an expression tree applied to each output tile ([`Expr`]) with a
//! place to store it ([`Store`]). A kernel computes work *items* that are independent of each
//! other; all threads of a step share out the items of one kernel, meet at a barrier and go on to
//! the next.
//!
//! Rows belong to the step: `M` = `T` (tokens) or `R` (logits rows), by [`Kernel::rows`]. Matrices
//! of rows are [`RowElem::F32`] (`[M, cols]`), [`RowElem::Q8`] (int8 codes with a scale and a sum
//! per group of columns, for CPUs), [`RowElem::I8`] (the same with scales of 1), or
//! [`RowElem::F16`], [`RowElem::Bf16`] and [`RowElem::Fp8`] (for GPUs; CPUs multiply bf16, too,
//! with bf16 weights).
//!
//! # Meaning
//!
//! - [`Body::Matmul`]: for each segment `s` and lane `l`: `acc_l = x · W_{s,l}ᵀ` (`[M, n_s]`), then
//!   `store(expr(acc…))`. `x` is the operand, after [`Prologue`] if there is one.
//! - [`Body::RowNorm`]: each row: optional gather, optional [`Norm`], optional gain; stored as f32,
//!   rounded to 16 bits, or quantized to int8 or e4m3.
//! - [`Body::Attention`]: as `attention` of the graph level, reading the paged cache.
//! - [`Body::EvictingAttention`]: as at the graph level, over the tokens that a state has, which it updates.
//! - [`Body::Select`], [`Body::SelectWindows`]: the rows of a cache that each token selects.
//! - [`Body::Pointwise`]: segments without accumulators: `store(expr)` for `[M, n]`. It is the
//!   generic path for everything elementwise.
//! - [`Body::Embed`]: rows of a (packed) table by token id.
//! - [`Body::TokenIds`], [`Body::GivenRows`], [`Body::Substitute`],
//!   [`Body::EmbedHashed`]: as at the graph level.
//! - [`Body::RopeTable`]: cosines and sines for the step's positions.
//! - [`Body::Route`]: the experts of each token, with their weights.
//! - [`Body::ExpertMatmul`]: as [`Body::Matmul`], with the matrices of each token's experts.
//! - [`Body::CausalConv`], [`Body::Recurrence`], [`Body::Wkv`],
//!   [`Body::WindowMeans`], [`Body::WindowBounds`]: as at the graph level, the tokens of
//!   a sequence in order, with a state that they update.
//! - [`Body::Sinkhorn`]: square matrices whose rows and columns are brought near a sum of one.
//! - [`Body::AbsMaxScale`]: the largest magnitude of each run of columns.
//! - [`Body::AdapterMatmul`]: as at the graph level, with the adapter of each token's sequence.
//! - [`Body::TopK`]: the most probable tokens of each row of logits, and how much all others weigh.

mod absmax;
mod adapter_matmul;
mod attention;
mod bounds;
mod causal_conv;
mod checked;
#[cfg(any(test, feature = "dummies"))]
mod dummy;
mod embed;
mod embed_hashed;
mod evict;
mod expert_matmul;
mod expr;
mod family;
mod given_rows;
mod matmul;
mod part;
mod pointwise;
mod recurrence;
mod rope_table;
mod route;
mod row_norm;
mod rows;
mod select;
mod sinkhorn;
mod substitute;
#[cfg(test)]
mod tests;
mod token_ids;
mod top_k;
mod window_means;
mod windows;
mod wkv;

pub use absmax::AbsMaxScale;
pub use adapter_matmul::AdapterMatmul;
pub use attention::Attention;
pub use bounds::WindowBounds;
pub use causal_conv::CausalConv;
pub use checked::{Checked, MatrixOperand, RowsOperand};
#[cfg(any(test, feature = "dummies"))]
pub use dummy::Climb;
pub use embed::{Embed, Index};
pub use embed_hashed::EmbedHashed;
pub use evict::EvictingAttention;
pub use expert_matmul::ExpertMatmul;
pub use expr::{Expr, Norm, Segment, Store, lcm};
pub use family::{CHANNELS, Experts, Field, Product, Use};
pub(crate) use family::{Family, Outcome};
pub use given_rows::GivenRows;
pub use matmul::{Matmul, Prologue};
pub use pointwise::Pointwise;
pub use recurrence::Recurrence;
pub use rope_table::RopeTable;
pub use route::Route;
pub use row_norm::RowNorm;
pub use rows::RowElem;
pub use select::Select;
pub use sinkhorn::Sinkhorn;
pub use substitute::Substitute;
pub use token_ids::TokenIds;
pub use top_k::TopK;
pub use window_means::WindowMeans;
pub use windows::SelectWindows;
pub use wkv::Wkv;

use crate::quant::Format;
use crate::state::StateSpec;
use crate::text::{KernelReader, Parsed, Parser};
use crate::ty::Dim;
use part::Parts;

pub use llmcc_abi::{ATTEND_BLOCK, ATTEND_PARTS, ATTEND_SPLIT_TOKENS};

/// Operand number of a kernel: index in [`Kernel::params`].
pub type ParamId = usize;

/// One kernel.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Kernel {
    /// Name, unique in a plan: `<func>.<family><number>`.
    pub name: String,
    /// Kind of its rows: [`Dim::Tokens`] or [`Dim::Rows`].
    pub rows: Dim,
    /// Operands.
    pub params: Vec<Param>,
    /// The computation.
    pub body: Body,
}

/// An operand.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Param {
    /// Name, unique in the kernel.
    pub name: String,
    /// Its kind.
    pub kind: ParamKind,
}

/// Kinds of operands.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ParamKind {
    /// A matrix of rows in an activation buffer. `rows` differs from the kernel's only for the
    /// source of a gather.
    Rows {
        /// `T` or `R`.
        rows: Dim,
        /// Columns.
        cols: usize,
        /// Element storage.
        elem: RowElem,
    },
    /// A packed weight matrix `[n, k]`.
    Matrix {
        /// Rows (outputs).
        n: usize,
        /// Columns (inputs).
        k: usize,
        /// Storage.
        format: Format,
    },
    /// An f32 weight vector.
    Vector {
        /// Elements.
        len: usize,
    },
    /// The pages or slots of a state.
    State(StateSpec),
}

impl ParamKind {
    /// The state, if it is one.
    pub const fn state(&self) -> Option<&StateSpec> {
        match self {
            ParamKind::State(spec) => Some(spec),
            ParamKind::Rows { .. } | ParamKind::Matrix { .. } | ParamKind::Vector { .. } => None,
        }
    }
}

family::families! {
    ($)
    /// Matrix products of one input, with fused epilogues.
    Matmul "matmul" "matmul";
    /// Row-wise normalization and/or quantization.
    RowNorm "row_norm" "norm";
    /// Attention over the paged cache.
    Attention "attention" "attention";
    /// Attention to a cache that drops tokens.
    EvictingAttention "evicting_attention" "evicting";
    /// Elementwise work.
    Pointwise "pointwise" "pointwise";
    /// Embedding lookup.
    Embed "embed" "embed";
    /// RoPE cosines and sines.
    RopeTable "rope_table" "rope_table";
    /// The rows of a cache that an indexer selects.
    Select "select" "select";
    /// The windows of a cache that queries select.
    SelectWindows "select_windows" "select_windows";
    /// The experts of each token.
    Route "route" "route";
    /// Products with the matrices of each token's experts.
    ExpertMatmul "expert_matmul" "experts";
    /// The most probable tokens.
    TopK "top_k" "top_k";
    /// Convolutions over time.
    CausalConv "causal_conv" "conv";
    /// Linear recurrences.
    Recurrence "recurrence" "recurrence";
    /// Means with weights that decay.
    Wkv "wkv" "wkv";
    /// Means of windows of tokens.
    WindowMeans "window_means" "windows";
    /// Bounds of windows of tokens.
    WindowBounds "window_bounds" "bounds";
    /// Square matrices, balanced.
    Sinkhorn "sinkhorn" "sinkhorn";
    /// Largest magnitudes.
    AbsMaxScale "absmax_scale" "absmax";
    /// Products with the matrices of each sequence's adapter.
    AdapterMatmul "adapter_matmul" "adapter";
    /// Ids of tokens as numbers.
    TokenIds "token_ids" "ids";
    /// Rows that come with the tokens.
    GivenRows "given_rows" "given";
    /// Rows given in place of rows of some tokens.
    Substitute "substitute" "substitute";
    /// Look-ups by hashes of several ids.
    EmbedHashed "embed_hashed" "hashed";
  in tests:
    /// A newcomer: rows with steps that the tokens of their sequence climb, see `dummy.rs`.
    Climb "climb" "climb";
}
