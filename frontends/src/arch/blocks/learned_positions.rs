//! Tables of learned positions. RoBERTa and its kin count without the token that fills texts up (`make_positions` of
//! fairseq): such a token has a row of its own, and the next token goes on counting.

use crate::arch::blocks::lifter::Draft;
use llmcc_ir::graph::{BinaryOp, Op, Update, Value};

/// A table of learned positions.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Positions {
    /// Rows.
    pub rows: usize,
    /// The row of the first token.
    pub first: usize,
    /// The token that is not counted: its row is the one before the first.
    pub filler: Option<usize>,
}

impl Positions {
    /// The first row that is read.
    pub(crate) fn start(self) -> usize {
        self.filler.map_or(self.first, |_| self.first.saturating_sub(1))
    }
}

/// Rows of a table of `rows` rows: the first for a `filler`, and for other tokens the rows of their
/// places among each other, from 1.
#[track_caller]
pub(crate) fn rows_without(f: &mut Draft, (table, rows): (Value, usize), tokens: Value, filler: usize) -> Value {
    let ids = f.op(Op::TokenIds, &[tokens]);
    let [own, most] = [filler as f32, 1.0].map(|x| f.scalar(x));
    let other = f.op(Op::Binary(BinaryOp::Sub), &[ids, own]);
    let other = f.mul(other, other);
    // 0 of a filler, 1 of the others.
    let other = f.op(Op::Binary(BinaryOp::Min), &[other, most]);
    let one = f.shared_constant("one", "$one", vec![1.0]);
    let count = f.fixed("others", [1, 1, 1]);
    let places = f.op(Op::Recurrence { update: Update::Plain }, &[one, one, other, one, one, count]);
    let row = f.mul(places, other);
    let routes = f.op(Op::ConcatCols, &[row, other]);
    let flat = f.op(Op::Flatten, &[table]);
    f.op(Op::ExpertVector { experts: rows, top: 1 }, &[flat, routes])
}
