//! Readers shared by the blocks of all types.

use half::f16;
use llmcc_ir::quant::CodedRow;

/// Columns of a super-block.
pub(super) const SUPER: usize = 256;

/// The f16 at a byte.
pub(super) fn half(b: &[u8], at: usize) -> f32 {
    f16::from_le_bytes([b[at], b[at + 1]]).to_f32()
}

/// Writes codes of the columns from `at` on.
pub(super) fn put(row: &mut CodedRow, at: usize, codes: impl Iterator<Item = u8>) {
    row.codes[at..].iter_mut().zip(codes).for_each(|(c, u)| *c = u);
}
