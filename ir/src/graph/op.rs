//! Graph operations and their typing rules.
//!
//! Activations are f32 matrices `[M, cols]`, `M` being `T` or `R`; heads are runs of `head_dim` columns, so attention
//! needs no reshape or transpose. Weights are matrices `[n, k]` (`k` = input columns, as `y = x·wᵀ`) or vectors `[n]`.

use crate::kv::KvSpec;
use crate::ty::{DType, Dim, TensorType};
use std::fmt;

/// A finite f32 attribute with equality and order by bits, so that operations can be hashed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct F32(u32);

impl F32 {
    /// Wraps `x`.
    pub const fn new(x: f32) -> F32 {
        F32(x.to_bits())
    }
    /// The number.
    pub const fn get(self) -> f32 {
        f32::from_bits(self.0)
    }
}

impl fmt::Debug for F32 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.get(), f)
    }
}

impl fmt::Display for F32 {
    /// Shortest text that reads back as the same number.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.get(), f)
    }
}

/// Elementwise functions of one argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum UnaryOp {
    /// `-x`
    Neg,
    /// `eˣ`
    Exp,
    /// `1/(1+e⁻ˣ)`
    Sigmoid,
    /// `x/(1+e⁻ˣ)` (Elfwing et al., arXiv 1702.03118)
    Silu,
    /// `x·Φ(x)` by the error function (arXiv 1606.08415)
    Gelu,
    /// `x/2·(1+tanh(√(2/π)·(x+0.044715x³)))`
    GeluTanh,
    /// `max(x, 0)`
    Relu,
    /// `tanh x`
    Tanh,
}

impl UnaryOp {
    /// Every operation with its name in `.lir` text.
    pub const ALL: &[(UnaryOp, &'static str)] = &[
        (UnaryOp::Neg, "neg"),
        (UnaryOp::Exp, "exp"),
        (UnaryOp::Sigmoid, "sigmoid"),
        (UnaryOp::Silu, "silu"),
        (UnaryOp::Gelu, "gelu"),
        (UnaryOp::GeluTanh, "gelu_tanh"),
        (UnaryOp::Relu, "relu"),
        (UnaryOp::Tanh, "tanh"),
    ];
    /// Name in `.lir` text.
    pub fn name(self) -> &'static str {
        Self::ALL.iter().find(|(o, _)| *o == self).map_or("?", |(_, n)| n)
    }
}

/// Elementwise functions of two arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum BinaryOp {
    /// `a + b`
    Add,
    /// `a - b`
    Sub,
    /// `a · b`
    Mul,
    /// `a / b`
    Div,
    /// the larger
    Max,
    /// the smaller
    Min,
}

impl BinaryOp {
    /// Every operation with its name in `.lir` text.
    pub const ALL: &[(BinaryOp, &'static str)] = &[
        (BinaryOp::Add, "add"),
        (BinaryOp::Sub, "sub"),
        (BinaryOp::Mul, "mul"),
        (BinaryOp::Div, "div"),
        (BinaryOp::Max, "max"),
        (BinaryOp::Min, "min"),
    ];
    /// Name in `.lir` text.
    pub fn name(self) -> &'static str {
        Self::ALL.iter().find(|(o, _)| *o == self).map_or("?", |(_, n)| n)
    }
}

