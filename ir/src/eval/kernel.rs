//! Kernel level.

use super::kv::{KvState, attention};
use super::rows::elem_name;
use super::scalar::{normalize, rope, rope_row};
use super::{Batch, EvalError, Fp8Rows, Q8Rows, Rows};
use crate::diag::Severity;
use crate::kernel::{
    Attention, Body, Embed, Expr, Kernel, Matmul, Norm, ParamId, ParamKind, Pointwise, Prologue, RopeTable, RowElem, RowNorm, Segment,
    Store, TopK,
};
use crate::quant::{Format, unpack_row};
use crate::ty::Dim;
use crate::verify::verify_kernel;
use std::borrow::Cow;

/// What is bound to a kernel parameter.
#[derive(Clone, Debug, PartialEq)]
pub enum OperandData<'a> {
    /// For [`ParamKind::Rows`] of f32, f16 or bf16: of 16 bits, the values are such as the parameter's storage holds.
    Rows(Rows),
    /// For [`ParamKind::Rows`] of int8.
    Q8(Q8Rows),
    /// For [`ParamKind::Rows`] of e4m3.
    Fp8(Fp8Rows),
    /// For [`ParamKind::Matrix`]: packed bytes, see [`llmcc_abi::layout`].
    Matrix(Cow<'a, [u8]>),
    /// For [`ParamKind::Vector`].
    Vector(Cow<'a, [f32]>),
    /// For [`ParamKind::Kv`].
    Kv(KvState),
}

impl OperandData<'_> {
    /// An operand of the given kind for rows that a kernel writes: NaN everywhere. `None` for kinds that are not rows.
    pub fn poisoned(kind: &ParamKind, batch: &Batch) -> Option<OperandData<'static>> {
        match *kind {
            ParamKind::Rows { rows, cols, elem } => {
                let m = rows.eval(batch.env());
                Some(match elem {
                    RowElem::F32 | RowElem::F16 | RowElem::Bf16 => OperandData::Rows(Rows::poisoned(m, cols)),
                    RowElem::Q8 { group } => OperandData::Q8(Q8Rows::poisoned(m, cols, group)),
                    RowElem::Fp8 => OperandData::Fp8(Fp8Rows::poisoned(m, cols)),
                })
            }
            ParamKind::Matrix { .. } | ParamKind::Vector { .. } | ParamKind::Kv(_) => None,
        }
    }
}

/// Values per row, before they are stored.
type Values = Vec<Vec<f64>>;

