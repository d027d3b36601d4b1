//! Square matrices with sums near one, in registers: a vector has up to four elements of a row.
//!
//! A row is added up from left to right, a column from top to bottom: a matrix depends on nothing but
//! itself.

use super::Lowering;
use super::emit::{Emit, LANES};
use cranelift_codegen::ir::Value;
use llmcc_ir::kernel::Sinkhorn;

/// Emits the rows `lo..hi`.
pub(super) fn lower(low: &Lowering, e: &mut Emit, k: &Sinkhorn) {
    let (side, eps) = (k.balance.side, k.balance.eps.get());
    let m = Square { side, vectors: side.div_ceil(LANES), eps };
    e.each(low.args.lo, low.args.hi, 1, |e, row| {
        let from = e.index(low.args.operand(k.x), row, side * side * 4);
        let to = e.index(low.args.operand(k.out), row, side * side * 4);
        let x = m.load(e, from);
        let x = m.softmax_of_columns(e, &x);
        let x = m.divide_rows(e, &x);
        let x = e.fixed(k.balance.rounds - 1, 1, &x, |e, _, x| {
            let x = m.divide_columns(e, x);
            m.divide_rows(e, &x)
        });
        m.store(e, &x, to);
    });
}

/// A matrix in memory: vectors row by row. The lanes of a row's last vector beyond its columns are
/// never read.
struct Square {
    side: usize,
    /// Vectors of a row.
    vectors: usize,
    eps: f32,
}

impl Square {
    /// Where vector `v` of a row is, and how many of its lanes are of the matrix.
    fn part(&self, row: usize, v: usize) -> (usize, usize) {
        ((row * self.side + v * LANES) * 4, LANES.min(self.side - v * LANES))
    }

    fn load(&self, e: &mut Emit, from: Value) -> Vec<Value> {
        let mut x = vec![];
        for row in 0..self.side {
            for v in 0..self.vectors {
                let (at, lanes) = self.part(row, v);
                x.push(e.load_lanes(from, at, lanes));
            }
        }
        x
    }

    fn store(&self, e: &mut Emit, x: &[Value], to: Value) {
        for (i, x) in x.iter().enumerate() {
            let (at, lanes) = self.part(i / self.vectors, i % self.vectors);
            e.store_lanes(*x, to, at, lanes);
        }
    }

    /// Reduces the columns by `join`, from top to bottom: one vector for each of a row's.
    fn down(&self, x: &[Value], mut join: impl FnMut(Value, Value) -> Value) -> Vec<Value> {
        let mut rows = x.chunks(self.vectors);
        let first = rows.next().unwrap_or_default().to_vec();
        rows.fold(first, |all, row| all.into_iter().zip(row).map(|(a, b)| join(a, *b)).collect())
    }

    fn softmax_of_columns(&self, e: &mut Emit, x: &[Value]) -> Vec<Value> {
        let most = self.down(x, |a, b| e.fmax(a, b));
        let each = x.iter().zip(most.iter().cycle());
        let x: Vec<Value> = each
            .map(|(x, most)| {
                let x = e.fsub(*x, *most);
                e.exp(x)
            })
            .collect();
        let sums = self.down(&x, |a, b| e.fadd(a, b));
        let eps = e.floats(self.eps);
        let each = x.into_iter().zip(sums.iter().cycle());
        each.map(|(x, sum)| {
            let x = e.fdiv(x, *sum);
            e.fadd(x, eps)
        })
        .collect()
    }

    fn divide_columns(&self, e: &mut Emit, x: &[Value]) -> Vec<Value> {
        let eps = e.floats(self.eps);
        let sums = self.down(x, |a, b| e.fadd(a, b));
        let sums: Vec<Value> = sums.into_iter().map(|sum| e.fadd(sum, eps)).collect();
        x.iter().zip(sums.iter().cycle()).map(|(x, sum)| e.fdiv(*x, *sum)).collect()
    }

    fn divide_rows(&self, e: &mut Emit, x: &[Value]) -> Vec<Value> {
        let eps = e.float(self.eps);
        let mut out = vec![];
        for row in x.chunks(self.vectors) {
            let first = e.lane(row[0], 0);
            let sum = (1..self.side).fold(first, |sum, j| {
                let x = e.lane(row[j / LANES], j % LANES);
                e.fadd(sum, x)
            });
            let sum = e.fadd(sum, eps);
            let sum = e.splat(sum);
            out.extend(row.iter().map(|x| e.fdiv(*x, sum)));
        }
        out
    }
}
