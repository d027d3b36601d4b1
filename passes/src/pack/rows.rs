//! Rows of a weight expression, computed on demand.

use super::{PackError, TensorBytes, WeightSource};
use half::f16;
use half::slice::HalfFloatSliceExt;
use llmcc_ir::eval::{WeightTensor, eval_weight_op};
use llmcc_ir::graph::{BinaryOp, Module, Op, UnaryOp, picked_row, places, row_norm};
use llmcc_ir::plan::WeightExpr;
use llmcc_ir::quant::{CodedRow, Format, Packing, ScaleKind, StoredRows};
use llmcc_ir::ty::{DType, TensorType};

/// A weight expression ready to yield rows. A vector is a column: `n` rows of one element; a stack
/// of matrices yields the rows of one after the other.
pub struct Rows<'a> {
    n: usize,
    k: usize,
    rank: usize,
    /// Matrices of a stack; else 1.
    stack: usize,
    node: Node<'a>,
}

enum Node<'a> {
    /// Elements in the checkpoint.
    Bytes(DType, &'a [u8]),
    /// Rows of the checkpoint that are not simply elements: their type.
    Stored(DType, Box<dyn StoredRows + 'a>),
    /// Elements at hand.
    Values(std::borrow::Cow<'a, [f32]>),
    Transpose(Box<Rows<'a>>),
    ScaleCols(Box<Rows<'a>>, Vec<f32>),
    ScaleRows(Box<Rows<'a>>, Vec<f32>),
    UnitRows(Box<Rows<'a>>),
    Concat(Vec<Rows<'a>>),
    Slice(usize, Box<Rows<'a>>),
    /// Each run of the first number of rows made as many as the second by rows of zeros.
    Filled([usize; 2], Box<Rows<'a>>),
    /// Attributes as [`picked_row`] takes them.
    Picked([usize; 4], Box<Rows<'a>>),
    /// Column `j` is brought to the `j`-th of these.
    Placed(Vec<usize>, Box<Rows<'a>>),
    /// With an operand of the same shape.
    Binary(BinaryOp, Box<Rows<'a>>, Box<Rows<'a>>),
    /// With a tiled vector or a scalar.
    Tiled(BinaryOp, Box<Rows<'a>>, Vec<f32>),
    Unary(UnaryOp, Box<Rows<'a>>),
}

/// The fault of an expression or its leaves.
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
        if args.iter().any(|x| x.rank > 2) && !matches!(op, Op::Transpose | Op::Flatten) {
            return bad(format!("`{}` reads a stack that is not flattened", op.name()));
        }
        let mut stack = 1;
        let (n, k, rank, node) = match op {
            Op::Transpose => {
                let [x] = exactly(op, args)?;
                stack = x.stack;
                (x.k * stack, x.n / stack, x.rank.max(2), Node::Transpose(Box::new(x)))
            }
            Op::Flatten => {
                let [x] = exactly(op, args)?;
                return Ok(match x.rank {
                    3 => Rows { rank: 2, stack: 1, ..x },
                    _ => Rows { n: x.n * x.k, k: 1, rank: 1, stack: 1, node: Node::Values(x.all().into()) },
                });
            }
            Op::ScaleCols => return scaled(true, exactly(op, args)?),
            Op::ScaleRows => return scaled(false, exactly(op, args)?),
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
            Op::PickRows { run, start, len, pairs } => {
                let [x] = exactly(op, args)?;
                op.infer(&[TensorType::rows(x.n.into(), x.k).into()]).map_err(RowsError::Shape)?;
                (x.n / run * len, x.k, x.rank, Node::Picked([*run, *start, *len, *pairs], Box::new(x)))
            }
            Op::FillRows { run, to } => {
                let [x] = exactly(op, args)?;
                op.infer(&[TensorType::rows(x.n.into(), x.k).into()]).map_err(RowsError::Shape)?;
                (x.n / run * to, x.k, x.rank, Node::Filled([*run, *to], Box::new(x)))
            }
            Op::PlaceCols => return placed(exactly(op, args)?),
            Op::Binary(f) => return elementwise(*f, exactly(op, args)?),
            Op::UnitRows => return Ok(of_one(exactly(op, args)?, Node::UnitRows)),
            Op::Unary(f) => return Ok(of_one(exactly(op, args)?, |x| Node::Unary(*f, x))),
            // Nothing to stream: the whole of it, by the definition of the operation.
            op => return whole(op, args),
        };
        Ok(Rows { n, k, rank, stack, node })
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
                let size = dtype.bytes().unwrap_or(0);
                convert(*dtype, &bytes[from * k * size..][..out.len() * size], out);
            }
            Node::Stored(_, rows) => rows.values(from, out),
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
            Node::UnitRows(x) => {
                x.fill(from, out);
                for row in out.chunks_exact_mut(k) {
                    let norm = row_norm(row.iter().map(|v| f64::from(*v)));
                    row.iter_mut().for_each(|v| *v = (f64::from(*v) / norm) as f32);
                }
            }
            Node::Concat(parts) => fill_parts(parts, from, out, k),
            Node::Slice(start, x) => x.fill(start + from, out),
            Node::Picked(how, x) => {
                out.chunks_exact_mut(k).enumerate().for_each(|(i, row)| x.fill(picked_row(*how, from + i), row));
            }
            Node::Filled(how, x) => out.chunks_exact_mut(k).enumerate().for_each(|(i, row)| {
                row.fill(0.0);
                filled_row(*how, from + i).into_iter().for_each(|of| x.fill(of, row));
            }),
            Node::Placed(order, x) => {
                let mut stored = vec![0f32; out.len()];
                x.fill(from, &mut stored);
                for (row, stored) in out.chunks_exact_mut(k).zip(stored.chunks_exact(k)) {
                    order.iter().zip(stored).for_each(|(j, v)| row[*j] = *v);
                }
            }
            Node::Binary(op, a, b) => {
                let mut other = vec![0f32; out.len()];
                a.fill(from, out);
                b.fill(from, &mut other);
                out.iter_mut().zip(&other).for_each(|(v, o)| *v = binary(*op, *v, *o));
            }
            Node::Tiled(op, a, b) => {
                a.fill(from, out);
                // A row is whole periods of the vector, or (for vectors) one element of them.
                let at = |i: usize| b[(from * k + i) % b.len()];
                out.iter_mut().enumerate().for_each(|(i, v)| *v = binary(*op, *v, at(i)));
            }
            Node::Unary(op, x) => {
                x.fill(from, out);
                // The inverse of infinity would be a number.
                out.iter_mut().for_each(|v| *v = if v.is_finite() { op.eval((*v).into()) as f32 } else { f32::NAN });
            }
        }
    }

    /// The codes of `count` rows from `from` on, if they are codes of `format`.
    pub fn codes(&self, from: usize, count: usize, format: Format) -> Option<Vec<CodedRow>> {
        let encoding = format.encoding();
        let mut rows = vec![CodedRow::new(&encoding, self.k); count];
        let own = format.with_packing(Packing::Panel);
        rows.iter_mut().enumerate().all(|(i, row)| self.codes_of(from + i, own, row)).then_some(rows)
    }

    /// Writes the codes of a row; `false` if it has none of that format.
    fn codes_of(&self, row: usize, format: Format, out: &mut CodedRow) -> bool {
        match &self.node {
            Node::Stored(dtype, rows) if *dtype == DType::Coded(format) => {
                rows.codes(row, out);
                true
            }
            Node::Slice(start, x) => x.codes_of(start + row, format, out),
            Node::Picked(how, x) => x.codes_of(picked_row(*how, row), format, out),
            Node::Filled(how, x) => match filled_row(*how, row) {
                Some(of) => x.codes_of(of, format, out),
                None => {
                    x.codes_of(0, format, out) && {
                        *out = zeros(format, self.k);
                        true
                    }
                }
            },
            Node::Concat(parts) => {
                let mut row = row;
                for part in parts {
                    match row.checked_sub(part.n) {
                        Some(rest) => row = rest,
                        None => return part.codes_of(row, format, out),
                    }
                }
                false
            }
            Node::Stored(..)
            | Node::Bytes(..)
            | Node::Values(_)
            | Node::Transpose(_)
            | Node::Placed(..)
            | Node::ScaleCols(..)
            | Node::ScaleRows(..)
            | Node::UnitRows(..)
            | Node::Binary(..)
            | Node::Tiled(..)
            | Node::Unary(..) => false,
        }
    }

    /// Rows `from..` of `n` elements of the transposed matrices: columns of these.
    fn fill_transposed(&self, mut from: usize, mut out: &mut [f32], n: usize) {
        while !out.is_empty() {
            let (matrix, first) = (from / self.k, from % self.k);
            let count = (out.len() / n).min(self.k - first);
            let (some, rest) = out.split_at_mut(count * n);
            let mut columns = vec![0f32; count];
            for i in 0..n {
                self.columns(matrix * n + i, first, &mut columns);
                columns.iter().enumerate().for_each(|(j, v)| some[j * n + i] = *v);
            }
            (from, out) = (from + count, rest);
        }
    }

    /// Columns `first..` of a row.
    fn columns(&self, row: usize, first: usize, out: &mut [f32]) {
        // Codes are decoded by whole rows.
        if let Node::Bytes(dtype, bytes) = &self.node
            && let Some(size) = dtype.bytes()
        {
            return convert(*dtype, &bytes[(row * self.k + first) * size..][..out.len() * size], out);
        }
        let mut whole = vec![0f32; self.k];
        self.fill(row, &mut whole);
        out.copy_from_slice(&whole[first..][..out.len()]);
    }
}

/// Non-finite values stay non-finite.
fn binary(op: BinaryOp, a: f32, b: f32) -> f32 {
    if a.is_finite() && b.is_finite() { op.eval(a.into(), b.into()) as f32 } else { f32::NAN }
}

/// Names of the tensors of an expression, each once.
pub(crate) fn leaf_names(e: &WeightExpr, module: &Module) -> String {
    let mut names: Vec<&str> = vec![];
    e.leaves(&mut |i| {
        if let Some(w) = module.weights.get(i)
            && !names.contains(&w.name.as_str())
        {
            names.push(&w.name);
        }
    });
    names.join(" + ")
}

fn leaf<'a>(i: usize, module: &'a Module, source: &'a dyn WeightSource) -> Result<Rows<'a>, RowsError> {
    let weight = module.weights.get(i).ok_or_else(|| RowsError::Shape(format!("no weight {i}")))?;
    let dims: Option<Vec<usize>> = weight.ty.shape.iter().map(|d| d.known()).collect();
    let dims = dims.ok_or_else(|| RowsError::Shape(format!("weight `{}` has no fixed shape", weight.name)))?;
    let (n, k, stack) = match dims[..] {
        [] => (1, 1, 1),
        [n] => (n, 1, 1),
        [n, k] => (n, k, 1),
        [e, n, k] => (e.saturating_mul(n), k, e),
        _ => return Err(RowsError::Shape(format!("weight `{}` is {}", weight.name, weight.ty))),
    };
    let mismatch = |found: String| {
        RowsError::Leaf(PackError::Mismatch { name: weight.name.clone(), found, wanted: weight.ty.to_string() })
    };
    let node = match &weight.data {
        Some(v) if v.len() == n * k => Node::Values(v.as_slice().into()),
        Some(v) => return Err(mismatch(format!("{} computed values", v.len()))),
        None if let Some(rows) = source.rows(&weight.name) => Node::Stored(weight.ty.dtype, rows),
        None => {
            let t: TensorBytes<'a> =
                source.tensor(&weight.name).ok_or_else(|| RowsError::Leaf(PackError::Missing(weight.name.clone())))?;
            // Dimensions of 1 inside, as convolutions have them, do not count, and matrices may be
            // stored one below the other. All numbers of an output of a convolution are a row of its matrix,
            // as are those of all heads.
            let apart = |dims: &[usize]| dims.iter().copied().filter(|n| *n != 1).collect::<Vec<_>>();
            let stacked = dims.len() == 3 && t.shape == [n, k];
            let kernel = dims.len() == 2 && t.shape.len() > 2 && t.shape[0] == n;
            let kernel = kernel && t.shape[1..].iter().try_fold(1, |all: usize, n| all.checked_mul(*n)) == Some(k);
            if t.shape != dims && !stacked && !kernel && (t.shape.len() <= 2 || apart(&t.shape) != apart(&dims))
                || t.dtype != weight.ty.dtype
                || !t.dtype.is_float()
                || t.dtype.bytes().is_none_or(|bytes| t.data.len() != n * k * bytes)
            {
                return Err(mismatch(format!("{}{:?} in {} bytes", t.dtype, t.shape, t.data.len())));
            }
            Node::Bytes(t.dtype, t.data)
        }
    };
    Ok(Rows { n, k, rank: dims.len(), stack, node })
}

fn exactly<'a, const N: usize>(op: &Op, args: Vec<Rows<'a>>) -> Result<[Rows<'a>; N], RowsError> {
    let found = args.len();
    args.try_into().map_err(|_| RowsError::Shape(format!("`{}` of {found} arguments, not {N}", op.name())))
}

/// A node of the same size as its operand.
fn of_one<'a>([x]: [Rows<'a>; 1], node: impl FnOnce(Box<Rows<'a>>) -> Node<'a>) -> Rows<'a> {
    Rows { n: x.n, k: x.k, rank: x.rank, stack: 1, node: node(Box::new(x)) }
}

/// The products of the rows of a matrix with one row: a row at a time.
fn dots<'a>(op: &Op, [a, b]: [Rows<'a>; 2]) -> Result<Rows<'a>, RowsError> {
    let types = [&a, &b].map(|x| TensorType::rows(x.n.into(), x.k).into());
    op.infer(&types).map_err(RowsError::Shape)?;
    let (with, mut row) = (b.all(), vec![0f32; a.k]);
    let dot = |i: usize| {
        a.fill(i, &mut row);
        row.iter().zip(&with).map(|(x, y)| f64::from(*x) * f64::from(*y)).sum::<f64>() as f32
    };
    let values: Vec<f32> = (0..a.n).map(dot).collect();
    Ok(Rows { n: a.n, k: 1, rank: 2, stack: 1, node: Node::Values(values.into()) })
}

/// An operation evaluated at once.
fn whole<'a>(op: &Op, args: Vec<Rows<'a>>) -> Result<Rows<'a>, RowsError> {
    if matches!((op, &args[..]), (Op::MulTransposed, [_, Rows { n: 1, .. }])) {
        return dots(op, exactly(op, args)?);
    }
    let tensor = |x: Rows<'_>| {
        let shape: &[usize] = match x.rank {
            0 => &[],
            1 => &[x.n],
            _ => &[x.n, x.k],
        };
        WeightTensor { shape: shape.to_vec(), data: x.all() }
    };
    let args: Vec<WeightTensor> = args.into_iter().map(tensor).collect();
    let finite = args.iter().all(|x| x.data.iter().all(|v| v.is_finite()));
    let WeightTensor { shape, mut data } = eval_weight_op(op, args).map_err(|e| RowsError::Shape(e.to_string()))?;
    if !finite {
        data.fill(f32::NAN);
    }
    let (n, k) = match shape[..] {
        [] => (1, 1),
        [n] => (n, 1),
        [n, k] => (n, k),
        _ => return Err(RowsError::Shape(format!("`{}` is of shape {shape:?}", op.name()))),
    };
    Ok(Rows { n, k, rank: shape.len(), stack: 1, node: Node::Values(data.into()) })
}

