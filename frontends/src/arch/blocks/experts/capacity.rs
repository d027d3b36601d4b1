//! Experts that take only so many tokens of a text, the first that choose them (Switch Transformers, arXiv
//! 2101.03961): those after them get nothing.

use super::by_token::hits;
use crate::arch::blocks::lifter::Draft;
use llmcc_ir::graph::{BinaryOp, F32, Input, Op, Value};
use llmcc_ir::quant::BLOCK;

/// `routes` to one expert a token, whose weights are 0 where `most` earlier tokens of the text have the
/// same expert.
#[track_caller]
pub(crate) fn within(f: &mut Draft, experts: usize, most: usize, routes: Value) -> Value {
    if most >= f.max_context() {
        return routes;
    }
    // Whole blocks of columns, which attention wants of heads.
    let columns = experts.next_multiple_of(BLOCK);
    let one = f.scalar(1.0);
    let own = hits(f, one, routes, 0..1, columns);
    let counts = sums_so_far(f, own, columns);
    let count = f.op(Op::Combine, &[own, counts]);
    // Counts are whole: 2·(most + ¾ − count) is at least 1½, or at most −½.
    let [end, minus_two, none] = [most as f32 + 0.75, -2.0, 0.0].map(|x| f.scalar(x));
    let less = f.op(Op::Binary(BinaryOp::Sub), &[count, end]);
    let room = f.mul(less, minus_two);
    let room = f.op(Op::Binary(BinaryOp::Max), &[room, none]);
    let kept = f.op(Op::Binary(BinaryOp::Min), &[room, one]);
    let [expert, weight] = [0, 1].map(|start| f.op(Op::SliceCols { start, len: 1 }, &[routes]));
    let weight = f.mul(weight, kept);
    f.op(Op::ConcatCols, &[expert, weight])
}

/// Sums of the rows `x` of a text's tokens up to each: their mean by attention whose scores are all
/// 0, times the sum of its weights, which is their number.
#[track_caller]
fn sums_so_far(f: &mut Draft, x: Value, columns: usize) -> Value {
    let (heads, dim) = (columns / BLOCK, BLOCK);
    let kv = f.kv("capacity.kv", heads, (dim, dim), None);
    let positions = f.input(Input::Positions);
    let kv = f.op(Op::KvAppend, &[kv, x, x, positions]);
    let nothing = F32::new(0.0);
    let (causal, chunked, biased, sums) = (true, false, false, true);
    let op = Op::Attention { heads, scale: nothing, softcap: nothing, causal, chunked, biased, sums };
    let found = f.op(op, &[x, kv, positions]);
    let mean = f.op(Op::SliceCols { start: 0, len: columns }, &[found]);
    // After the means are the maxima of the heads, and then these sums.
    let count = f.op(Op::SliceCols { start: columns + heads, len: 1 }, &[found]);
    f.op(Op::Combine, &[count, mean])
}
