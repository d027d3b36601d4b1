//! Expression trees: the value of one element `(row, column)`.
//!
//! Every operation rounds to f32 by itself, as the evaluator and the CPU do. Accumulators come from a tile in shared memory, so any column of the
//! tile can be read: RoPE reads the partner column, a normalized value multiplies by the factor of its run, computed in a pass of its own (`epilogue.rs`).

use crate::cx::{Args, Cx, f32_at, vector_at};
use crate::mlir::{Builder, Cmp, F32, V};
use llmcc_codegen::CodegenError;
use llmcc_ir::graph::{BinaryOp, UnaryOp};
use llmcc_ir::kernel::{Expr, Norm, ParamId, RowElem};

/// An f32 tile in shared memory: element `(row, col)` at `base + 4·(row·stride + col)`.
#[derive(Clone, Copy, Debug)]
pub struct SharedTile {
    /// First element.
    pub base: V,
    /// Elements from one row to the next.
    pub stride: usize,
}

impl SharedTile {
    /// Address of an element.
    pub fn at(&self, b: &mut Builder, row: V, col: V) -> V {
        let line = b.mulc(row, self.stride as i64);
        let index = b.add(line, col);
        let offset = b.shlc(index, 2);
        b.at(self.base, offset)
    }
}

/// A normalized subexpression, evaluated in an earlier pass: its argument's values and the factor of each run.
#[derive(Clone, Copy, Debug)]
pub struct Normalized {
    /// Values of the argument.
    pub values: SharedTile,
    /// One factor per row and run.
    pub factors: SharedTile,
    /// Columns of a run.
    pub width: usize,
}

/// Where a tile lies in its segment and what has been computed for it.
pub struct Env<'a> {
    /// The kernel.
    pub cx: &'a Cx<'a>,
    /// Its arguments.
    pub args: Args<'a>,
    /// Columns of the segment.
    pub n: usize,
    /// First row of the tile in the step.
    pub row0: V,
    /// First column of the tile in the segment.
    pub col0: V,
    /// One tile per lane.
    pub acc: &'a [SharedTile],
    /// Normalized subexpressions, in the order in which [`normalized`] lists them.
    pub normalized: Vec<(Expr, Normalized)>,
}

/// Normalized subexpressions of an expression, inner ones first.
pub fn normalized(e: &Expr) -> Vec<(Norm, &Expr, &Expr)> {
    fn walk<'e>(e: &'e Expr, out: &mut Vec<(Norm, &'e Expr, &'e Expr)>) {
        match e {
            Expr::Acc(_) | Expr::Rows { .. } | Expr::Vector(_) | Expr::Const(_) => {}
            Expr::Unary(_, x) | Expr::Rope { x, .. } => walk(x, out),
            Expr::Binary(_, a, b) => {
                walk(a, out);
                walk(b, out);
            }
            Expr::Normalize(norm, x) => {
                walk(x, out);
                if !out.iter().any(|(_, known, _)| *known == e) {
                    out.push((*norm, e, x));
                }
            }
        }
    }
    let mut out = vec![];
    walk(e, &mut out);
    out
}

