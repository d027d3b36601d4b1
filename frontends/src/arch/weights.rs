//! Other forms of weights than the graph's `[out, in]`: stored as one, stored transposed, rows in
//! another order.
//!
//! What is built here are operations on weights only: they run when packing, and cost nothing
//! later.

use super::lifter::Draft;
use super::names::Part;
use llmcc_ir::graph::{Op, Value};
use std::ops::Range;

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
#[cfg_attr(not(test), expect(dead_code, reason = "no architecture but the one of the tests needs it yet"))]
#[track_caller]
pub(super) fn transposed(f: &mut Draft, part: Part, shape: [usize; 2]) -> Value {
    let w = f.matrix(part, [shape[1], shape[0]]);
    f.op(Op::Transpose, &[w])
}

/// A matrix or vector whose rows are runs of `w`'s, in this order.
#[track_caller]
pub(super) fn rows_in_order(f: &mut Draft, w: Value, runs: impl IntoIterator<Item = Range<usize>>) -> Value {
    let mut joined: Vec<Range<usize>> = vec![];
    for run in runs {
        match joined.last_mut() {
            Some(last) if last.end == run.start => last.end = run.end,
            _ => joined.push(run),
        }
    }
    let parts: Vec<Value> =
        joined.into_iter().map(|r| f.op(Op::SliceRows { start: r.start, len: r.len() }, &[w])).collect();
    match parts[..] {
        [one] => one,
        _ => f.op(Op::ConcatRows, &parts),
    }
}

/// Projections that are stored head by head (`[heads, N, head_dim]`, as GPT-NeoX and BLOOM have Q,
/// K and V): each of the `N`.
#[cfg_attr(not(test), expect(dead_code, reason = "no architecture but the one of the tests needs it yet"))]
#[track_caller]
pub(super) fn split_heads<const N: usize>(f: &mut Draft, w: Value, heads: usize, head_dim: usize) -> [Value; N] {
    std::array::from_fn(|i| {
        let head = |h: usize| (h * N + i) * head_dim..(h * N + i + 1) * head_dim;
        rows_in_order(f, w, (0..heads).map(head))
    })
}

/// A projection whose first `rotated` rows of each head are for rotating neighbours `(2j, 2j+1)`,
/// in the order for rotating halves `(j, j + rotated/2)`, which changes no score as long as queries
/// and keys agree.
#[cfg_attr(not(test), expect(dead_code, reason = "no architecture but the one of the tests needs it yet"))]
#[track_caller]
pub(super) fn halves(f: &mut Draft, w: Value, heads: usize, head_dim: usize, rotated: usize) -> Value {
    let one = |i: usize| i..i + 1;
    let runs = (0..heads).flat_map(|h| {
        let at = h * head_dim;
        let (even, odd) =
            ((0..rotated / 2).map(move |j| one(at + 2 * j)), (0..rotated / 2).map(move |j| one(at + 2 * j + 1)));
        even.chain(odd).chain((rotated < head_dim).then_some(at + rotated..at + head_dim))
    });
    rows_in_order(f, w, runs)
}
