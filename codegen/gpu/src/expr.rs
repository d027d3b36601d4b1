//! Expression trees: the values of a piece of adjacent columns of one row.
//!
//! Every operation rounds to f32 by itself, as the evaluator and the CPU do. Accumulators come from
//! a tile in shared memory, so any column of the tile can be read: RoPE reads the partner columns,
//! a normalized value multiplies by the factor of its run, computed in a pass of its own
//! (`epilogue.rs`).

mod leaves;

use crate::cx::{Args, Cx};
use crate::mlir::{Builder, Cmp, Elem, F32, I32, I64, V};
use crate::piece::{self, col_at, row_at};
use llmcc_abi::layout::fp8_row;
use llmcc_ir::graph::{BinaryOp, UnaryOp};
use llmcc_ir::kernel::{Expr, Norm, ParamId, RowElem};
use llmcc_ir::quant::BLOCK;

/// An f32 tile in shared memory: element `(row, col)` at `base + 4·(row·stride + col)`. `base` is a
/// multiple of 16; where `stride` is a multiple of 4, pieces of four columns are loaded at once.
#[derive(Clone, Copy, Debug)]
pub struct SharedTile {
    /// First element.
    pub base: V,
    /// Elements from one row to the next.
    pub stride: usize,
    /// The pending factor of a column's values.
    pub scale: Option<RowScales>,
    /// The pending factor of a row's values.
    pub row_scale: Option<InputScales>,
}

/// Scales of fp8 rows.
#[derive(Clone, Copy, Debug)]
pub struct InputScales {
    /// The rows.
    pub base: V,
    /// Their columns.
    pub cols: usize,
}

impl InputScales {
    /// That of a row.
    fn load(&self, b: &mut Builder, row: V) -> V {
        let line = row_at(b, self.base, self.cols, RowElem::Fp8, row);
        let p = b.atc(line, fp8_row(self.cols).scale as i64);
        b.load(p, F32)
    }
}

/// Scales of the rows of a matrix in fragment order that has one each: they are at the start of its
/// blocks.
#[derive(Clone, Copy, Debug)]
pub struct RowScales {
    /// The matrix.
    pub base: V,
    /// Bytes of a block of 16 rows.
    pub block: usize,
}

impl RowScales {
    /// Scales of rows `row..row + n`, all in one block.
    fn load(&self, b: &mut Builder, row: V, n: usize) -> Vec<V> {
        let (block, within) = (b.shrc(row, BLOCK.trailing_zeros().into()), b.andc(row, BLOCK as i64 - 1));
        let block = b.zext(block, I64);
        let start = b.mulc(block, self.block as i64);
        let line = b.at(self.base, start);
        let p = col_at(b, line, Elem::F16, within);
        piece::load(b, p, Elem::F16, n)
    }
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

/// A normalized subexpression, evaluated in an earlier pass: its argument's values and the factor
/// of each run.
#[derive(Clone, Copy, Debug)]
pub struct Normalized {
    /// Values of the argument.
    pub values: SharedTile,
    /// One factor per row and run.
    pub factors: SharedTile,
    /// Columns of a run.
    pub width: usize,
}

/// The place of a tile in its segment, and the values computed for it.
pub struct Env<'a> {
    /// The kernel.
    pub cx: &'a Cx<'a>,
    /// Its arguments.
    pub args: Args<'a>,
    /// Columns of the segment.
    pub n: usize,
    /// Columns of a piece: [`piece_of`] or less.
    pub width: usize,
    /// First row of the tile in the step.
    pub row0: V,
    /// First column of the tile in the segment.
    pub col0: V,
    /// One tile per lane.
    pub acc: &'a [SharedTile],
    /// Normalized subexpressions, in the order in which [`normalized`] lists them.
    pub normalized: Vec<(Expr, Normalized)>,
    /// Meaning of the rows in products of experts.
    pub slots: Option<Slots<'a>>,
}

