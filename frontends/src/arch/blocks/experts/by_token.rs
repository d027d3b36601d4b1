//! Experts that a table has for each token (DeepSeek-V4): the router's scores weigh them only.

use crate::arch::blocks::lifter::Draft;
use crate::arch::blocks::names::Part;
use llmcc_ir::graph::{BinaryOp, Input, Op, Value};

/// Numbers of each token's experts, `[vocab, top]`.
pub(crate) const TOKEN_EXPERTS: Part = Part("router.token_experts");

/// `scores`, which are not negative, of the experts that the tokens of the step have, and −1 for the
/// others: so the best of them are those.
#[track_caller]
pub(crate) fn of_token(f: &mut Draft, (top, count): (usize, usize), scores: Value) -> Value {
    let table = f.numbers(TOKEN_EXPERTS, [f.facts().vocab, top], count);
    let tokens = f.input(Input::Tokens);
    let own = f.op(Op::Embed, &[table, tokens]);
    let [one, nothing] = [1.0, 0.0].map(|x| f.scalar(x));
    let chosen = (0..top).map(|slot| hits(f, one, own, slot, count));
    let chosen: Vec<Value> = chosen.collect();
    let chosen = chosen.into_iter().reduce(|sum, x| f.add(sum, x)).unwrap_or(nothing);
    let kept = f.mul(scores, chosen);
    let others = f.op(Op::Binary(BinaryOp::Sub), &[chosen, one]);
    f.add(kept, others)
}

/// Which of `count` numbers the column `slot` of `numbers` has, which are whole: a column of each, of ones
/// and zeros.
#[track_caller]
pub(crate) fn hits(f: &mut Draft, one: Value, numbers: Value, slot: usize, count: usize) -> Value {
    let all =
        f.shared_constant("router.numbers", &format!("$router.numbers{count}"), (0..count).map(|e| e as f32).collect());
    let order = f.shared_constant(
        &format!("router.slot{slot}"),
        &format!("$router.slot{slot}.{count}"),
        vec![slot as f32; count],
    );
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
