//! Kernel level.

use super::kv::KvState;
use super::rows::elem_name;
use super::scalar::{dot, normalize, rope, subtract_mean};
use super::{Batch, EvalError, Fp8Rows, Q8Rows, Rows};
use crate::graph::{column, combined, expert};
use crate::kernel::{Checked, Expr, Kernel, MatrixOperand, Norm, Outcome, ParamId, ParamKind, RowElem, Segment, Store};
use crate::quant::unpack_row;
use crate::state::{AdapterState, FixedState, State};
use crate::ty::Dim;
use llmcc_abi::layout::excess_parts;
use std::borrow::Cow;
use std::ops::Range;

/// The operand bound to a kernel parameter.
#[derive(Clone, Debug, PartialEq)]
pub enum OperandData<'a> {
    /// For [`ParamKind::Rows`] of f32, f16 or bf16: of 16 bits, the values are such as the
    /// parameter's storage holds.
    Rows(Rows),
    /// For [`ParamKind::Rows`] of int8.
    Q8(Q8Rows),
    /// For [`ParamKind::Rows`] of e4m3.
    Fp8(Fp8Rows),
    /// For [`ParamKind::Matrix`]: packed bytes, see [`llmcc_abi::layout`].
    Matrix(Cow<'a, [u8]>),
    /// For [`ParamKind::Vector`].
    Vector(Cow<'a, [f32]>),
    /// For [`ParamKind::State`].
    State(State),
}

impl OperandData<'_> {
    /// An operand of the given kind for rows that a kernel writes: NaN everywhere. `None` for kinds
    /// that are not rows.
    pub fn poisoned(kind: &ParamKind, batch: &Batch) -> Option<OperandData<'static>> {
        match *kind {
            ParamKind::Rows { rows, cols, elem } => {
                let m = rows.eval(batch.env());
                Some(match elem {
                    RowElem::F32 | RowElem::F16 | RowElem::Bf16 => OperandData::Rows(Rows::poisoned(m, cols)),
                    RowElem::Q8 { group } | RowElem::I8 { group } => OperandData::Q8(Q8Rows::poisoned(m, cols, group)),
                    RowElem::Fp8 => OperandData::Fp8(Fp8Rows::poisoned(m, cols)),
                })
            }
            ParamKind::Matrix { .. } | ParamKind::Vector { .. } | ParamKind::State(_) => None,
        }
    }
}

/// Values per row, before they are stored.
pub(crate) type RowValues = Vec<Vec<f64>>;

