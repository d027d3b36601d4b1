//! Square matrices with sums near one: a lane per column, whose elements are in registers; matrices of
//! several rows are side by side in a warp.
//!
//! A column is added up from top to bottom, a row over lanes in a fixed tree: a matrix depends on
//! nothing but itself.

use crate::cx::{Cx, when_below};
use crate::expr::unary;
use crate::mlir::{Builder, Cmp, Elem, F32, V, WARP};
use crate::piece::{col_at, row_at};
use crate::{Source, blocks, per_rows};
use llmcc_ir::graph::UnaryOp;
use llmcc_ir::kernel::{RowElem, Sinkhorn};

/// Emits the kernel.
pub fn emit(cx: &Cx<'_>, k: &Sinkhorn) -> Source {
    let side = k.balance.side;
    let lanes = side.next_power_of_two();
    let together = WARP / lanes;
    let (mlir, program) = cx.function(WARP as u32, 1, |b, args| {
        let m = cx.row_count(b, args);
        let (lane, block) = (b.sreg("tid.x"), b.sreg("ctaid.x"));
        let first = b.mulc(block, together as i64);
        when_below(b, first, m, |b| {
            let of_warp = b.divc(lane, lanes as i64);
            let row = b.add(first, of_warp);
            let there = b.cmp(Cmp::Slt, row, m);
            // All lanes take part in sums: those without a row have the last one, those without a
            // column a column of zeros.
            let last = b.addc(m, -1);
            let row = b.min(row, last);
            let column = b.andc(lane, lanes as i64 - 1);
            let inside = b.cmpc(Cmp::Slt, column, side as i64);
            let last = b.i32(side as i64 - 1);
            let own = b.min(column, last);
            let from = row_at(b, args.operand(k.x), side * side, RowElem::F32, row);
            let from = col_at(b, from, Elem::F32, own);
            let c = OwnColumns { inside, masks: masks(lanes), eps: b.f32(k.balance.eps.get()) };
            let x = load(b, from, side);
            let x = c.softmax(b, &x);
            let x = c.divide_rows(b, &x);
            let (lo, hi, one) = (b.i32(1), b.i32(k.balance.rounds as i64), b.i32(1));
            let x = b.for_((lo, hi, one), &x, |b, _, x| {
                let x = c.divide_column(b, x);
                c.divide_rows(b, &x)
            });
            let stores = b.and(there, inside);
            b.if_(stores, |b| {
                let to = row_at(b, args.operand(k.out), side * side, RowElem::F32, row);
                let to = col_at(b, to, Elem::F32, own);
                for (i, x) in x.into_iter().enumerate() {
                    let p = b.atc(to, (4 * i * side) as i64);
                    b.store(x, p);
                }
            });
        });
    });
    Source::new(cx.entry(), (mlir, program), WARP as u32, [per_rows(together), blocks(1), blocks(1)])
}

/// The distances between lanes of a matrix, from the highest bit on.
fn masks(lanes: usize) -> Vec<i64> {
    (0..lanes.trailing_zeros()).rev().map(|bit| 1 << bit).collect()
}

/// A column, from top to bottom.
fn load(b: &mut Builder, from: V, side: usize) -> Vec<V> {
    (0..side)
        .map(|i| {
            let p = b.atc(from, (4 * i * side) as i64);
            b.load(p, F32)
        })
        .collect()
}

/// The columns of a matrix, one in each lane.
struct OwnColumns {
    /// Whether the lane has one.
    inside: V,
    masks: Vec<i64>,
    eps: V,
}

impl OwnColumns {
    fn softmax(&self, b: &mut Builder, x: &[V]) -> Vec<V> {
        let most = x[1..].iter().fold(x[0], |most, x| b.fmax(most, *x));
        let exps: Vec<V> = x
            .iter()
            .map(|x| {
                let x = b.fsub(*x, most);
                unary(b, UnaryOp::Exp, x)
            })
            .collect();
        let sum = sum(b, &exps);
        let x = exps.into_iter().map(|x| {
            let x = b.fdiv(x, sum);
            b.fadd(x, self.eps)
        });
        x.collect()
    }

    fn divide_column(&self, b: &mut Builder, x: &[V]) -> Vec<V> {
        let sum = sum(b, x);
        let sum = b.fadd(sum, self.eps);
        x.iter().map(|x| b.fdiv(*x, sum)).collect()
    }

    fn divide_rows(&self, b: &mut Builder, x: &[V]) -> Vec<V> {
        let zero = b.f32(0.0);
        x.iter()
            .map(|x| {
                let x = b.select(self.inside, *x, zero);
                let sum = b.reduce(x, &self.masks, |b, x, y| b.fadd(x, y));
                let sum = b.fadd(sum, self.eps);
                b.fdiv(x, sum)
            })
            .collect()
    }
}

/// From top to bottom.
fn sum(b: &mut Builder, x: &[V]) -> V {
    x[1..].iter().fold(x[0], |sum, x| b.fadd(sum, *x))
}