/// An operation of the graph level.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Op {
    /// `embed(table [V,H], tokens i32[T]) → [T,H]`: row `tokens[i]` of the table.
    Embed,
    /// `matmul(x [M,K], w [N,K]) → [M,N]`: `x·wᵀ`, accumulated in f32 or better.
    MatMul,
    /// Elementwise.
    Unary(UnaryOp),
    /// Elementwise; `b` may be `[M,N]`, a vector `[w]` with `w` dividing `N` (column `j` reads `b[j mod w]`: a bias, a norm gain, a
    /// per-head gain) or a scalar `[]`. Also on weight vectors.
    Binary(BinaryOp),
    /// Scalar constant `[]`.
    Const(F32),
    /// `normalize{eps,width}(x [M,N]) → [M,N]`: each run of `width` columns divided by its root mean square,
    /// `x / √(mean(x²) + eps)` (RMSNorm without gain, arXiv 1910.07467). `width = N` for the usual norm, `head_dim` for QK norm.
    Normalize {
        /// Added to the mean square.
        eps: F32,
        /// Columns per run.
        width: usize,
    },
    /// `rope_table{scale}(positions i32[T], inv_freq [D/2]) → [T,D]`: `D/2` cosines, then `D/2` sines of
    /// `f32(position · inv_freq)`, times `scale` (the attention factor of YaRN, else 1).
    RopeTable {
        /// Multiplies sines and cosines.
        scale: F32,
    },
    /// `rope{head_dim}(x [M,N], table [M,D]) → [M,N]`: rotates each head's pairs `(j, j + D/2)` (half-split layout of RoFormer,
    /// arXiv 2104.09864, as in Hugging Face Llama): `y_j = x_j·cos_j − x_{j+D/2}·sin_j`, `y_{j+D/2} = x_{j+D/2}·cos_j + x_j·sin_j`.
    Rope {
        /// Columns per head.
        head_dim: usize,
    },
    /// `kv_append(kv, k [T,KD], v [T,KD], positions) → kv`: stores each token's key and value at its position in its sequence.
    KvAppend,
    /// `attention(q [T,QD], kv, positions) → [T,QD]`: causal softmax attention of each token over positions `0..=p` of its sequence
    /// (the last `window` of them where the state has a window); query head `h` reads KV head `h / (heads/kv_heads)`.
    Attention {
        /// Query heads.
        heads: usize,
        /// Multiplies `q·k`.
        scale: F32,
    },
    /// `gather_rows(x [T,N], rows i32[R]) → [R,N]`.
    GatherRows,
    /// `slice_cols{start,len}(x [M,N]) → [M,len]`.
    SliceCols {
        /// First column.
        start: usize,
        /// Columns.
        len: usize,
    },
    /// `concat_cols(x₁, x₂, …)`: side by side.
    ConcatCols,
    /// `transpose(w [a,b]) → [b,a]` (weights only).
    Transpose,
    /// `scale_cols(w [n,k], g [k]) → [n,k]`: column `j` times `g_j` (weights only, in f32).
    ScaleCols,
    /// `scale_rows(w [n,k], g [n]) → [n,k]` (weights only, in f32).
    ScaleRows,
    /// `concat_rows(w₁ [a,k], w₂ [b,k], …) → [a+b,k]`; also joins vectors (weights only).
    ConcatRows,
    /// `slice_rows{start,len}(w [n,k]) → [len,k]`; also of vectors (weights only).
    SliceRows {
        /// First row.
        start: usize,
        /// Rows.
        len: usize,
    },
}

/// What a value is.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ValueType {
    /// A tensor.
    Tensor(TensorType),
    /// State of an attention layer.
    Kv(KvSpec),
}

impl ValueType {
    /// The tensor type, if a tensor.
    pub fn tensor(&self) -> Option<&TensorType> {
        match self {
            ValueType::Tensor(t) => Some(t),
            ValueType::Kv(_) => None,
        }
    }
}

impl fmt::Display for ValueType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ValueType::Tensor(t) => t.fmt(f),
            ValueType::Kv(k) => k.fmt(f),
        }
    }
}

impl From<TensorType> for ValueType {
    fn from(t: TensorType) -> ValueType {
        ValueType::Tensor(t)
    }
}

impl Op {
    /// Name in `.lir` text, without attributes.
    pub fn name(&self) -> &'static str {
        match self {
            Op::Embed => "embed",
            Op::MatMul => "matmul",
            Op::Unary(u) => u.name(),
            Op::Binary(b) => b.name(),
            Op::Const(_) => "const",
            Op::Normalize { .. } => "normalize",
            Op::RopeTable { .. } => "rope_table",
            Op::Rope { .. } => "rope",
            Op::KvAppend => "kv_append",
            Op::Attention { .. } => "attention",
            Op::GatherRows => "gather_rows",
            Op::SliceCols { .. } => "slice_cols",
            Op::ConcatCols => "concat_cols",
            Op::Transpose => "transpose",
            Op::ScaleCols => "scale_cols",
            Op::ScaleRows => "scale_rows",
            Op::ConcatRows => "concat_rows",
            Op::SliceRows { .. } => "slice_rows",
        }
    }

    /// True for operations that only weights may pass through (evaluated when packing, never at run time).
    pub fn weights_only(&self) -> bool {
        matches!(self, Op::Transpose | Op::ScaleCols | Op::ScaleRows | Op::ConcatRows | Op::SliceRows { .. })
    }

    /// The result type for arguments of the given types.
    ///
    /// # Errors
    /// Says in words which rule the arguments break.
    pub fn infer(&self, args: &[ValueType]) -> Result<ValueType, String> {
        typing::infer(self, args)
    }
}

mod typing {
    use super::*;

    fn arity(op: &Op, args: &[ValueType], n: usize) -> Result<(), String> {
        if args.len() == n { Ok(()) } else { Err(format!("`{}` takes {n} arguments, not {}", op.name(), args.len())) }
    }