/// A matrix whose columns are brought where an order says.
fn placed<'a>([x, order]: [Rows<'a>; 2]) -> Result<Rows<'a>, RowsError> {
    let (n, k, rank) = (x.n, x.k, x.rank);
    let order = places(order.all().into_iter().map(f64::from), k).map_err(|e| RowsError::Shape(e.to_string()))?;
    if order.len() != k {
        return Err(RowsError::Shape(format!("an order of {} columns does not fit {n}×{k}", order.len())));
    }
    Ok(Rows { n, k, rank, stack: 1, node: Node::Placed(order, Box::new(x)) })
}

/// A matrix with its columns, or its rows, multiplied by a number each.
fn scaled<'a>(cols: bool, [w, g]: [Rows<'a>; 2]) -> Result<Rows<'a>, RowsError> {
    let g = g.all();
    if g.len() != if cols { w.k } else { w.n } {
        return Err(RowsError::Shape(format!("{} scales for {}×{}", g.len(), w.n, w.k)));
    }
    let (n, k, w) = (w.n, w.k, Box::new(w));
    let node = if cols { Node::ScaleCols(w, g) } else { Node::ScaleRows(w, g) };
    Ok(Rows { n, k, rank: 2, stack: 1, node })
}

fn elementwise<'a>(op: BinaryOp, [a, b]: [Rows<'a>; 2]) -> Result<Rows<'a>, RowsError> {
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
    Ok(Rows { n, k, rank, stack: 1, node })
}

/// The row that row `i` of runs of `run` rows, made `to` rows each, is; `None` if it is one of zeros.
fn filled_row([run, to]: [usize; 2], i: usize) -> Option<usize> {
    let (of, j) = (i / to, i % to);
    (j < run).then(|| of * run + j)
}

/// A row of zeros as codes: by scales of 0, or, where a scale is a power of two, by codes of 0.
fn zeros(format: Format, k: usize) -> CodedRow {
    let e = format.encoding();
    let mut row = CodedRow::new(&e, k);
    for (scale, factors) in e.scales.iter().zip([&mut row.factors, &mut row.above]) {
        if scale.is_some_and(|s| matches!(s.kind, ScaleKind::E8m0)) {
            factors.fill((1.0, 0.0));
        }
    }
    row
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
        // `leaf` admits floats only, and no codes here.
        DType::I8 | DType::U8 | DType::I32 | DType::I64 | DType::Coded(_) => out.fill(f32::NAN),
    }
}