/// Runs one kernel on a batch: all its items, reading every operand before storing anything.
///
/// `operands` has one entry per parameter of the kernel; rows that the kernel stores are replaced,
/// rows it does not store keep their values. Arithmetic is f64; rows are rounded to f32 when stored
/// (also before they are rounded to f16 or bf16, or quantized, in f32, to int8 or fp8 rows or into
/// the cache). Stored values are read back exactly.
///
/// # Errors
/// [`EvalError`] when the kernel is malformed, an operand does not match its parameter, or the
/// batch names tokens, rows or positions that do not exist.
pub fn eval_kernel(kernel: &Kernel, batch: &Batch, operands: &mut [OperandData<'_>]) -> Result<(), EvalError> {
    batch.check()?;
    let checked = kernel.check().map_err(|errors| {
        let first = errors.first().map_or_else(String::new, ToString::to_string);
        EvalError::malformed(&kernel.name, first)
    })?;
    check_operands(kernel, batch, operands)?;
    let run = KernelRun { kernel: checked, batch, operands, m: kernel.rows.eval(batch.env()) };
    let Outcome { stores, states } = kernel.body.family().eval(&run)?;
    for (param, mut state) in states {
        state.round();
        operands[param] = OperandData::State(state);
    }
    for (to, values) in stores {
        store(kernel, batch, operands, &to, &values)?;
    }
    Ok(())
}

/// Each operand matches its parameter.
fn check_operands(kernel: &Kernel, batch: &Batch, operands: &[OperandData<'_>]) -> Result<(), EvalError> {
    if operands.len() != kernel.params.len() {
        return Err(EvalError::malformed(
            &kernel.name,
            format!("{} operands for {} parameters", operands.len(), kernel.params.len()),
        ));
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
            (
                ParamKind::Rows { rows, cols, elem: RowElem::Q8 { group } | RowElem::I8 { group } },
                OperandData::Q8(r),
            ) => {
                let m = rows.eval(batch.env());
                let fits = r.cols == *cols && r.group == *group && r.codes.len() == m * cols;
                let fits = fits && r.scales.len() == m * r.groups() && r.sums.len() == r.scales.len();
                let fits = fits && r.excesses.len() == r.sums.len() * excess_parts(*group);
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
            (ParamKind::State(spec), OperandData::State(state)) => {
                (state.spec() != *spec).then(|| format!("must be {spec}, not {}", state.spec()))
            }
            (kind, _) => Some(format!("is not of the kind {kind:?}")),
        };
        if let Some(message) = bad {
            return Err(EvalError::operand(&kernel.name, &p.name, message));
        }
    }
    Ok(())
}

/// A kernel that the verifier accepts, with operands that match its parameters: its reads are in
/// range.
pub(crate) struct KernelRun<'a, 'd> {
    pub kernel: Checked<'a>,
    pub batch: &'a Batch,
    operands: &'a [OperandData<'d>],
    /// Rows of the kernel.
    pub m: usize,
}

impl KernelRun<'_, '_> {
    /// Row `i` of a matrix of rows.
    pub fn row(&self, param: ParamId, i: usize) -> Vec<f64> {
        match &self.operands[param] {
            OperandData::Rows(r) => r.row(i).iter().map(|v| f64::from(*v)).collect(),
            OperandData::Q8(r) => r.row(i),
            OperandData::Fp8(r) => r.row(i),
            OperandData::Matrix(_) | OperandData::Vector(_) | OperandData::State(_) => self.other(param),
        }
    }

    /// `n` columns from `start` on of all rows.
    pub fn columns(&self, param: ParamId, start: usize, n: usize) -> RowValues {
        (0..self.m).map(|i| self.row(param, i)[start..][..n].to_vec()).collect()
    }

    pub fn vector(&self, param: ParamId) -> &[f32] {
        match &self.operands[param] {
            OperandData::Vector(v) => &v[..self.kernel.vector(param)],
            _ => self.other(param),
        }
    }

    /// Row `j` of a matrix, as its codes decode.
    pub fn matrix_row(&self, param: ParamId, j: usize) -> Vec<f64> {
        let MatrixOperand { k, format, .. } = self.kernel.matrix(param);
        let OperandData::Matrix(bytes) = &self.operands[param] else { self.other(param) };
        let mut row = vec![0f32; k];
        unpack_row(format, bytes, k, j, &mut row);
        row.into_iter().map(f64::from).collect()
    }

    pub fn kv(&self, param: ParamId) -> &KvState {
        self.state(param).paged().unwrap_or_else(|| self.other(param))
    }

    pub fn fixed(&self, param: ParamId) -> &FixedState {
        self.state(param).fixed().unwrap_or_else(|| self.other(param))
    }

    pub fn adapter(&self, param: ParamId) -> &AdapterState {
        self.state(param).adapter().unwrap_or_else(|| self.other(param))
    }

    pub fn state(&self, param: ParamId) -> &State {
        match &self.operands[param] {
            OperandData::State(state) => state,
            _ => self.other(param),
        }
    }

    /// Operands have been compared with their parameters.
    fn other(&self, param: ParamId) -> ! {
        unreachable!("operand {param} of kernel `{}` is bound to something else", self.kernel.name)
    }

    pub fn norm(&self, x: &mut [f64], norm: &Norm) {
        let Norm { eps, width, center } = *norm;
        if center {
            subtract_mean(x, width);
        }
        normalize(x, width, eps.get().into());
    }

    /// Element `j` times element `j mod len` of the gain.
    pub fn gain(&self, x: &mut [f64], gain: Option<ParamId>) {
        if let Some(g) = gain {
            let g = self.vector(g);
            x.iter_mut().enumerate().for_each(|(j, v)| *v *= f64::from(g[j % g.len()]));
        }
    }

    /// Element `j` and element `j mod len` of the bias.
    pub fn bias(&self, x: &mut [f64], bias: Option<ParamId>) {
        if let Some(b) = bias {
            let b = self.vector(b);
            x.iter_mut().enumerate().for_each(|(j, v)| *v += f64::from(b[j % b.len()]));
        }
    }

    /// A row as it reads back once it is stored.
    pub fn stored(&self, x: Vec<f64>, elem: RowElem) -> Vec<f64> {
        match elem {
            RowElem::Q8 { group } => Q8Rows::quantize(&Rows { cols: x.len(), data: to_f32(&x) }, group).row(0),
            RowElem::I8 { group } => Q8Rows::integers(&Rows { cols: x.len(), data: to_f32(&x) }, group).row(0),
            RowElem::Fp8 => Fp8Rows::quantize(&Rows { cols: x.len(), data: to_f32(&x) }).row(0),
            RowElem::F16 | RowElem::Bf16 => to_f32(&x).into_iter().map(|v| elem.round(v).into()).collect(),
            RowElem::F32 => x,
        }
    }

    /// `x·wᵀ`. An int8 row is exact in f64, and so is the sum of codes of a group: the result is
    /// that of integer arithmetic.
    pub fn product(&self, x: &[Vec<f64>], weights: ParamId) -> RowValues {
        let n = self.kernel.matrix(weights).n;
        let mut y = vec![vec![0.0; n]; x.len()];
        for j in 0..n {
            let w = self.matrix_row(weights, j);
            for (y, x) in y.iter_mut().zip(x) {
                y[j] = x.iter().zip(&w).map(|(a, b)| a * b).sum();
            }
        }
        y
    }

    /// `x` times rows of a matrix.
    pub fn product_with(&self, x: &[f64], weights: ParamId, rows: Range<usize>) -> Vec<f64> {
        rows.map(|j| dot(x, &self.matrix_row(weights, j))).collect()
    }

    /// The expression of a segment for all rows; `lanes` are its products.
    ///
    /// # Errors
    /// A row of routes names an expert that does not exist.
    pub fn segment(&self, s: &Segment, lanes: &[RowValues]) -> Result<RowValues, EvalError> {
        let row = |i: usize| self.expr(&s.expr, &At { n: s.n, row: i, slot: None, product: i }, lanes);
        (0..self.m).map(row).collect()
    }

    /// The expression of a segment for slot `slot` of `top` of row `i`; `lanes` have its products
    /// alone.
    ///
    /// # Errors
    /// As [`Self::segment`].
    pub fn slot(
        &self,
        s: &Segment,
        i: usize,
        slot: (usize, usize),
        lanes: &[RowValues],
    ) -> Result<Vec<f64>, EvalError> {
        self.expr(&s.expr, &At { n: s.n, row: i, slot: Some(slot), product: 0 }, lanes)
    }

    /// An expression for all columns of a row of the segment, or of a slot of it.
    fn expr(&self, e: &Expr, at: &At, lanes: &[RowValues]) -> Result<Vec<f64>, EvalError> {
        let (n, i) = (at.n, at.row);
        Ok(match e {
            Expr::Acc(lane) => lanes[*lane][at.product].clone(),
            Expr::Rows { param, start } => {
                let start = start + at.slot.map_or(0, |(slot, _)| slot * n);
                self.row(*param, i)[start..start + n].to_vec()
            }
            Expr::Expert { vector, routes, top } => {
                let (v, routes) = (self.vector(*vector), self.row(*routes, i));
                let (slots, part) = match at.slot {
                    Some((slot, _)) => (slot..slot + 1, n),
                    None => (0..*top, n / top),
                };
                let mut out = vec![];
                for slot in slots {
                    let e = expert(&routes, slot, v.len() / part)?;
                    out.extend(v[e * part..][..part].iter().map(|v| f64::from(*v)));
                }
                out
            }
            Expr::Pick { rows, order } => {
                let (row, order) = (self.row(*rows, i), self.vector(*order));
                let picked = order.iter().map(|j| Ok(row[column(f64::from(*j), row.len())?]));
                picked.collect::<Result<_, EvalError>>()?
            }
            Expr::Combine { weights, from, y, count } => {
                combined(&self.row(*weights, i)[*from..][..*count], &self.row(*y, i))
            }
            Expr::Vector(param) => {
                let v = self.vector(*param);
                (0..n).map(|j| f64::from(v[j % v.len()])).collect()
            }
            Expr::Const(c) => vec![f64::from(c.get()); n],
            Expr::Unary(op, x) => self.expr(x, at, lanes)?.into_iter().map(|v| op.eval(v)).collect(),
            Expr::Binary(op, a, b) => {
                let (a, b) = (self.expr(a, at, lanes)?, self.expr(b, at, lanes)?);
                a.into_iter().zip(b).map(|(a, b)| op.eval(a, b)).collect()
            }
            Expr::Normalize(norm, x) => {
                let mut x = self.expr(x, at, lanes)?;
                self.norm(&mut x, norm);
                x
            }
            Expr::Rope { head_dim, table, x } => {
                let mut x = self.expr(x, at, lanes)?;
                rope(&mut x, *head_dim, &self.row(*table, i));
                x
            }
        })
    }
}

/// Where an expression is evaluated.
struct At {
    /// Columns.
    n: usize,
    row: usize,
    /// Slot and number of slots, in products of experts.
    slot: Option<(usize, usize)>,
    /// Row of the products.
    product: usize,
}

fn to_f32(x: &[f64]) -> Vec<f32> {
    x.iter().map(|v| *v as f32).collect()
}

/// Rounds the values of a segment and puts them where it says.
fn store(
    kernel: &Kernel,
    batch: &Batch,
    operands: &mut [OperandData<'_>],
    to: &Store,
    values: &RowValues,
) -> Result<(), EvalError> {
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
                if r.group == 0
                    || !start.is_multiple_of(r.group)
                    || !(row.len().is_multiple_of(r.group) || end == r.cols)
                {
                    return Err(fail(format!("columns {start}..{end} are not whole groups of {}", elem_name(elem))));
                }
                r.store(i, start, &row, elem);
            }
            (Store::Rows { .. }, OperandData::Fp8(r)) if row.len() == r.cols && i < r.rows() => r.store(i, &row),
            (Store::KvKey(_) | Store::KvValue(_), OperandData::State(State::Paged(kv)))
                if row.len() == kv.spec.width(matches!(to, Store::KvKey(_))) && kernel.rows == Dim::Tokens =>
            {
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
