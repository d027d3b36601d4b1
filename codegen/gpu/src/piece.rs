//! Pieces of rows: one, two or four adjacent columns in one memory access, as f32 values.

use crate::cx::row_stride;
use crate::mlir::{Builder, Cmp, Elem, F32, I8, I32, I64, Ty, V};
use llmcc_ir::kernel::RowElem;
use llmcc_ir::kv::KvDType;
use llmcc_ir::quant::Float;

/// The type in memory of an element of rows that are not quantized. (int8 rows are not used on
/// GPUs; fp8 rows only products read, and row-wise kernels make them.)
pub fn storage(elem: RowElem) -> Elem {
    float(elem.float()).unwrap_or_else(|| unreachable!("{elem} rows are not read element by element"))
}

/// The type in memory of the elements of a cache, codes of 8 bits included.
pub fn kv_storage(dtype: KvDType) -> Elem {
    let codes = || (dtype.bits() == 8).then_some(Elem::I8);
    float(dtype.float()).or_else(codes).unwrap_or_else(|| unreachable!("elements of {dtype} have no address"))
}

/// The type in memory of a kind of floats that has one here.
fn float(float: Option<Float>) -> Option<Elem> {
    match float? {
        Float::F32 => Some(Elem::F32),
        Float::F16 => Some(Elem::F16),
        Float::Bf16 => Some(Elem::Bf16),
        Float::E4m3 => None,
    }
}

/// The type of 16-bit rows.
pub fn half_type(elem: RowElem) -> Option<Ty> {
    elem.is_half().then(|| Ty::S(storage(elem)))
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

/// Rounds an f32, or a vector of them, to the elements of rows.
pub fn round(b: &mut Builder, v: V, elem: Elem) -> V {
    let ty = match (elem, v.ty) {
        (Elem::F32, _) => return v,
        (e, Ty::Vec(n, _)) => Ty::Vec(n, e),
        (e, _) => Ty::S(e),
    };
    b.ftrunc(v, ty)
}

/// The signed 4-bit code that lies `up` bits up in byte `at`, as f32.
pub fn nibble(b: &mut Builder, base: V, at: V, up: V) -> V {
    let p = b.at(base, at);
    let byte = b.load(p, I8);
    let byte = b.zext(byte, I32);
    let code = b.op(I32, format!("arith.shrui {byte}, {up} : i32"));
    let code = b.andc(code, 15);
    let code = b.xorc(code, 8);
    let code = b.addc(code, -8);
    b.sitofp(code, F32)
}

/// The 4-bit code of column `col` of line `line` of a cache's values of `d` elements, as f32; see
/// `layout::kv_nibble`.
pub fn value_nibble(b: &mut Builder, values: V, (line, col): (V, V), d: usize) -> V {
    let half = d as i64 / 2;
    let line = b.mulc(line, half);
    let upper = b.cmpc(Cmp::Sge, col, half);
    let less = b.addc(col, -half);
    let within = b.select(upper, less, col);
    let at = b.add(line, within);
    let (four, none) = (b.i32(4), b.i32(0));
    let up = b.select(upper, four, none);
    nibble(b, values, at, up)
}

/// The widest piece, of at most `most` columns, in which all these numbers of columns can be cut.
pub fn widest(most: usize, columns: impl IntoIterator<Item = usize>) -> usize {
    columns.into_iter().fold(most, |step, n| {
        if n.is_multiple_of(step) { step } else { 1 << n.trailing_zeros().min(step.trailing_zeros()) }
    })
}