/// Rows of a tile that are slots of tokens, all of one expert.
#[derive(Clone, Copy)]
pub struct Slots<'a> {
    /// Token of a row of the tile, and first column of its slot.
    pub place: &'a dyn Fn(&mut Builder, V) -> (V, V),
    /// The expert.
    pub expert: V,
}

/// The widest piece (1, 2 or 4 columns) in which an expression can be evaluated: runs, halves of
/// heads, vectors and rows are cut in whole pieces. `n`: columns of the segment.
pub fn piece_of(cx: &Cx<'_>, e: &Expr, n: usize, acc: &[SharedTile], most: usize) -> usize {
    let mut columns: Vec<usize> = acc.iter().map(|t| t.stride).collect();
    e.visit(&mut |e| match e {
        Expr::Acc(_) | Expr::Const(_) | Expr::Unary(..) | Expr::Binary(..) => {}
        Expr::Rows { param, start } => columns.extend([*start, cx.cols(*param)]),
        Expr::Vector(param) => columns.push(cx.kernel.vector(*param)),
        Expr::Expert { top, .. } => columns.push(n / top),
        // An order has all columns of the segment.
        Expr::Pick { .. } => columns.push(n),
        Expr::Combine { y, count, .. } => {
            let cols = cx.cols(*y);
            columns.extend([cols, cols / count]);
        }
        Expr::Normalize(norm, _) => columns.push(norm.width),
        Expr::Rope { head_dim, table, .. } => columns.extend([*head_dim, cx.cols(*table) / 2]),
    });
    piece::widest(most, columns)
}

/// Normalized subexpressions of an expression, inner ones first.
pub fn normalized(e: &Expr) -> Vec<(Norm, &Expr, &Expr)> {
    fn walk<'e>(e: &'e Expr, out: &mut Vec<(Norm, &'e Expr, &'e Expr)>) {
        e.parts().into_iter().flatten().for_each(|x| walk(x, out));
        if let Expr::Normalize(norm, x) = e
            && !out.iter().any(|(_, known, _)| *known == e)
        {
            out.push((*norm, e, x));
        }
    }
    let mut out = vec![];
    walk(e, &mut out);
    out
}