impl Env<'_> {
    /// The value of `e` at row `row` and column `col` of the tile (both `i32`, inside the step and the segment).
    ///
    /// # Errors
    /// Operands of the wrong kind.
    pub fn value(&self, b: &mut Builder, e: &Expr, row: V, col: V) -> Result<V, CodegenError> {
        Ok(match e {
            Expr::Acc(lane) => {
                let tile = self.acc.get(*lane).ok_or_else(|| self.cx.error(format!("there is no accumulator {lane}")))?;
                let p = tile.at(b, row, col);
                b.load(p, F32)
            }
            Expr::Rows { param, start } => self.rows_value(b, *param, *start, row, col)?,
            Expr::Vector(param) => {
                let len = self.cx.vector(*param)?;
                let col = b.add(self.col0, col);
                vector_at(b, self.args.operand(*param), len, self.n, col)
            }
            Expr::Const(c) => b.f32(c.get()),
            Expr::Unary(op, x) => {
                let x = self.value(b, x, row, col)?;
                unary(b, *op, x)
            }
            Expr::Binary(op, x, y) => {
                let (x, y) = (self.value(b, x, row, col)?, self.value(b, y, row, col)?);
                binary(b, *op, x, y)
            }
            Expr::Normalize(..) => {
                let found = self.normalized.iter().find(|(known, _)| known == e);
                let (_, n) = found.ok_or_else(|| self.cx.error("a normalized value was not prepared"))?;
                let p = n.values.at(b, row, col);
                let x = b.load(p, F32);
                let run = b.divc(col, n.width as i64);
                let p = n.factors.at(b, row, run);
                let factor = b.load(p, F32);
                b.fmul(x, factor)
            }
            Expr::Rope { head_dim, table, x } => self.rope(b, *head_dim, *table, x, (row, col))?,
        })
    }

    /// Element of a matrix of rows, converted to f32.
    fn rows_value(&self, b: &mut Builder, param: ParamId, start: usize, row: V, col: V) -> Result<V, CodegenError> {
        let (cols, elem) = self.cx.rows(param)?;
        if elem != RowElem::F32 {
            return Err(self.cx.error("an expression reads rows that are not f32"));
        }
        let row = b.add(self.row0, row);
        let col = b.add(self.col0, col);
        let col = b.addc(col, start as i64);
        let p = f32_at(b, self.args.operand(param), cols, row, col);
        Ok(b.load(p, F32))
    }

    /// `x` rotated: column `j` of a head pairs with `j ± half`.
    fn rope(&self, b: &mut Builder, head_dim: usize, table: ParamId, x: &Expr, (row, col): (V, V)) -> Result<V, CodegenError> {
        let (rotary, _) = self.cx.rows(table)?;
        let half = (rotary / 2) as i64;
        let global = b.add(self.col0, col);
        let j = b.remc(global, head_dim as i64);
        let own = self.value(b, x, row, col)?;
        let low = b.cmpc(Cmp::Slt, j, half);
        let (up, down) = (b.i32(half), b.i32(-half));
        let step = b.select(low, up, down);
        let partner_col = b.add(col, step);
        // Columns beyond the rotary part are left alone; they have no partner, so they read themselves.
        let rotated = b.cmpc(Cmp::Slt, j, rotary as i64);
        let partner_col = b.select(rotated, partner_col, col);
        let partner = self.value(b, x, row, partner_col)?;
        let jj = b.remc(j, half.max(1));
        let table_row = b.add(self.row0, row);
        let p = f32_at(b, self.args.operand(table), rotary, table_row, jj);
        let (cos, p_sin) = (b.load(p, F32), b.atc(p, half * 4));
        let sin = b.load(p_sin, F32);
        let turned = b.fneg(sin);
        let sin = b.select(low, turned, sin);
        let (main, cross) = (b.fmul(own, cos), b.fmul(partner, sin));
        let sum = b.fadd(main, cross);
        Ok(b.select(rotated, sum, own))
    }
}

/// `log2 e`.
const LOG2_E: f32 = std::f32::consts::LOG2_E;

/// `e^x`.
pub fn exp(b: &mut Builder, x: V) -> V {
    let c = b.f32(LOG2_E);
    let y = b.fmul(x, c);
    b.exp2(y)
}

/// `1 / (1 + e^-x)`.
fn sigmoid(b: &mut Builder, x: V) -> V {
    let minus = b.fneg(x);
    let e = exp(b, minus);
    let one = b.f32(1.0);
    let d = b.fadd(one, e);
    b.rcp(d)
}

