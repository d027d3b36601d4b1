//! Other forms of weights than the graph's `[out, in]`: stored as one, stored transposed, rows in
//! another order.
//!
//! What is built here are operations on weights only: they run when packing, and cost nothing
//! later.

use super::lifter::Draft;
use super::names::Part;
use llmcc_ir::graph::{Op, Value};

/// A matrix or vector that several are stored as, one below the other: each of them.
#[track_caller]
pub(super) fn split_rows<const N: usize>(f: &mut Draft, w: Value, rows: [usize; N]) -> [Value; N] {
    let mut start = 0usize;
    rows.map(|len| {
        let part = f.op(Op::SliceRows { start, len }, &[w]);
        start = start.saturating_add(len);
        part
    })
}

/// The matrix `[out, in]` of a part that is stored as `[in, out]` (`Conv1D` of GPT-2).
#[track_caller]
pub(super) fn transposed(f: &mut Draft, part: Part, shape: [usize; 2]) -> Value {
    let w = f.matrix(part, [shape[1], shape[0]]);
    f.op(Op::Transpose, &[w])
}

/// Of each run of `run` rows (or elements of a vector) the `len` from `start` on: what GPT-NeoX and
/// Falcon store head by head.
#[track_caller]
pub(super) fn run_parts(f: &mut Draft, w: Value, run: usize, start: usize, len: usize) -> Value {
    f.op(Op::PickRows { run, start, len, pairs: 0 }, &[w])
}

/// A projection whose first `rotated` rows of each head are for rotating neighbours `(2j, 2j+1)`,
/// in the order for rotating halves `(j, j + rotated/2)`, which changes no score as long as queries
/// and keys agree.
#[track_caller]
pub(super) fn halves(f: &mut Draft, w: Value, head_dim: usize, rotated: usize) -> Value {
    f.op(Op::PickRows { run: head_dim, start: 0, len: head_dim, pairs: rotated }, &[w])
}
