//! Pieces of rows: one, two or four adjacent columns in one memory access, as f32 values.

use crate::cx::row_stride;
use crate::mlir::{BF16, Builder, Elem, F16, F32, I64, Ty, V};
use llmcc_codegen::CodegenError;
use llmcc_ir::kernel::RowElem;
use llmcc_ir::quant::Float;

/// The type in memory of an element of a matrix of rows; int8 rows, which GPUs do not use, and fp8
/// rows, which only products read, have none.
pub fn storage(elem: RowElem) -> Option<Elem> {
    match elem.float() {
        Some(Float::F32) => Some(Elem::F32),
        Some(Float::F16) => Some(Elem::F16),
        Some(Float::Bf16) => Some(Elem::Bf16),
        Some(Float::E4m3) | None => None,
    }
}

/// The type in memory of float rows.
///
/// # Errors
/// int8 rows.
pub fn float_storage(cx: &crate::cx::Cx<'_>, elem: RowElem) -> Result<Elem, CodegenError> {
    storage(elem)
        .ok_or_else(|| cx.error("int8 rows are not used on GPUs, and fp8 rows only by row-wise kernels and products"))
}

/// Address of row `row` (`i32`) of a matrix of rows at `base`.
pub fn row_at(b: &mut Builder, base: V, cols: usize, elem: RowElem, row: V) -> V {
    let row = b.zext(row, I64);
    let start = b.mulc(row, row_stride(cols, elem) as i64);
    b.at(base, start)
}

/// Address of column `col` (`i32`) of a row at `line`.
pub fn col_at(b: &mut Builder, line: V, elem: Elem, col: V) -> V {
    let offset = b.shlc(col, elem.bytes().trailing_zeros().into());
    b.at(line, offset)
}

/// Loads `n` (1, 2 or 4) elements at `p`, a multiple of their bytes, as f32.
pub fn load(b: &mut Builder, p: V, elem: Elem, n: usize) -> Vec<V> {
    let parts = if n == 1 {
        vec![b.load(p, Ty::S(elem))]
    } else {
        let v = b.load(p, Ty::Vec(n as u8, elem));
        b.unpack(v)
    };
    parts.into_iter().map(|x| if elem == Elem::F32 { x } else { b.fext(x, F32) }).collect()
}

/// Stores f32 values as elements at `p`, rounded to nearest even.
pub fn store(b: &mut Builder, values: &[V], p: V, elem: Elem) {
    let v = if values.len() == 1 { values[0] } else { b.pack(values) };
    let v = round(b, v, elem);
    b.store(v, p);
}

/// Rounds an f32, or a vector of them, to a type of 16 bits.
fn round(b: &mut Builder, v: V, elem: Elem) -> V {
    let ty = match (elem, v.ty) {
        (Elem::F32, _) => return v,
        (e, Ty::Vec(n, _)) => Ty::Vec(n, e),
        (Elem::F16, _) => F16,
        _ => BF16,
    };
    b.ftrunc(v, ty)
}

/// The widest piece, of at most `most` columns, in which all these numbers of columns can be cut.
pub fn widest(most: usize, columns: impl IntoIterator<Item = usize>) -> usize {
    columns.into_iter().fold(most, |step, n| {
        if n.is_multiple_of(step) { step } else { 1 << n.trailing_zeros().min(step.trailing_zeros()) }
    })
}
