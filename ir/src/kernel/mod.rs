//! Kernel level: what is executed.
//!
//! A [`Kernel`] is one launch: a family with its tile sizes, operands with their storage and packing, and for fused work an expression tree
//! applied to each output tile ([`Expr`]) with a place to store it ([`Store`]). A kernel computes work *items* that are independent of each
//! other; all threads of a step share out the items of one kernel, meet at a barrier and go on to the next.
//!
//! Rows are those of the step: `M` = `T` (tokens) or `R` (logits rows), by [`Kernel::rows`]. Matrices of rows are [`RowElem::F32`] (`[M, cols]`),
//! [`RowElem::Q8`] (int8 codes with a scale and a sum per group of columns: what a CPU multiplies), or [`RowElem::F16`], [`RowElem::Bf16`] and
//! [`RowElem::Fp8`] (what a GPU multiplies).
//!
//! # Meaning
//!
//! - [`Body::Matmul`]: for each segment `s` and lane `l`: `acc_l = x · W_{s,l}ᵀ` (`[M, n_s]`), then `store(expr(acc…))`.
//!   `x` is the operand, after [`Prologue`] if there is one.
//! - [`Body::RowNorm`]: each row: optional gather, optional [`Norm`], optional gain; stored as f32, rounded to 16 bits, or quantized to int8 or e4m3.
//! - [`Body::Attention`]: as `attention` of the graph level, reading the paged cache.
//! - [`Body::Pointwise`]: segments without accumulators: `store(expr)` for `[M, n]`. It is the generic path for everything elementwise.
//! - [`Body::Embed`]: rows of a (packed) table by token id.
//! - [`Body::RopeTable`]: cosines and sines for the step's positions.
//! - [`Body::TopK`]: the most probable tokens of each row of logits, and how much all others weigh.

mod rows;

pub use rows::RowElem;

use crate::graph::{BinaryOp, F32, UnaryOp};
use crate::kv::KvSpec;
use crate::quant::Format;
use crate::ty::Dim;
pub use llmcc_abi::{ATTEND_BLOCK, ATTEND_PARTS, ATTEND_SPLIT_TOKENS};

/// Operand number of a kernel: index in [`Kernel::params`].
pub type ParamId = usize;

/// One kernel.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Kernel {
    /// Name, unique in a plan: `<func>.<family><number>`.
    pub name: String,
    /// What its rows are: [`Dim::Tokens`] or [`Dim::Rows`].
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
    /// What it is.
    pub kind: ParamKind,
}

/// Kinds of operands.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ParamKind {
    /// A matrix of rows in an activation buffer. `rows` differs from the kernel's only for the source of a gather.
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
    /// The page pool of an attention state.
    Kv(KvSpec),
}

/// The computation of a kernel.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Body {
    /// Matrix products of one input, with fused epilogues.
    Matmul(Matmul),
    /// Row-wise normalization and/or quantization.
    RowNorm(RowNorm),
    /// Attention over the paged cache.
    Attention(Attention),
    /// Elementwise work.
    Pointwise(Pointwise),
    /// Embedding lookup.
    Embed(Embed),
    /// RoPE cosines and sines.
    RopeTable(RopeTable),
    /// The most probable tokens.
    TopK(TopK),
}

/// Matrix products sharing one input. Work items are column tiles, numbered through all segments.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Matmul {
    /// Input rows.
    pub x: ParamId,
    /// Applied to `x` by every thread for itself, into its scratch (worth it for few rows: it saves a kernel and a barrier).
    pub prologue: Option<Prologue>,
    /// Outputs.
    pub segments: Vec<Segment>,
    /// Rows processed per pass over a tile's weights.
    pub tile_m: usize,
}

/// Row-wise work fused before a matmul.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Prologue {
    /// Normalization.
    pub norm: Option<Norm>,
    /// Gain `[K]`.
    pub gain: Option<ParamId>,
    /// Storage of the result, which is what the weights are multiplied with.
    pub elem: RowElem,
}

/// `x / √(mean(x²) + eps)` over runs of `width` columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Norm {
    /// Added to the mean square.
    pub eps: F32,
    /// Columns per run.
    pub width: usize,
}