    fn tensor<'a>(op: &Op, args: &'a [ValueType], i: usize) -> Result<&'a TensorType, String> {
        args[i].tensor().ok_or_else(|| format!("argument {} of `{}` must be a tensor, not {}", i + 1, op.name(), args[i]))
    }

    fn kv<'a>(op: &Op, args: &'a [ValueType], i: usize) -> Result<&'a KvSpec, String> {
        match &args[i] {
            ValueType::Kv(k) => Ok(k),
            t => Err(format!("argument {} of `{}` must be an attention state, not {t}", i + 1, op.name())),
        }
    }

    /// f32 activations `[M, cols]` or a float weight `[n, k]`: (rows, cols, dtype).
    fn matrix(op: &Op, args: &[ValueType], i: usize) -> Result<(Dim, usize, DType), String> {
        let t = tensor(op, args, i)?;
        match t.shape[..] {
            [r, Dim::Static(c)] if t.dtype.is_float() => Ok((r, c, t.dtype)),
            _ => Err(format!("argument {} of `{}` must be a float matrix, not {t}", i + 1, op.name())),
        }
    }

    fn activation(op: &Op, args: &[ValueType], i: usize) -> Result<(Dim, usize), String> {
        match matrix(op, args, i)? {
            (r, c, DType::F32) => Ok((r, c)),
            _ => Err(format!("argument {} of `{}` must be f32, not {}", i + 1, op.name(), args[i])),
        }
    }

    fn weight_matrix(op: &Op, args: &[ValueType], i: usize) -> Result<(usize, usize), String> {
        match matrix(op, args, i)? {
            (Dim::Static(n), k, _) => Ok((n, k)),
            _ => Err(format!("argument {} of `{}` must be a weight matrix, not {}", i + 1, op.name(), args[i])),
        }
    }

    fn vector(op: &Op, args: &[ValueType], i: usize) -> Result<usize, String> {
        let t = tensor(op, args, i)?;
        match t.shape[..] {
            [Dim::Static(n)] if t.dtype.is_float() => Ok(n),
            _ => Err(format!("argument {} of `{}` must be a float vector, not {t}", i + 1, op.name())),
        }
    }

    fn index(op: &Op, args: &[ValueType], i: usize, dim: Dim) -> Result<(), String> {
        let t = tensor(op, args, i)?;
        let want = TensorType::new(DType::I32, [dim]);
        if *t == want { Ok(()) } else { Err(format!("argument {} of `{}` must be {want}, not {t}", i + 1, op.name())) }
    }

    fn same(op: &Op, what: &str, a: usize, b: usize) -> Result<(), String> {
        if a == b { Ok(()) } else { Err(format!("`{}`: {what} differ: {a} and {b}", op.name())) }
    }

    fn multiple(op: &Op, what: &str, n: usize, of: usize) -> Result<(), String> {
        if of > 0 && n.is_multiple_of(of) { Ok(()) } else { Err(format!("`{}`: {what} {of} does not divide {n} columns", op.name())) }
    }

    fn range(op: &Op, start: usize, len: usize, of: usize) -> Result<(), String> {
        if len > 0 && start.checked_add(len).is_some_and(|e| e <= of) {
            Ok(())
        } else {
            Err(format!("`{}`: range {start}..{start}+{len} lies outside 0..{of}", op.name()))
        }
    }

    pub(super) fn infer(op: &Op, a: &[ValueType]) -> Result<ValueType, String> {
        let ty: TensorType = match op {
            Op::Embed => {
                arity(op, a, 2)?;
                let (_, h) = weight_matrix(op, a, 0)?;
                index(op, a, 1, Dim::Tokens)?;
                TensorType::rows(Dim::Tokens, h)
            }
            Op::MatMul => {
                arity(op, a, 2)?;
                let (m, k) = activation(op, a, 0)?;
                let (n, wk) = weight_matrix(op, a, 1)?;
                same(op, "inner dimensions", k, wk)?;
                TensorType::rows(m, n)
            }
            Op::Unary(_) => {
                arity(op, a, 1)?;
                tensor(op, a, 0)?.clone()
            }
            Op::Binary(_) => return binary(op, a),
            Op::Const(_) => {
                arity(op, a, 0)?;
                TensorType::new(DType::F32, [])
            }
            Op::Normalize { width, .. } => {
                arity(op, a, 1)?;
                let (m, n) = activation(op, a, 0)?;
                multiple(op, "width", n, *width)?;
                TensorType::rows(m, n)
            }
            Op::RopeTable { .. } => {
                arity(op, a, 2)?;
                index(op, a, 0, Dim::Tokens)?;
                TensorType::rows(Dim::Tokens, vector(op, a, 1)?.saturating_mul(2))
            }
            Op::Rope { head_dim } => {
                arity(op, a, 2)?;
                let (m, n) = activation(op, a, 0)?;
                let (tm, d) = activation(op, a, 1)?;
                multiple(op, "head size", n, *head_dim)?;
                if tm != m || d > *head_dim || d % 2 != 0 {
                    return Err(format!("`rope`: table {} does not fit {} with head size {head_dim}", a[1], a[0]));
                }
                TensorType::rows(m, n)
            }
            Op::KvAppend => {
                arity(op, a, 4)?;
                let spec = *kv(op, a, 0)?;
                for i in [1, 2] {
                    let (m, n) = activation(op, a, i)?;
                    same(op, "columns and KV width", n, spec.width())?;
                    if m != Dim::Tokens {
                        return Err("`kv_append`: keys and values need a row per token".into());
                    }
                }
                index(op, a, 3, Dim::Tokens)?;
                return Ok(ValueType::Kv(spec));
            }
            Op::Attention { heads, .. } => {
                arity(op, a, 3)?;
                let (m, n) = activation(op, a, 0)?;
                let spec = *kv(op, a, 1)?;
                index(op, a, 2, Dim::Tokens)?;
                same(op, "query columns and heads × head size", n, heads.saturating_mul(spec.head_dim))?;
                if m != Dim::Tokens {
                    return Err("`attention`: queries need a row per token".into());
                }
                multiple(op, "number of KV heads", *heads, spec.kv_heads)?;
                TensorType::rows(m, n)
            }
            Op::GatherRows => {
                arity(op, a, 2)?;
                let (_, n) = activation(op, a, 0)?;
                index(op, a, 1, Dim::Rows)?;
                TensorType::rows(Dim::Rows, n)
            }
            Op::SliceCols { start, len } => {
                arity(op, a, 1)?;
                let (m, n) = activation(op, a, 0)?;
                range(op, *start, *len, n)?;
                TensorType::rows(m, *len)
            }
            Op::ConcatCols => {
                if a.is_empty() {
                    return Err("`concat_cols` needs an argument".into());
                }
                let (m, mut n) = activation(op, a, 0)?;
                for i in 1..a.len() {
                    let (mi, ni) = activation(op, a, i)?;
                    if mi != m {
                        return Err("`concat_cols`: row counts differ".into());
                    }
                    n = n.saturating_add(ni);
                }
                TensorType::rows(m, n)
            }
            Op::Transpose => {
                arity(op, a, 1)?;
                let (n, k) = weight_matrix(op, a, 0)?;
                TensorType::new(tensor(op, a, 0)?.dtype, [k.into(), n.into()])
            }
            Op::ScaleCols | Op::ScaleRows => {
                arity(op, a, 2)?;
                let (n, k) = weight_matrix(op, a, 0)?;
                same(op, "scaled dimension and vector", if *op == Op::ScaleCols { k } else { n }, vector(op, a, 1)?)?;
                TensorType::rows(n.into(), k)
            }
            Op::ConcatRows => return concat_rows(op, a),
            Op::SliceRows { start, len } => {
                arity(op, a, 1)?;
                let t = tensor(op, a, 0)?;
                let n = t.shape.first().and_then(|d| d.known()).ok_or("`slice_rows` needs a weight")?;
                range(op, *start, *len, n)?;
                let mut t = t.clone();
                t.shape[0] = Dim::Static(*len);
                t
            }
        };
        Ok(ty.into())
    }

    fn binary(op: &Op, a: &[ValueType]) -> Result<ValueType, String> {
        arity(op, a, 2)?;
        let (x, y) = (tensor(op, a, 0)?, tensor(op, a, 1)?);
        if !x.dtype.is_float() || !y.dtype.is_float() {
            return Err(format!("`{}` needs floats, not {x} and {y}", op.name()));
        }
        let tiled = y.shape.len() == 1 && matches!((x.cols(), y.cols()), (Some(n), Some(w)) if w > 0 && n.is_multiple_of(w));
        let broadcast = y.shape == x.shape || y.shape.is_empty() || tiled;
        if !broadcast {
            return Err(format!("`{}`: {y} does not broadcast to {x}", op.name()));
        }
        Ok(TensorType::new(DType::F32, x.shape.iter().copied()).into())
    }

    fn concat_rows(op: &Op, a: &[ValueType]) -> Result<ValueType, String> {
        if a.is_empty() {
            return Err("`concat_rows` needs an argument".into());
        }
        let first = tensor(op, a, 0)?.clone();
        let mut n = 0usize;
        for i in 0..a.len() {
            let t = tensor(op, a, i)?;
            if t.shape.len() != first.shape.len() || t.shape.get(1..) != first.shape.get(1..) || t.dtype != first.dtype {
                return Err(format!("`concat_rows`: {t} does not continue {first}"));
            }
            let rows = t.shape.first().and_then(|d| d.known()).ok_or("`concat_rows` needs weights")?;
            n = n.saturating_add(rows);
        }
        let mut t = first;
        t.shape[0] = Dim::Static(n);
        Ok(t.into())
    }
}
