//! Graph operations: one table.
//!
//! Activations are f32 matrices `[M, cols]`, `M` being `T` or `R`; heads are runs of `head_dim`
//! columns, so attention needs no reshape or transpose. Weights are matrices `[n, k]` (`k` = input
//! columns, as `y = x·wᵀ`) or vectors `[n]`.
//!
//! A line of the table says what an operation means, its name, its attributes, when it is computed
//! and what it reads. From it come [`Op`], [`Head`] (what the e-graph calls it), its text, and
//! everything that verifier and passes ask of an operation. How it is typed and evaluated is its
//! [`Rule`], in the file of its theme; weights are computed by the same rule when they are packed.

mod attention;
mod attr;
mod columns;
mod elementwise;
mod embed;
mod facts;
#[cfg(test)]
mod newcomer;
mod norms;
mod positions;
mod products;
mod rule;
mod table;
mod weights;

pub use attr::{Attr, AttrKind, AttrType};
pub use elementwise::{BinaryOp, UnaryOp};
pub use facts::{Facts, Input, Reads, Stage};
pub(crate) use rule::Operands;

use super::value::{F32, ValueType};
use crate::eval::EvalError;
use crate::eval::Value;
use rule::{Rule, Types};

table::operations! {
    /// `embed(table [V,H], tokens i32[T]) → [T,H]`: row `tokens[i]` of the table.
    Embed "embed" Run (table: Table, tokens: Input(Tokens)) moves;
    /// `matmul(x [M,K], w [N,K]) → [M,N]`: `x·wᵀ`, accumulated in f32 or better.
    MatMul "matmul" Run (x: Any, w: Matrix);
    /// Elementwise. Also on weights.
    Unary [of: UnaryOp] Either (x: Any);
    /// Elementwise; `b` may be `[M,N]`, a vector `[w]` with `w` dividing `N` (column `j` reads
    /// `b[j mod w]`: a bias, a norm gain, a per-head gain) or a scalar `[]`. Also on weights.
    Binary [of: BinaryOp] Either (a: Any, b: Any);
    /// Scalar constant `[]`.
    Const "const" {
        /// The number.
        value: F32,
    } Either ();
    /// `normalize{eps,width}(x [M,N]) → [M,N]`: each run of `width` columns divided by its root
    /// mean square, `x / √(mean(x²) + eps)` (RMSNorm without gain, arXiv 1910.07467). `width = N`
    /// for the usual norm, `head_dim` for QK norm.
    Normalize "normalize" {
        /// Added to the mean square.
        eps: F32,
        /// Columns per run.
        width: usize,
    } Run (x: Any);
    /// `rope_table{scale}(positions i32[T], inv_freq [D/2]) → [T,D]`: `D/2` cosines, then `D/2`
    /// sines of `f32(position · inv_freq)`, times `scale` (the attention factor of YaRN, else 1).
    RopeTable "rope_table" {
        /// Multiplies sines and cosines.
        scale: F32,
    } Run (positions: Input(Positions), inv_freq: Weight);
    /// `rope{head_dim}(x [M,N], table [M,D]) → [M,N]`: rotates each head's pairs `(j, j + D/2)`
    /// (half-split layout of RoFormer, arXiv 2104.09864, as in Hugging Face Llama):
    /// `y_j = x_j·cos_j − x_{j+D/2}·sin_j`, `y_{j+D/2} = x_{j+D/2}·cos_j + x_j·sin_j`.
    Rope "rope" {
        /// Columns per head.
        head_dim: usize,
    } Run (x: Any, table: Any);
    /// `kv_append(kv, k [T,KD], v [T,KD], positions) → kv`: stores each token's key and value at
    /// its position in its sequence.
    KvAppend "kv_append" Run (kv: Replaced, k: Any, v: Any, positions: Input(Positions));
    /// `attention(q [T,QD], kv, positions) → [T,QD]`: causal softmax attention of each token over
    /// positions `0..=p` of its sequence (the last `window` of them where the state has a window);
    /// query head `h` reads KV head `h / (heads/kv_heads)`.
    Attention "attention" {
        /// Query heads.
        heads: usize,
        /// Multiplies `q·k`.
        scale: F32,
    } Run (q: Any, kv: State, positions: Input(Positions));
    /// `gather_rows(x [T,N], rows i32[R]) → [R,N]`.
    GatherRows "gather_rows" Run (x: Any, rows: Input(OutRows)) moves;
    /// `slice_cols{start,len}(x [M,N]) → [M,len]`.
    SliceCols "slice_cols" {
        /// First column.
        start: usize,
        /// Columns.
        len: usize,
    } Run (x: Any) moves;
    /// `concat_cols(x₁, x₂, …)`: side by side.
    ConcatCols "concat_cols" Run (x: Any; more) moves;
    /// `transpose(w [a,b]) → [b,a]` (weights only).
    Transpose "transpose" Pack (w: Any) moves;
    /// `scale_cols(w [n,k], g [k]) → [n,k]`: column `j` times `g_j` (weights only, in f32).
    ScaleCols "scale_cols" Pack (w: Any, g: Any);
    /// `scale_rows(w [n,k], g [n]) → [n,k]` (weights only, in f32).
    ScaleRows "scale_rows" Pack (w: Any, g: Any);
    /// `concat_rows(w₁ [a,k], w₂ [b,k], …) → [a+b,k]`; also joins vectors (weights only).
    ConcatRows "concat_rows" Pack (w: Any; more) moves;
    /// `slice_rows{start,len}(w [n,k]) → [len,k]`; also of vectors (weights only).
    SliceRows "slice_rows" {
        /// First row.
        start: usize,
        /// Rows.
        len: usize,
    } Pack (w: Any) moves;
    /// A newcomer, which lives in the tests: `riffle{by,left,rows,but}(x [M,N]) → [M,N]`, see
    /// `newcomer.rs`.
    #[cfg(test)]
    Riffle "riffle" {
        /// Columns are rotated by so many.
        by: usize,
        /// To the left.
        left: bool,
        /// Which rows.
        rows: newcomer::Parity,
        /// Columns that are cleared first.
        but: Vec<usize>,
    } Either (x: Any);
}

impl Op {
    /// Name in `.lir` text, without attributes.
    pub fn name(&self) -> &'static str {
        self.head().name()
    }

    /// When it is computed and what it reads.
    pub fn facts(&self) -> Facts {
        self.head().facts()
    }

    /// The result type for arguments of the given types.
    ///
    /// # Errors
    /// Says in words which rule the arguments break.
    pub fn infer(&self, args: &[ValueType]) -> Result<ValueType, String> {
        let (name, facts, n) = (self.name(), self.facts(), args.len());
        let wanted = facts.args.len();
        if facts.variadic && n < wanted {
            return Err(format!(
                "`{name}` needs {}",
                if wanted == 1 { "an argument".into() } else { format!("{wanted} arguments") }
            ));
        }
        if !facts.variadic && n != wanted {
            return Err(format!("`{name}` takes {wanted} arguments, not {n}"));
        }
        self.with(|rule| rule.infer(&Types { name, args }))
    }

    /// The result for arguments of the types that [`Op::infer`] accepts.
    pub(crate) fn eval(&self, args: Operands<'_>) -> Result<Value, EvalError> {
        self.with(|rule| rule.eval(args))
    }
}

impl Head {
    /// Whether weights are computed by it.
    pub fn packs(self) -> bool {
        self.facts().packs()
    }
}