/// Runs one kernel on a batch: all its items, reading every operand before storing anything.
///
/// `operands` has one entry per parameter of the kernel; rows that the kernel stores are replaced, rows it does not store keep their values.
/// Arithmetic is f64; rows are rounded to f32 when stored (also before they are rounded to f16 or bf16, or quantized, in f32, to int8 or fp8 rows or into the cache).
/// What is stored is read back exactly.
///
/// # Errors
/// [`EvalError`] when the kernel is malformed, an operand is not what its parameter says, or the batch names tokens, rows or positions that do not exist.
pub fn eval_kernel(kernel: &Kernel, batch: &Batch, operands: &mut [OperandData<'_>]) -> Result<(), EvalError> {
    batch.check()?;
    if let Some(d) = verify_kernel(kernel).into_iter().find(|d| d.severity == Severity::Error) {
        return Err(EvalError::malformed(&kernel.name, d.to_string()));
    }
    check_operands(kernel, batch, operands)?;
    let cx = Cx { kernel, batch, operands, m: kernel.rows.eval(batch.env()) };
    let mut stores: Vec<(Store, Values)> = vec![];
    match &kernel.body {
        Body::Matmul(k) => cx.matmul(k, &mut stores)?,
        Body::RowNorm(k) => stores.push((rows_store(k.out), cx.row_norm(k)?)),
        Body::Pointwise(k) => cx.pointwise(k, &mut stores)?,
        Body::Embed(k) => stores.push((rows_store(k.out), cx.embed(k)?)),
        Body::RopeTable(k) => stores.push((rows_store(k.out), cx.rope_table(k)?)),
        Body::Attention(k) => stores.push((rows_store(k.out), cx.attention(k)?)),
        Body::TopK(k) => stores.push((rows_store(k.out), cx.top_k(k)?)),
    }
    for (to, values) in stores {
        store(kernel, batch, operands, &to, &values)?;
    }
    Ok(())
}

fn rows_store(param: ParamId) -> Store {
    Store::Rows { param, start: 0 }
}

/// Each operand is what its parameter says.
fn check_operands(kernel: &Kernel, batch: &Batch, operands: &[OperandData<'_>]) -> Result<(), EvalError> {
    if operands.len() != kernel.params.len() {
        return Err(EvalError::malformed(&kernel.name, format!("{} operands for {} parameters", operands.len(), kernel.params.len())));
    }
    for (p, o) in kernel.params.iter().zip(operands) {
        let bad = match (&p.kind, o) {
            (ParamKind::Rows { rows, cols, elem }, OperandData::Rows(r)) if !elem.is_quantized() => {
                let m = rows.eval(batch.env());
                let inexact = |v: &f32| !v.is_nan() && elem.round(*v) != *v;
                if r.cols != *cols || r.data.len() != m * cols {
                    Some(format!("must be [{m}, {cols}], not {} values in rows of {}", r.data.len(), r.cols))
                } else {
                    r.data.iter().find(|v| inexact(v)).map(|v| format!("cannot hold {v} in {}", elem_name(*elem)))
                }
            }
            (ParamKind::Rows { rows, cols, elem: RowElem::Q8 { group } }, OperandData::Q8(r)) => {
                let m = rows.eval(batch.env());
                let fits = r.cols == *cols && r.group == *group && r.codes.len() == m * cols;
                let fits = fits && r.scales.len() == m * r.groups() && r.sums.len() == r.scales.len();
                (!fits).then(|| format!("must be int8 [{m}, {cols}] in groups of {group}"))
            }
            (ParamKind::Rows { rows, cols, elem: RowElem::Fp8 }, OperandData::Fp8(r)) => {
                let m = rows.eval(batch.env());
                let fits = r.cols == *cols && r.scales.len() == m && r.codes.len() == m * cols;
                (!fits).then(|| format!("must be fp8 [{m}, {cols}]"))
            }
            (ParamKind::Matrix { n, k, format }, OperandData::Matrix(b)) => {
                let want = format.packed_bytes(*n, *k);
                (b.len() < want).then(|| format!("must have {want} bytes, not {}", b.len()))
            }
            (ParamKind::Vector { len }, OperandData::Vector(v)) => {
                (v.len() < *len).then(|| format!("must have {len} elements, not {}", v.len()))
            }
            (ParamKind::Kv(spec), OperandData::Kv(kv)) => (kv.spec != *spec).then(|| format!("must be {spec}, not {}", kv.spec)),
            (kind, _) => Some(format!("is not of the kind {kind:?}")),
        };
        if let Some(message) = bad {
            return Err(EvalError::operand(&kernel.name, &p.name, message));
        }
    }
    Ok(())
}

/// A kernel with what it reads.
struct Cx<'a, 'd> {
    kernel: &'a Kernel,
    batch: &'a Batch,
    operands: &'a [OperandData<'d>],
    /// Rows of the kernel.
    m: usize,
}

impl Cx<'_, '_> {
    fn malformed(&self, message: impl Into<String>) -> EvalError {
        EvalError::malformed(&self.kernel.name, message)
    }

    /// Row `i` of a matrix of rows.
    fn row(&self, param: ParamId, i: usize) -> Result<Vec<f64>, EvalError> {
        match self.operands.get(param) {
            Some(OperandData::Rows(r)) if i < r.rows() => Ok(r.row(i).iter().map(|v| f64::from(*v)).collect()),
            Some(OperandData::Q8(r)) if i < r.rows() => Ok(r.row(i)),
            Some(OperandData::Fp8(r)) if i < r.rows() => Ok(r.row(i)),
            _ => Err(self.malformed(format!("operand {param} has no row {i}"))),
        }
    }

    fn vector(&self, param: ParamId) -> Result<&[f32], EvalError> {
        match (self.kernel.params.get(param).map(|p| &p.kind), self.operands.get(param)) {
            (Some(ParamKind::Vector { len }), Some(OperandData::Vector(v))) if *len > 0 => Ok(&v[..*len]),
            _ => Err(self.malformed(format!("operand {param} must be a vector"))),
        }
    }

    /// `(n, k, format, bytes)`.
    fn matrix(&self, param: ParamId) -> Result<(usize, usize, Format, &[u8]), EvalError> {
        match (self.kernel.params.get(param).map(|p| &p.kind), self.operands.get(param)) {
            (Some(ParamKind::Matrix { n, k, format }), Some(OperandData::Matrix(bytes))) => Ok((*n, *k, *format, bytes)),
            _ => Err(self.malformed(format!("operand {param} must be a matrix"))),
        }
    }

    fn kv(&self, param: ParamId) -> Result<&KvState, EvalError> {
        match self.operands.get(param) {
            Some(OperandData::Kv(kv)) => Ok(kv),
            _ => Err(self.malformed(format!("operand {param} must be an attention state"))),
        }
    }

    fn norm(&self, x: &mut [f64], norm: &Norm) -> Result<(), EvalError> {
        if norm.width == 0 || !x.len().is_multiple_of(norm.width) {
            return Err(self.malformed(format!("normalization of {} columns in runs of {}", x.len(), norm.width)));
        }
        normalize(x, norm.width, norm.eps.get().into());
        Ok(())
    }

    fn gain(&self, x: &mut [f64], gain: Option<ParamId>) -> Result<(), EvalError> {
        if let Some(g) = gain {
            let g = self.vector(g)?;
            x.iter_mut().enumerate().for_each(|(j, v)| *v *= f64::from(g[j % g.len()]));
        }
        Ok(())
    }

    fn matmul(&self, k: &Matmul, stores: &mut Vec<(Store, Values)>) -> Result<(), EvalError> {
        let mut x: Values = vec![];
        for i in 0..self.m {
            let row = self.row(k.x, i)?;
            x.push(match &k.prologue {
                Some(p) => self.prologue(p, row)?,
                None => row,
            });
        }
        for segment in &k.segments {
            let lanes: Result<Vec<Values>, EvalError> = segment.weights.iter().map(|w| self.product(&x, *w, segment.n)).collect();
            stores.push((segment.store.clone(), self.segment(segment, &lanes?)?));
        }
        Ok(())
    }

    fn prologue(&self, p: &Prologue, mut x: Vec<f64>) -> Result<Vec<f64>, EvalError> {
        if let Some(norm) = &p.norm {
            self.norm(&mut x, norm)?;
        }
        self.gain(&mut x, p.gain)?;
        Ok(match p.elem {
            RowElem::Q8 { group: 0 } => return Err(self.malformed("quantization in groups of 0")),
            RowElem::Q8 { group } => Q8Rows::quantize(&Rows { cols: x.len(), data: to_f32(&x) }, group).row(0),
            RowElem::Fp8 => Fp8Rows::quantize(&Rows { cols: x.len(), data: to_f32(&x) }).row(0),
            RowElem::F16 | RowElem::Bf16 => to_f32(&x).into_iter().map(|v| p.elem.round(v).into()).collect(),
            RowElem::F32 => x,
        })
    }

    /// `x·wᵀ`. An int8 row is exact in f64, and so is the sum of codes of a group: the result is that of integer arithmetic.
    fn product(&self, x: &Values, weights: ParamId, n: usize) -> Result<Values, EvalError> {
        let (rows, k, format, bytes) = self.matrix(weights)?;
        if rows != n || x.iter().any(|row| row.len() != k) {
            return Err(self.malformed(format!("operand {weights} is [{rows}, {k}], the segment has {n} columns")));
        }
        let mut y = vec![vec![0.0; n]; x.len()];
        let mut w = vec![0f32; k];
        for j in 0..n {
            unpack_row(format, bytes, k, j, &mut w);
            for (y, x) in y.iter_mut().zip(x) {
                y[j] = x.iter().zip(&w).map(|(a, b)| a * f64::from(*b)).sum();
            }
        }
        Ok(y)
    }

    fn pointwise(&self, k: &Pointwise, stores: &mut Vec<(Store, Values)>) -> Result<(), EvalError> {
        for segment in &k.segments {
            stores.push((segment.store.clone(), self.segment(segment, &[])?));
        }
        Ok(())
    }

    fn segment(&self, s: &Segment, lanes: &[Values]) -> Result<Values, EvalError> {
        (0..self.m).map(|i| self.expr(&s.expr, s.n, i, lanes)).collect()
    }

    /// An expression for row `i`, all `n` columns of the segment.
    fn expr(&self, e: &Expr, n: usize, i: usize, lanes: &[Values]) -> Result<Vec<f64>, EvalError> {
        Ok(match e {
            Expr::Acc(lane) => lanes.get(*lane).ok_or_else(|| self.malformed(format!("no accumulator {lane}")))?[i].clone(),
            Expr::Rows { param, start } => {
                let row = self.row(*param, i)?;
                let end = start.saturating_add(n);
                row.get(*start..end).ok_or_else(|| self.malformed(format!("operand {param} has no columns {start}..{end}")))?.to_vec()
            }
            Expr::Vector(param) => {
                let v = self.vector(*param)?;
                (0..n).map(|j| f64::from(v[j % v.len()])).collect()
            }
            Expr::Const(c) => vec![f64::from(c.get()); n],
            Expr::Unary(op, x) => self.expr(x, n, i, lanes)?.into_iter().map(|v| op.eval(v)).collect(),
            Expr::Binary(op, a, b) => {
                let (a, b) = (self.expr(a, n, i, lanes)?, self.expr(b, n, i, lanes)?);
                a.into_iter().zip(b).map(|(a, b)| op.eval(a, b)).collect()
            }
            Expr::Normalize(norm, x) => {
                let mut x = self.expr(x, n, i, lanes)?;
                self.norm(&mut x, norm)?;
                x
            }
            Expr::Rope { head_dim, table, x } => {
                let (mut x, table) = (self.expr(x, n, i, lanes)?, self.row(*table, i)?);
                if *head_dim == 0 || !x.len().is_multiple_of(*head_dim) || table.len() > *head_dim {
                    return Err(self.malformed(format!("RoPE of {n} columns in heads of {head_dim} by a table of {}", table.len())));
                }
                rope(&mut x, *head_dim, &table);
                x
            }
        })
    }

    fn row_norm(&self, k: &RowNorm) -> Result<Values, EvalError> {
        let mut out = vec![];
        for i in 0..self.m {
            let from =
                if k.gather { self.batch.out_rows.get(i).copied().ok_or_else(|| self.malformed("gather needs rows R"))? } else { i };
            let mut x = self.row(k.x, from)?;
            if let Some(norm) = &k.norm {
                self.norm(&mut x, norm)?;
            }
            self.gain(&mut x, k.gain)?;
            out.push(x);
        }
        Ok(out)
    }

    fn embed(&self, k: &Embed) -> Result<Values, EvalError> {
        let (n, cols, format, bytes) = self.matrix(k.table)?;
        let mut row = vec![0f32; cols];
        let mut out = vec![];
        for token in &self.batch.tokens {
            let id = usize::try_from(*token).ok().filter(|t| *t < n);
            let id = id.ok_or_else(|| EvalError::batch(format!("token {token} is outside the vocabulary of {n}")))?;
            unpack_row(format, bytes, cols, id, &mut row);
            out.push(row.iter().map(|v| f64::from(*v)).collect());
        }
        Ok(out)
    }

    fn rope_table(&self, k: &RopeTable) -> Result<Values, EvalError> {
        let freq = self.vector(k.inv_freq)?;
        Ok(self.batch.positions.iter().map(|p| rope_row(*p, freq, k.scale.get().into())).collect())
    }

    fn attention(&self, k: &Attention) -> Result<Values, EvalError> {
        let kv = self.kv(k.kv)?;
        let q: Result<Values, EvalError> = (0..self.m).map(|i| self.row(k.q, i)).collect();
        attention(kv, &self.batch.seqs, &self.batch.positions, &q?, k.heads, k.scale).map_err(|e| match e {
            EvalError::Malformed { message, .. } => self.malformed(message),
            e => e,
        })
    }
}

impl Cx<'_, '_> {
    fn top_k(&self, k: &TopK) -> Result<Values, EvalError> {
        let wanted = |i: usize| self.batch.wanted.get(i).copied().unwrap_or_default();
        (0..self.m).map(|i| Ok(super::top_k::top_k(&self.row(k.x, i)?, k.k, wanted(i)))).collect()
    }
}

fn to_f32(x: &[f64]) -> Vec<f32> {
    x.iter().map(|v| *v as f32).collect()
}

/// Rounds the values of a segment and puts them where it says.
fn store(kernel: &Kernel, batch: &Batch, operands: &mut [OperandData<'_>], to: &Store, values: &Values) -> Result<(), EvalError> {
    let fail = |message: String| EvalError::malformed(&kernel.name, message);
    let (Store::Rows { param, .. } | Store::KvKey(param) | Store::KvValue(param)) = to;
    let operand = operands.get_mut(*param).ok_or_else(|| fail(format!("no operand {param}")))?;
    let start = if let Store::Rows { start, .. } = to { *start } else { 0 };
    let elem = match kernel.params.get(*param).map(|p| &p.kind) {
        Some(ParamKind::Rows { elem, .. }) => *elem,
        _ => RowElem::F32,
    };
    for (i, row) in values.iter().enumerate() {
        let end = start.saturating_add(row.len());
        let row = to_f32(row);
        match (to, &mut *operand) {
            (Store::Rows { .. }, OperandData::Rows(r)) if end <= r.cols && i < r.rows() => {
                let to = &mut r.data[i * r.cols + start..][..row.len()];
                to.iter_mut().zip(row).for_each(|(to, v)| *to = elem.round(v));
            }
            (Store::Rows { .. }, OperandData::Q8(r)) if end <= r.cols && i < r.rows() => {
                if r.group == 0 || !start.is_multiple_of(r.group) || !(row.len().is_multiple_of(r.group) || end == r.cols) {
                    return Err(fail(format!(
                        "columns {start}..{end} are not whole groups of {}",
                        elem_name(RowElem::Q8 { group: r.group })
                    )));
                }
                r.store(i, start, &row);
            }
            (Store::Rows { .. }, OperandData::Fp8(r)) if row.len() == r.cols && i < r.rows() => r.store(i, &row),
            (Store::KvKey(_) | Store::KvValue(_), OperandData::Kv(kv)) if row.len() == kv.spec.width() && kernel.rows == Dim::Tokens => {
                let (seq, position) = (batch.seqs[i], batch.positions[i] as usize);
                let row: Vec<f64> = row.iter().map(|v| f64::from(*v)).collect();
                match to {
                    Store::KvKey(_) => kv.store_key(seq, position, &row),
                    Store::KvValue(_) | Store::Rows { .. } => kv.store_value(seq, position, &row),
                }
            }
            _ => return Err(fail(format!("row {i}, columns {start}..{end} do not fit operand {param}"))),
        }
    }
    Ok(())
}