impl Env<'_> {
    /// Row in the step of a row of the tile, and the first column of its slot, if it is one.
    pub fn row(&self, b: &mut Builder, row: V) -> (V, Option<V>) {
        match &self.slots {
            Some(slots) => {
                let (row, start) = (slots.place)(b, row);
                (row, Some(start))
            }
            None => (b.add(self.row0, row), None),
        }
    }

    /// Column of rows that is column `col` of the tile.
    pub fn column(&self, b: &mut Builder, col: V, start: Option<V>) -> V {
        let col = b.add(self.col0, col);
        start.map_or(col, |start| b.add(start, col))
    }

    /// The values of `e` at row `row` and columns `col..col + width` of the tile (both `i32`,
    /// inside the step and the segment; `col` a multiple of the width).
    pub fn values(&self, b: &mut Builder, e: &Expr, row: V, col: V) -> Vec<V> {
        match e {
            Expr::Acc(lane) => {
                let tile = self.acc[*lane];
                let p = tile.at(b, row, col);
                let mut x = piece::load(b, p, Elem::F32, self.width);
                if let Some(scale) = tile.row_scale {
                    let row = b.add(self.row0, row);
                    let scale = scale.load(b, row);
                    x.iter_mut().for_each(|x| *x = b.fmul(*x, scale));
                }
                let Some(scale) = tile.scale else { return x };
                let col = b.add(self.col0, col);
                let scales = scale.load(b, col, self.width);
                x.into_iter().zip(scales).map(|(x, s)| b.fmul(x, s)).collect()
            }
            Expr::Rows { param, start } => self.rows_values(b, *param, *start, row, col),
            Expr::Vector(param) => self.vector_values(b, *param, col),
            Expr::Const(c) => vec![b.f32(c.get()); self.width],
            Expr::Expert { vector, routes, top } => self.expert_values(b, (*vector, *routes, *top), row, col),
            Expr::Pick { rows, order } => self.picked_values(b, (*rows, *order), row, col),
            Expr::Combine { weights, from, y, count } => {
                let mut sum: Option<Vec<V>> = None;
                for s in 0..*count {
                    let w = self.element(b, *weights, from + s, row);
                    let y = self.rows_values(b, *y, s * self.n, row, col);
                    let y: Vec<V> = y.into_iter().map(|y| b.fmul(w, y)).collect();
                    sum = Some(match sum {
                        Some(sum) => sum.into_iter().zip(y).map(|(sum, y)| b.fadd(sum, y)).collect(),
                        None => y,
                    });
                }
                sum.unwrap_or_default()
            }
            Expr::Unary(op, x) => {
                let x = self.values(b, x, row, col);
                x.into_iter().map(|x| unary(b, *op, x)).collect()
            }
            Expr::Binary(op, x, y) => {
                let (x, y) = (self.values(b, x, row, col), self.values(b, y, row, col));
                x.into_iter().zip(y).map(|(x, y)| binary(b, *op, x, y)).collect()
            }
            Expr::Normalize(..) => {
                let Some((_, n)) = self.normalized.iter().find(|(known, _)| known == e) else {
                    unreachable!("the epilogue normalizes before it asks for values");
                };
                let p = n.values.at(b, row, col);
                let x = piece::load(b, p, Elem::F32, self.width);
                let run = b.divc(col, n.width as i64);
                let p = n.factors.at(b, row, run);
                let factor = b.load(p, F32);
                x.into_iter().map(|x| b.fmul(x, factor)).collect()
            }
            Expr::Rope { head_dim, table, x } => self.rope(b, *head_dim, *table, x, (row, col)),
        }
    }

    /// `x` rotated: column `j` of a head pairs with `j ± half`.
    fn rope(&self, b: &mut Builder, head_dim: usize, table: ParamId, x: &Expr, (row, col): (V, V)) -> Vec<V> {
        let (rotary, elem) = self.cx.rows(table);
        let half = (rotary / 2) as i64;
        let global = b.add(self.col0, col);
        let j = b.remc(global, head_dim as i64);
        let own = self.values(b, x, row, col);
        let low = b.cmpc(Cmp::Slt, j, half);
        let (up, down) = (b.i32(half), b.i32(-half));
        let step = b.select(low, up, down);
        let partner_col = b.add(col, step);
        // Columns beyond the rotary part are left alone; they have no partner, so they read
        // themselves.
        let rotated = b.cmpc(Cmp::Slt, j, rotary as i64);
        let partner_col = b.select(rotated, partner_col, col);
        let partner = self.values(b, x, row, partner_col);
        let jj = b.remc(j, half);
        let table_row = b.add(self.row0, row);
        let line = row_at(b, self.args.operand(table), rotary, elem, table_row);
        let p = col_at(b, line, Elem::F32, jj);
        let cos = piece::load(b, p, Elem::F32, self.width);
        let p = b.atc(p, half * 4);
        let sin = piece::load(b, p, Elem::F32, self.width);
        let mut out = vec![];
        for i in 0..self.width {
            let turned = b.fneg(sin[i]);
            let sin = b.select(low, turned, sin[i]);
            let (main, cross) = (b.fmul(own[i], cos[i]), b.fmul(partner[i], sin));
            let sum = b.fadd(main, cross);
            out.push(b.select(rotated, sum, own[i]));
        }
        out
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
pub fn tanh(b: &mut Builder, x: V) -> V {
    let x2 = b.fadd(x, x);
    let s = sigmoid(b, x2);
    let (two, minus_one) = (b.f32(2.0), b.f32(-1.0));
    let far = b.fma(s, two, minus_one);
    // x − x³/3 + 2x⁵/15 − 17x⁷/315 + 62x⁹/2835: the next term is below 1e-8 relative for |x| <
    // 0.25.
    let sq = b.fmul(x, x);
    let (c9, c7, c5, c3) = (b.f32(62.0 / 2835.0), b.f32(-17.0 / 315.0), b.f32(2.0 / 15.0), b.f32(-1.0 / 3.0));
    let p = b.fma(c9, sq, c7);
    let p = b.fma(p, sq, c5);
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

/// `log(1 + e^x) = max(x, 0) + 2·artanh(s)`, `s = z/(2 + z)`, `z = e^(−|x|)`: a series in a number
/// up to 1/3. Its first term is `2s = z − s·z`, so an error of `s` counts a third.
fn softplus(b: &mut Builder, x: V) -> V {
    let (zero, two) = (b.f32(0.0), b.f32(2.0));
    let negative = b.fneg(x);
    let magnitude = b.fmax(x, negative);
    let exponent = b.fneg(magnitude);
    let z = exp(b, exponent);
    let denominator = b.fadd(z, two);
    let s = b.fdiv(z, denominator);
    let square = b.fmul(s, s);
    let mut sum = b.f32(2.0 / 15.0);
    for n in [13.0, 11.0, 9.0, 7.0, 5.0, 3.0] {
        let c = b.f32(2.0 / n);
        sum = b.fma(sum, square, c);
    }
    let sum = b.fneg(sum);
    let part = b.fma(sum, square, z);
    let part = b.fneg(part);
    let log = b.fma(part, s, z);
    let positive = b.fmax(x, zero);
    b.fadd(positive, log)
}

/// Between two numbers.
fn clamp(b: &mut Builder, x: V, least: f32, most: f32) -> V {
    let (least, most) = (b.f32(least), b.f32(most));
    let x = b.fmax(x, least);
    b.fmin(x, most)
}

/// The nearest number of 4 significant bits that is a multiple of 2⁻⁹: 1.5 times the power of two that
/// is 2²⁰ times that of `x`, added, leaves these bits.
fn round_e4m3(b: &mut Builder, x: V) -> V {
    let bits = b.bitcast(x, I32);
    let exponent = b.andc(bits, 0xff << 23);
    let least = b.i32((127 - 6) << 23);
    let exponent = b.smax(exponent, least);
    let up = b.i32((20 << 23) | (1 << 22));
    let magic = b.add(exponent, up);
    let magic = b.bitcast(magic, F32);
    let shifted = b.fadd(x, magic);
    b.fsub(shifted, magic)
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
            // (1 + tanh u)/2 = sigmoid 2u, without cancelling.
            let sq = b.fmul(x, x);
            let (c, one) = (b.f32(0.044_715), b.f32(1.0));
            let p = b.fma(c, sq, one);
            let p = b.fmul(p, x);
            let c = b.f32(1.595_769);
            let y = b.fmul(p, c);
            let s = sigmoid(b, y);
            b.fmul(x, s)
        }
        UnaryOp::Relu => {
            let zero = b.f32(0.0);
            b.fmax(x, zero)
        }
        UnaryOp::Tanh => tanh(b, x),
        UnaryOp::Relu2 => {
            let x = unary(b, UnaryOp::Relu, x);
            b.fmul(x, x)
        }
        UnaryOp::Sqrt => {
            let x = unary(b, UnaryOp::Relu, x);
            b.sqrt(x)
        }
        UnaryOp::Softplus => softplus(b, x),
        UnaryOp::RoundI8 => {
            let x = clamp(b, x, -128.0, 127.0);
            // 1.5·2²³ leaves integers.
            let magic = b.f32(12_582_912.0);
            let shifted = b.fadd(x, magic);
            b.fsub(shifted, magic)
        }
        UnaryOp::RoundE4m3 => {
            let x = clamp(b, x, -448.0, 448.0);
            round_e4m3(b, x)
        }
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
