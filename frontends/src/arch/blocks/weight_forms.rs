//! Other forms of weights than the graph's `[out, in]`: stored as one, stored transposed, rows in
//! another order.
//!
//! These are operations on weights only: they run when packing, and cost nothing later.

use crate::arch::blocks::lifter::Draft;
use crate::arch::blocks::names::Part;
use llmcc_ir::graph::{Op, Value};
use llmcc_ir::quant::BLOCK;
use llmcc_ir::ty::DType;

/// A matrix or vector that several are stored as, one below the other: each of them.
#[track_caller]
pub(crate) fn split_rows<const N: usize>(f: &mut Draft, w: Value, rows: [usize; N]) -> [Value; N] {
    let mut start = 0usize;
    rows.map(|len| {
        let part = f.op(Op::SliceRows { start, len }, &[w]);
        start = start.saturating_add(len);
        part
    })
}

/// The matrix `[out, in]` of a part that is stored as `[in, out]` (`Conv1D` of GPT-2). Methods that
/// quantize turn it first.
#[track_caller]
pub(crate) fn transposed(f: &mut Draft, part: Part, shape: [usize; 2]) -> Value {
    if f.matrix_of(part).is_some_and(|(ckpt, name)| ckpt.is_quantized(&name)) {
        return f.matrix(part, shape);
    }
    let w = f.matrix(part, [shape[1], shape[0]]);
    f.op(Op::Transpose, &[w])
}

/// From each run of `run` rows (or elements of a vector) the `len` from `start` on: GPT-NeoX and
/// Falcon store heads this way.
#[track_caller]
pub(crate) fn run_parts(f: &mut Draft, w: Value, run: usize, start: usize, len: usize) -> Value {
    f.op(Op::PickRows { run, start, len, pairs: 0 }, &[w])
}

/// A projection whose first `rotated` rows of each head are for rotating neighbours `(2j, 2j+1)`,
/// in the order for rotating halves `(j, j + rotated/2)`, which changes no score as long as queries
/// and keys agree.
#[track_caller]
pub(crate) fn halves(f: &mut Draft, w: Value, head_dim: usize, rotated: usize) -> Value {
    f.op(Op::PickRows { run: head_dim, start: 0, len: head_dim, pairs: rotated }, &[w])
}

/// `len` rows of each run of `run` rows, from `start` on, as a matrix of their own.
#[derive(Clone, Copy)]
pub(crate) struct Run {
    /// Rows of a run.
    pub run: usize,
    /// The first that is taken.
    pub start: usize,
    /// How many are.
    pub len: usize,
    /// Transposed.
    pub turned: bool,
}

/// The matrices of `of` for each head, of `rows` rows, one below the other, each filled up with rows
/// of zeros to whole blocks, as products by heads want them.
pub(crate) fn by_heads(f: &mut Draft, heads: usize, w: Value, of: Run, rows: usize) -> Value {
    let padding = rows.next_multiple_of(BLOCK) - rows;
    let mut all = vec![];
    for h in 0..heads {
        let own = f.op(Op::SliceRows { start: h * of.run + of.start, len: of.len }, &[w]);
        let own = if of.turned { f.op(Op::Transpose, &[own]) } else { own };
        if padding == 0 {
            all.push(own);
            continue;
        }
        // Zeros are f32, and so are the rows above them.
        let [one, nothing] = [1.0, 0.0].map(|c| f.scalar(c));
        let first = f.op(Op::SliceRows { start: 0, len: 1 }, &[own]);
        let zeros = f.mul(first, nothing);
        all.push(f.mul(own, one));
        all.extend(std::iter::repeat_n(zeros, padding));
    }
    f.op(Op::ConcatRows, &all)
}

/// Matrices of so many rows each, one below the other, each filled up with rows of zeros to whole blocks.
pub(crate) fn filled(f: &mut Draft, w: Value, rows: usize) -> Value {
    match rows.checked_next_multiple_of(BLOCK) {
        Some(to) if to != rows => f.op(Op::FillRows { run: rows, to }, &[w]),
        _ => w,
    }
}

/// `√width`, as a number of the embedding table's type, with which models were trained.
pub(crate) fn root_of_width(f: &Draft, table: Value, width: usize) -> f32 {
    let root = (width as f64).sqrt() as f32;
    match f.ty(table).and_then(|t| t.tensor()).map(|t| t.dtype) {
        Some(DType::Bf16) => half::bf16::from_f32(root).to_f32(),
        Some(DType::F16) => half::f16::from_f32(root).to_f32(),
        _ => root,
    }
}
