//! Leaves of expressions: elements of rows and vectors.

use super::Env;
use crate::mlir::{Builder, Elem, F32, I32, V};
use crate::piece::{self, col_at, row_at};
use llmcc_ir::kernel::ParamId;

impl Env<'_> {
    /// An element of a matrix of rows.
    pub(super) fn element(&self, b: &mut Builder, param: ParamId, col: usize, row: V) -> V {
        let (cols, elem) = self.cx.rows(param);
        let storage = piece::storage(elem);
        let row = b.add(self.row0, row);
        let line = row_at(b, self.args.operand(param), cols, elem, row);
        let p = b.atc(line, (col * storage.bytes()) as i64);
        piece::load(b, p, storage, 1)[0]
    }

    /// Elements of the part that the slot's expert has in a vector.
    pub(super) fn expert_values(
        &self,
        b: &mut Builder,
        (vector, routes, top): (ParamId, ParamId, usize),
        row: V,
        col: V,
    ) -> Vec<V> {
        if let Some(slots) = &self.slots {
            let first = b.mulc(slots.expert, self.n as i64);
            let col = b.add(self.col0, col);
            let at = b.add(first, col);
            let p = col_at(b, self.args.operand(vector), Elem::F32, at);
            return piece::load(b, p, Elem::F32, self.width);
        }
        let (cols, elem) = self.cx.rows(routes);
        let part = (self.n / top) as i64;
        let row = b.add(self.row0, row);
        let line = row_at(b, self.args.operand(routes), cols, elem, row);
        let col = b.add(self.col0, col);
        let (slot, within) = (b.divc(col, part), b.remc(col, part));
        let p = col_at(b, line, Elem::F32, slot);
        let number = b.load(p, F32);
        let number = b.op(I32, format!("arith.fptosi {number} : f32 to i32"));
        let first = b.mulc(number, part);
        let at = b.add(first, within);
        let p = col_at(b, self.args.operand(vector), Elem::F32, at);
        piece::load(b, p, Elem::F32, self.width)
    }

    /// Elements of a matrix of rows in the columns that an order names.
    pub(super) fn picked_values(&self, b: &mut Builder, (rows, order): (ParamId, ParamId), row: V, col: V) -> Vec<V> {
        let (cols, elem) = self.cx.rows(rows);
        let storage = piece::storage(elem);
        let row = b.add(self.row0, row);
        let line = row_at(b, self.args.operand(rows), cols, elem, row);
        let order = self.vector_values(b, order, col);
        let picked = order.into_iter().map(|j| {
            let j = b.op(I32, format!("arith.fptosi {j} : f32 to i32"));
            let p = col_at(b, line, storage, j);
            piece::load(b, p, storage, 1)[0]
        });
        picked.collect()
    }

    /// Elements of a matrix of rows, converted to f32.
    pub(super) fn rows_values(&self, b: &mut Builder, param: ParamId, start: usize, row: V, col: V) -> Vec<V> {
        let (cols, elem) = self.cx.rows(param);
        let storage = piece::storage(elem);
        let (row, slot) = self.row(b, row);
        let line = row_at(b, self.args.operand(param), cols, elem, row);
        let col = self.column(b, col, slot);
        let col = b.addc(col, start as i64);
        let p = col_at(b, line, storage, col);
        piece::load(b, p, storage, self.width)
    }

    /// Elements `j mod len` of a vector.
    pub(super) fn vector_values(&self, b: &mut Builder, param: ParamId, col: V) -> Vec<V> {
        let len = self.cx.kernel.vector(param);
        let col = b.add(self.col0, col);
        let j = if len >= self.n { col } else { b.remc(col, len as i64) };
        let p = col_at(b, self.args.operand(param), Elem::F32, j);
        piece::load(b, p, Elem::F32, self.width)
    }
}
