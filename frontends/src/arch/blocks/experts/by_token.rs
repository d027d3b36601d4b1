//! Experts that a table has for each token (DeepSeek-V4): the router's scores weigh them only.

use crate::arch::blocks::lifter::Draft;
use crate::arch::blocks::names::Part;
use llmcc_ir::graph::{BinaryOp, Input, Op, Value};
use std::ops::Range;

/// Numbers of each token's experts, `[vocab, top]`.
pub(crate) const TOKEN_EXPERTS: Part = Part("router.token_experts");

/// `scores`, which are not negative, of the experts that the tokens of the step have, and −1 for the
/// others: so the best of them are those.
#[track_caller]
pub(crate) fn of_token(f: &mut Draft, (top, count): (usize, usize), scores: Value) -> Value {
    let table = f.numbers(TOKEN_EXPERTS, [f.facts().vocab, top], count);
    let tokens = f.input(Input::Tokens);
    let own = f.op(Op::Embed, &[table, tokens]);
    let one = f.scalar(1.0);
    // One wide row of all slots: as a sum of terms, it would have more kernels with each of them.
    let all = hits(f, one, own, 0..top, count);
    // Ones, as numbers are not negative.
    let above = f.add(own, one);
    let each = f.op(Op::Binary(BinaryOp::Min), &[above, one]);
    let chosen = f.op(Op::Combine, &[each, all]);
    let kept = f.mul(scores, chosen);
    let others = f.op(Op::Binary(BinaryOp::Sub), &[chosen, one]);
    f.add(kept, others)
}

/// Which of `count` numbers each of the columns `slots` of `numbers` has, which are whole: one behind the other, a
/// column of each, of ones and zeros.
#[track_caller]
pub(crate) fn hits(f: &mut Draft, one: Value, numbers: Value, slots: Range<usize>, count: usize) -> Value {
    let size = if slots.len() == 1 { count.to_string() } else { format!("{count}x{}", slots.len()) };
    let all = slots.clone().flat_map(|_| 0..count).map(|e| e as f32).collect();
    let all = f.shared_constant("router.numbers", &format!("$router.numbers{size}"), all);
    let (slot, order) = (slots.start, slots.flat_map(|slot| std::iter::repeat_n(slot as f32, count)).collect());
    let order = f.shared_constant(&format!("router.slot{slot}"), &format!("$router.slot{slot}.{size}"), order);
    let number = f.op(Op::PickCols, &[numbers, order]);
    // 1 − |distance|, or 0.
    let (after, before) = (f.op(Op::Binary(BinaryOp::Sub), &[number, all]), f.scalar(-1.0));
    let before = f.mul(after, before);
    let distance = f.op(Op::Binary(BinaryOp::Max), &[after, before]);
    let near = f.op(Op::Binary(BinaryOp::Min), &[distance, one]);
    let near = f.op(Op::Binary(BinaryOp::Sub), &[near, one]);
    let minus = f.scalar(-1.0);
    f.mul(near, minus)
}
