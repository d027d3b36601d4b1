//! The columns of a row for which an expression is evaluated.

use super::emit::Emit;
use cranelift_codegen::ir::Value;

/// The columns of a row for which an expression is evaluated.
pub(super) struct Span<'a> {
    /// Row of matrix operands.
    pub row: Value,
    /// First column within the segment, a multiple of 4.
    pub col: Value,
    /// Number of columns.
    pub width: Value,
    /// The segment's columns; only its last span is not a multiple of 4 wide, if any.
    pub n: usize,
    /// This row of each lane's accumulators.
    pub acc: &'a [Value],
    /// The slot, in products of experts: rows have the segment's columns once for each.
    pub slot: Option<Slot>,
}

/// A slot of a row.
pub(super) struct Slot {
    /// First column in rows.
    pub start: Value,
    /// Its expert.
    pub expert: Value,
}

impl Span<'_> {
    /// First column in rows.
    pub fn column(&self, e: &mut Emit) -> Value {
        match &self.slot {
            Some(slot) => e.add(slot.start, self.col),
            None => self.col,
        }
    }
}