/// One output of a matmul or pointwise kernel.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Segment {
    /// Output columns.
    pub n: usize,
    /// Matrices `[n, k]`, one per lane: `Acc(l)` of the expression is `x·weights[l]ᵀ`. Empty in pointwise kernels.
    pub weights: Vec<ParamId>,
    /// Columns per work item: a multiple of 16 and of every `head_dim`/`width` in the expression and of the store's quantization group;
    /// the last item of a segment may be narrower.
    pub tile_n: usize,
    /// What is computed from the accumulators.
    pub expr: Expr,
    /// Where it goes.
    pub store: Store,
}

/// A value per output element `(row i, column j)` of a segment.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Expr {
    /// Accumulator of lane `l`.
    Acc(usize),
    /// Element `(i, start + j)` of a matrix of rows.
    Rows {
        /// The operand.
        param: ParamId,
        /// First column.
        start: usize,
    },
    /// Element `j mod len` of a vector operand.
    Vector(ParamId),
    /// A number.
    Const(F32),
    /// Elementwise function.
    Unary(UnaryOp, Box<Expr>),
    /// Elementwise function.
    Binary(BinaryOp, Box<Expr>, Box<Expr>),
    /// Normalization over runs of `width` columns (QK norm).
    Normalize(Norm, Box<Expr>),
    /// Rotary embedding with the table operand (`[M, D]` rows).
    Rope {
        /// Columns per head.
        head_dim: usize,
        /// Table operand.
        table: ParamId,
        /// The rotated value.
        x: Box<Expr>,
    },
}

/// Destination of a segment.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Store {
    /// Columns `start..start+n` of a matrix of rows, in the operand's storage.
    Rows {
        /// The operand.
        param: ParamId,
        /// First column.
        start: usize,
    },
    /// Keys of the cache, at each token's position.
    KvKey(ParamId),
    /// Values of the cache, at each token's position.
    KvValue(ParamId),
}

/// Row-wise kernel. Work items are rows.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RowNorm {
    /// Input rows.
    pub x: ParamId,
    /// Input row of output row `i` is `out_rows[i]`.
    pub gather: bool,
    /// Normalization.
    pub norm: Option<Norm>,
    /// Gain: element `j mod len`.
    pub gain: Option<ParamId>,
    /// Output rows, in the operand's storage.
    pub out: ParamId,
}

/// Attention. Work items are `(token, KV head)` pairs in [`ATTEND_PARTS`] parts each, numbered as the backend likes.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Attention {
    /// Queries `[T, heads·head_dim]`, not quantized.
    pub q: ParamId,
    /// The cache.
    pub kv: ParamId,
    /// Output `[T, heads·head_dim]`, in the operand's storage (a group of [`RowElem::Q8`] must divide the columns of a KV head's queries).
    pub out: ParamId,
    /// Query heads.
    pub heads: usize,
    /// Multiplies `q·k`.
    pub scale: F32,
    /// Tokens that a GPU's block takes together, sharing what it reads of the cache: 1 for decoding, more for prompts. A CPU takes runs of
    /// tokens as it finds them.
    pub tile_m: usize,
}

/// Elementwise kernel. Work items are rows.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Pointwise {
    /// Outputs; their expressions have no accumulators.
    pub segments: Vec<Segment>,
}

/// Embedding. Work items are tokens.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Embed {
    /// Packed table `[V, H]`.
    pub table: ParamId,
    /// Output rows, f32.
    pub out: ParamId,
}

/// RoPE table. One work item.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RopeTable {
    /// f32 `[D/2]`.
    pub inv_freq: ParamId,
    /// Multiplies sines and cosines.
    pub scale: F32,
    /// Output `[T, D]`, f32.
    pub out: ParamId,
}

