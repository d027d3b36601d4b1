//! Rows of a weight expression, computed on demand.

use super::{PackError, TensorBytes, WeightSource};
use half::f16;
use half::slice::HalfFloatSliceExt;
use llmcc_ir::eval::{WeightTensor, eval_weight_op};
use llmcc_ir::graph::{BinaryOp, Module, Op, UnaryOp};
use llmcc_ir::plan::WeightExpr;
use llmcc_ir::ty::DType;

/// A weight expression ready to yield rows. A vector is a column: `n` rows of one element.
pub struct Rows<'a> {
    n: usize,
    k: usize,
    rank: usize,
    node: Node<'a>,
}

enum Node<'a> {
    /// Elements in the checkpoint.
    Bytes(DType, &'a [u8]),
    /// Elements at hand.
    Values(std::borrow::Cow<'a, [f32]>),
    Transpose(Box<Rows<'a>>),
    ScaleCols(Box<Rows<'a>>, Vec<f32>),
    ScaleRows(Box<Rows<'a>>, Vec<f32>),
    Concat(Vec<Rows<'a>>),
    Slice(usize, Box<Rows<'a>>),
    /// With an operand of the same shape.
    Binary(BinaryOp, Box<Rows<'a>>, Box<Rows<'a>>),
    /// With a tiled vector or a scalar.
    Tiled(BinaryOp, Box<Rows<'a>>, Vec<f32>),
    Unary(UnaryOp, Box<Rows<'a>>),
}

/// What is wrong with an expression or its leaves.
pub enum RowsError {
    /// As is.
    Leaf(PackError),
    /// Needs the names of the leaves.
    Shape(String),
}

impl RowsError {
    /// The error, for a weight computed from `tensor`.
    pub fn into_error(self, tensor: &str) -> PackError {
        match self {
            RowsError::Leaf(e) => e,
            RowsError::Shape(what) => PackError::Expression { tensor: tensor.into(), what },
        }
    }
}

impl<'a> Rows<'a> {
    /// Prepares `e`; vectors inside are evaluated at once.
    pub fn new(e: &WeightExpr, module: &'a Module, source: &'a dyn WeightSource) -> Result<Rows<'a>, RowsError> {
        let (op, args) = match e {
            WeightExpr::Weight(i) => return leaf(*i, module, source),
            WeightExpr::Op(op, args) => (op, args),
        };
        let args = args.iter().map(|x| Rows::new(x, module, source)).collect::<Result<Vec<_>, _>>()?;
        let bad = |what: String| Err(RowsError::Shape(what));
        let (n, k, rank, node) = match op {
            Op::Transpose => {
                let [x] = exactly(op, args)?;
                (x.k, x.n, 2, Node::Transpose(Box::new(x)))
            }
            Op::ScaleCols | Op::ScaleRows => {
                let cols = *op == Op::ScaleCols;
                let [w, g] = exactly(op, args)?;
                let g = g.all();
                if g.len() != if cols { w.k } else { w.n } {
                    return bad(format!("{} scales for {}×{}", g.len(), w.n, w.k));
                }
                let (n, k, w) = (w.n, w.k, Box::new(w));
                (n, k, 2, if cols { Node::ScaleCols(w, g) } else { Node::ScaleRows(w, g) })
            }
            Op::ConcatRows => {
                let (k, rank) = args.first().map_or((0, 0), |p| (p.k, p.rank));
                if k == 0 || args.iter().any(|p| p.k != k) {
                    return bad("joined parts differ in width".into());
                }
                (args.iter().map(|p| p.n).sum(), k, rank, Node::Concat(args))
            }
            Op::SliceRows { start, len } => {
                let [x] = exactly(op, args)?;
                if start.checked_add(*len).is_none_or(|end| end > x.n) {
                    return bad(format!("rows {start}..{start}+{len} of {}", x.n));
                }
                (*len, x.k, x.rank, Node::Slice(*start, Box::new(x)))
            }
            Op::Binary(f) => {
                let [a, b] = exactly(op, args)?;
                return elementwise(*f, a, b);
            }
            Op::Unary(f) => {
                let [x] = exactly(op, args)?;
                (x.n, x.k, x.rank, Node::Unary(*f, Box::new(x)))
            }
            // Nothing to stream: the whole of it, by the definition of the operation.
            op => return whole(op, args),
        };
        Ok(Rows { n, k, rank, node })
    }

    /// Rows and elements per row.
    pub fn shape(&self) -> (usize, usize) {
        (self.n, self.k)
    }

    /// All elements.
    pub fn all(&self) -> Vec<f32> {
        let mut out = vec![0f32; self.n * self.k];
        self.fill(0, &mut out);
        out
    }

    /// Computes the rows from `from` on that `out` has room for.
    pub fn fill(&self, from: usize, out: &mut [f32]) {
        let k = self.k;
        match &self.node {
            Node::Bytes(dtype, bytes) => {
                let size = dtype.bytes();
                convert(*dtype, &bytes[from * k * size..][..out.len() * size], out);
            }
            Node::Values(v) => out.copy_from_slice(&v[from * k..][..out.len()]),
            Node::Transpose(x) => x.fill_transposed(from, out, k),
            Node::ScaleCols(x, g) => {
                x.fill(from, out);
                out.chunks_exact_mut(k).for_each(|row| row.iter_mut().zip(g).for_each(|(v, g)| *v *= g));
            }
            Node::ScaleRows(x, g) => {
                x.fill(from, out);
                out.chunks_exact_mut(k).zip(&g[from..]).for_each(|(row, g)| row.iter_mut().for_each(|v| *v *= g));
            }
            Node::Concat(parts) => fill_parts(parts, from, out, k),
            Node::Slice(start, x) => x.fill(start + from, out),
            Node::Binary(op, a, b) => {
                let mut other = vec![0f32; out.len()];
                a.fill(from, out);
                b.fill(from, &mut other);
                out.iter_mut().zip(&other).for_each(|(v, o)| *v = op.eval((*v).into(), (*o).into()) as f32);
            }
            Node::Tiled(op, a, b) => {
                a.fill(from, out);
                // A row is whole periods of the vector, or (for vectors) one element of them.
                let at = |i: usize| b[(from * k + i) % b.len()];
                out.iter_mut().enumerate().for_each(|(i, v)| *v = op.eval((*v).into(), at(i).into()) as f32);
            }
            Node::Unary(op, x) => {
                x.fill(from, out);
                out.iter_mut().for_each(|v| *v = op.eval((*v).into()) as f32);
            }
        }
    }

    /// Columns `from..` of this matrix as rows of `n` elements.
    fn fill_transposed(&self, from: usize, out: &mut [f32], n: usize) {
        let count = out.len() / n;
        let mut row = vec![0f32; self.k];
        for i in 0..n {
            self.fill(i, &mut row);
            for j in 0..count {
                out[j * n + i] = row[from + j];
            }
        }
    }
}

fn leaf<'a>(i: usize, module: &'a Module, source: &'a dyn WeightSource) -> Result<Rows<'a>, RowsError> {
    let weight = module.weights.get(i).ok_or_else(|| RowsError::Shape(format!("no weight {i}")))?;
    let dims: Option<Vec<usize>> = weight.ty.shape.iter().map(|d| d.known()).collect();
    let dims = dims.ok_or_else(|| RowsError::Shape(format!("weight `{}` has no fixed shape", weight.name)))?;
    let (n, k) = match dims[..] {
        [] => (1, 1),
        [n] => (n, 1),
        [n, k] => (n, k),
        _ => return Err(RowsError::Shape(format!("weight `{}` is {}", weight.name, weight.ty))),
    };
    let mismatch = |found: String| {
        RowsError::Leaf(PackError::Mismatch { name: weight.name.clone(), found, wanted: weight.ty.to_string() })
    };
    let node = match &weight.data {
        Some(v) if v.len() == n * k => Node::Values(v.as_slice().into()),
        Some(v) => return Err(mismatch(format!("{} computed values", v.len()))),
        None => {
            let t: TensorBytes<'a> =
                source.tensor(&weight.name).ok_or_else(|| RowsError::Leaf(PackError::Missing(weight.name.clone())))?;
            if t.shape != dims
                || t.dtype != weight.ty.dtype
                || !t.dtype.is_float()
                || t.data.len() != n * k * t.dtype.bytes()
            {
                return Err(mismatch(format!("{}{:?} in {} bytes", t.dtype, t.shape, t.data.len())));
            }
            Node::Bytes(t.dtype, t.data)
        }
    };
    Ok(Rows { n, k, rank: dims.len(), node })
}

fn exactly<'a, const N: usize>(op: &Op, args: Vec<Rows<'a>>) -> Result<[Rows<'a>; N], RowsError> {
    let found = args.len();
    args.try_into().map_err(|_| RowsError::Shape(format!("`{}` of {found} arguments, not {N}", op.name())))
}

/// An operation evaluated at once.
fn whole<'a>(op: &Op, args: Vec<Rows<'a>>) -> Result<Rows<'a>, RowsError> {
    let tensor = |x: Rows<'_>| {
        let shape: &[usize] = match x.rank {
            0 => &[],
            1 => &[x.n],
            _ => &[x.n, x.k],
        };
        WeightTensor { shape: shape.to_vec(), data: x.all() }
    };
    let WeightTensor { shape, data } =
        eval_weight_op(op, args.into_iter().map(tensor).collect()).map_err(|e| RowsError::Shape(e.to_string()))?;
    let (n, k) = match shape[..] {
        [] => (1, 1),
        [n] => (n, 1),
        [n, k] => (n, k),
        _ => return Err(RowsError::Shape(format!("`{}` is of shape {shape:?}", op.name()))),
    };
    Ok(Rows { n, k, rank: shape.len(), node: Node::Values(data.into()) })
}

fn elementwise<'a>(op: BinaryOp, a: Rows<'a>, b: Rows<'a>) -> Result<Rows<'a>, RowsError> {
    let (n, k, rank) = (a.n, a.k, a.rank);
    let last = if rank == 2 { k } else { n };
    let node = if b.rank == rank && b.shape() == a.shape() {
        Node::Binary(op, Box::new(a), Box::new(b))
    } else if b.rank == 0 || b.rank == 1 && b.n > 0 && last.is_multiple_of(b.n) {
        let b = b.all();
        Node::Tiled(op, Box::new(a), b)
    } else {
        return Err(RowsError::Shape(format!("`{}` of {:?} and {:?}", op.name(), a.shape(), b.shape())));
    };
    Ok(Rows { n, k, rank, node })
}

fn fill_parts(parts: &[Rows<'_>], mut from: usize, mut out: &mut [f32], k: usize) {
    for p in parts {
        if from >= p.n {
            from -= p.n;
            continue;
        }
        let rows = (p.n - from).min(out.len() / k);
        let (head, rest) = out.split_at_mut(rows * k);
        p.fill(from, head);
        if rest.is_empty() {
            return;
        }
        (from, out) = (0, rest);
    }
}

/// Converts little-endian elements to f32: exact for f32, f16 and bf16, rounded once for f64.
fn convert(dtype: DType, bytes: &[u8], out: &mut [f32]) {
    match dtype {
        DType::F32 => {
            bytes.chunks_exact(4).zip(out).for_each(|(b, v)| *v = f32::from_le_bytes([b[0], b[1], b[2], b[3]]))
        }
        DType::Bf16 => {
            bytes
                .chunks_exact(2)
                .zip(out)
                .for_each(|(b, v)| *v = f32::from_bits(u32::from(u16::from_le_bytes([b[0], b[1]])) << 16));
        }
        DType::F16 => {
            let mut halves = [f16::ZERO; 256];
            for (b, v) in bytes.chunks(512).zip(out.chunks_mut(256)) {
                let halves = &mut halves[..v.len()];
                halves.iter_mut().zip(b.chunks_exact(2)).for_each(|(h, b)| *h = f16::from_le_bytes([b[0], b[1]]));
                halves.convert_to_f32_slice(v);
            }
        }
        DType::F64 => bytes.chunks_exact(8).zip(out).for_each(|(b, v)| {
            let mut word = [0u8; 8];
            word.copy_from_slice(b);
            *v = f64::from_le_bytes(word) as f32;
        }),
        // `leaf` admits floats only.
        DType::I8 | DType::U8 | DType::I32 | DType::I64 => out.fill(f32::NAN),
    }
}
