//! Tokens that are masked, as ESM takes them: as if they had been dropped.

use crate::arch::blocks::attention_scores::mean_of_all;
use crate::arch::blocks::lifter::Draft;
use llmcc_ir::graph::{BinaryOp, Op, UnaryOp, Value};

/// The share of tokens left in training, where 15 % are chosen, and 80 % of these masked.
const LEFT_IN_TRAINING: f32 = 0.88;

/// The rows of `table` for tokens, zeros where they are `mask`: all scaled so that they weigh as
/// much as in a text with as many masks as in training.
#[track_caller]
pub(crate) fn scaled_for_masks(f: &mut Draft, table: Value, tokens: Value, positions: Value, mask: usize) -> Value {
    let (vocab, hidden) = (f.facts().vocab, f.facts().hidden);
    let of_tokens = |masked: f32, other: f32| (0..vocab).map(move |i| if i == mask { masked } else { other });
    let kept = f.computed("mask.kept", "$mask.kept", of_tokens(0.0, 1.0).collect());
    let table = f.op(Op::ScaleRows, &[table, kept]);
    let x = f.op(Op::Embed, &[table, tokens]);
    let wide = of_tokens(1.0, 0.0).flat_map(|is| std::iter::repeat_n(is, hidden)).collect();
    let is_mask = f.shared_table("mask.is", "$mask.is", [vocab, hidden], wide);
    let masked = f.op(Op::Embed, &[is_mask, tokens]);
    let share = mean_of_all(f, masked, positions);
    let share = f.unary(UnaryOp::Neg, share);
    let one = f.scalar(1.0);
    let left = f.add(share, one);
    let usual = f.scalar(LEFT_IN_TRAINING);
    let x = f.mul(x, usual);
    f.op(Op::Binary(BinaryOp::Div), &[x, left])
}