/// The most probable tokens of each row of logits, so that the host need not read all logits to choose one. Work items are rows.
///
/// Of each row the step says how many are wanted ([`llmcc_abi::GpuCtx::wanted`]: none, one, or more, which means `k`) and by what logits are multiplied
/// before they are powers of two (`scale`, [`llmcc_abi::GpuCtx::scales`]: `log2(e)` over the temperature). An output row holds, in this order,
///
/// - the `k` largest logits, descending, −0 as 0;
/// - their token ids, as f32 (exact: a vocabulary has fewer than 2²⁴ tokens). Equal logits are ordered by ascending id. NaN counts as larger than all numbers,
///   so that a row which holds one begins with one;
/// - `Σ 2^((x − max)·scale)` over the whole vocabulary, within a relative [`TopK::SUM_ERROR`], if the maximum is finite and `scale` is between 2⁻¹⁰ and 2¹⁰.
///
/// Where one is wanted, only the first logit and id are defined; where none is, nothing is.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TopK {
    /// Logits, f32.
    pub x: ParamId,
    /// Candidates per row, at most the columns of `x`.
    pub k: usize,
    /// Output, f32 `[R, 2k + 1]`.
    pub out: ParamId,
}

impl TopK {
    /// Largest vocabulary whose ids f32 holds exactly.
    pub const MOST_COLUMNS: usize = 1 << 24;
    /// Relative error of the sum of exponentials.
    pub const SUM_ERROR: f64 = llmcc_abi::layout::CANDIDATE_SUM_ERROR;

    /// Columns of a row of `k` candidates.
    pub const fn columns(k: usize) -> usize {
        llmcc_abi::layout::candidate_cols(k)
    }
}

impl Expr {
    /// Calls `f` on this expression and all below it, parents first.
    pub fn visit(&self, f: &mut impl FnMut(&Expr)) {
        f(self);
        match self {
            Expr::Acc(_) | Expr::Rows { .. } | Expr::Vector(_) | Expr::Const(_) => {}
            Expr::Unary(_, x) | Expr::Normalize(_, x) | Expr::Rope { x, .. } => x.visit(f),
            Expr::Binary(_, a, b) => {
                a.visit(f);
                b.visit(f);
            }
        }
    }

    /// Calls `f` on this expression and all below it, children first, to rewrite in place.
    pub fn visit_mut(&mut self, f: &mut impl FnMut(&mut Expr)) {
        match self {
            Expr::Acc(_) | Expr::Rows { .. } | Expr::Vector(_) | Expr::Const(_) => {}
            Expr::Unary(_, x) | Expr::Normalize(_, x) | Expr::Rope { x, .. } => x.visit_mut(f),
            Expr::Binary(_, a, b) => {
                a.visit_mut(f);
                b.visit_mut(f);
            }
        }
        f(self);
    }

    /// Smallest tile width on which the expression can be evaluated on its own: the least common multiple of all runs of columns in it.
    pub fn column_run(&self) -> usize {
        let mut run = 1;
        self.visit(&mut |e| match e {
            Expr::Normalize(n, _) => run = lcm(run, n.width),
            Expr::Rope { head_dim, .. } => run = lcm(run, *head_dim),
            _ => {}
        });
        run
    }
}

/// Least common multiple of two positive numbers; the largest `usize` if it is larger.
pub fn lcm(a: usize, b: usize) -> usize {
    let gcd = |mut a: usize, mut b: usize| {
        while b != 0 {
            (a, b) = (b, a % b);
        }
        a
    };
    (a / gcd(a, b)).saturating_mul(b)
}

impl Kernel {
    /// Work items for `m` rows: `(count, whether it is multiplied by m)`.
    pub fn items(&self) -> (usize, bool) {
        match &self.body {
            Body::Matmul(k) => (k.segments.iter().map(Segment::tiles).sum(), false),
            Body::RowNorm(_) | Body::Pointwise(_) | Body::Embed(_) | Body::TopK(_) => (1, true),
            Body::Attention(a) => match self.params.get(a.kv).map(|p| &p.kind) {
                Some(ParamKind::Kv(kv)) => (kv.kv_heads * ATTEND_PARTS, true),
                _ => (1, true),
            },
            Body::RopeTable(_) => (1, false),
        }
    }
}

impl Segment {
    /// Work items of this segment.
    pub fn tiles(&self) -> usize {
        self.n.div_ceil(self.tile_n)
    }
}