/// `tanh x = 2·sigmoid(2x) − 1` away from 0, its series near 0 where that would cancel.
fn tanh(b: &mut Builder, x: V) -> V {
    let x2 = b.fadd(x, x);
    let s = sigmoid(b, x2);
    let (two, minus_one) = (b.f32(2.0), b.f32(-1.0));
    let far = b.fma(s, two, minus_one);
    // x − x³/3 + 2x⁵/15 − 17x⁷/315: below 1e-7 relative for |x| < 0.25.
    let sq = b.fmul(x, x);
    let (c7, c5, c3) = (b.f32(-17.0 / 315.0), b.f32(2.0 / 15.0), b.f32(-1.0 / 3.0));
    let p = b.fma(c7, sq, c5);
    let p = b.fma(p, sq, c3);
    let p = b.fmul(p, sq);
    let near = b.fma(p, x, x);
    let bound = b.f32(0.0625);
    let small = b.flt(sq, bound);
    b.select(small, near, far)
}

/// `erf x` by Abramowitz and Stegun 7.1.26 (|error| < 1.5e-7).
fn erf(b: &mut Builder, x: V) -> V {
    let zero = b.f32(0.0);
    let negative = b.flt(x, zero);
    let minus = b.fneg(x);
    let a = b.select(negative, minus, x);
    let (p, one) = (b.f32(0.327_591_1), b.f32(1.0));
    let d = b.fma(p, a, one);
    let t = b.rcp(d);
    let poly = [1.061_405_4, -1.453_152, 1.421_413_8, -0.284_496_74, 0.254_829_6];
    let mut sum = b.f32(poly[0]);
    for c in &poly[1..] {
        let c = b.f32(*c);
        sum = b.fma(sum, t, c);
    }
    let sum = b.fmul(sum, t);
    let sq = b.fmul(a, a);
    let sq = b.fneg(sq);
    let e = exp(b, sq);
    let tail = b.fmul(sum, e);
    let value = b.fsub(one, tail);
    let turned = b.fneg(value);
    b.select(negative, turned, value)
}

/// An elementwise function.
pub fn unary(b: &mut Builder, op: UnaryOp, x: V) -> V {
    match op {
        UnaryOp::Neg => b.fneg(x),
        UnaryOp::Exp => exp(b, x),
        UnaryOp::Sigmoid => sigmoid(b, x),
        UnaryOp::Silu => {
            let s = sigmoid(b, x);
            b.fmul(x, s)
        }
        UnaryOp::Gelu => {
            let c = b.f32(std::f32::consts::FRAC_1_SQRT_2);
            let y = b.fmul(x, c);
            let e = erf(b, y);
            let (one, half) = (b.f32(1.0), b.f32(0.5));
            let s = b.fadd(one, e);
            let h = b.fmul(x, half);
            b.fmul(h, s)
        }
        UnaryOp::GeluTanh => {
            let sq = b.fmul(x, x);
            let (c, one) = (b.f32(0.044_715), b.f32(1.0));
            let p = b.fma(c, sq, one);
            let p = b.fmul(p, x);
            let c = b.f32(0.797_884_56);
            let y = b.fmul(p, c);
            let t = tanh(b, y);
            let half = b.f32(0.5);
            let s = b.fadd(one, t);
            let h = b.fmul(x, half);
            b.fmul(h, s)
        }
        UnaryOp::Relu => {
            let zero = b.f32(0.0);
            b.fmax(x, zero)
        }
        UnaryOp::Tanh => tanh(b, x),
    }
}

/// An elementwise function of two values.
pub fn binary(b: &mut Builder, op: BinaryOp, x: V, y: V) -> V {
    match op {
        BinaryOp::Add => b.fadd(x, y),
        BinaryOp::Sub => b.fsub(x, y),
        BinaryOp::Mul => b.fmul(x, y),
        BinaryOp::Div => b.fdiv(x, y),
        BinaryOp::Max => b.fmax(x, y),
        BinaryOp::Min => b.fmin(x, y),
    }
}
