//! Medusa's heads (arXiv 2401.10774, section 2.1.1): each predicts a token further ahead, from one token's row alone.
//!
//! Head `k` takes the row that the model has of token `i` after its last norm, adds `silu(W·x + b)` to it for each of
//! its blocks, and multiplies the sum by a matrix of its own, or the model's head where it has none: logits of token
//! `i + 2 + k`. It has no states, and leaves no rows.

use crate::arch::blocks::attention::product;
use crate::arch::blocks::decoder::{self, Decoder};
use crate::arch::blocks::embedding_and_head::gathered;
use crate::arch::blocks::families::drafter_names::{BLOCK, BLOCK_HEAD};
use crate::arch::blocks::lifter::Lifter;
use crate::arch::blocks::names::Kind;
use crate::error::FrontendError;
use llmcc_ir::graph::UnaryOp;

/// Heads of a draft.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Medusa {
    /// How many heads there are.
    pub heads: usize,
    /// Blocks of each.
    pub blocks: usize,
    /// Blocks have biases.
    pub bias: bool,
    /// Heads have matrices of their own in place of the model's head.
    pub own_head: bool,
}

impl Medusa {
    /// Lifts head `head` of the model `base`.
    ///
    /// # Errors
    /// A tensor is missing, or has another shape.
    pub(crate) fn lift(self, l: &mut Lifter, base: &Decoder, head: usize) -> Result<(), FrontendError> {
        let mut f = l.layer("medusa", head);
        let hidden = base.facts.hidden;
        let rows = f.given(hidden);
        let mut x = gathered(&mut f, rows);
        for block in 0..self.blocks {
            let w = f.numbered(BLOCK, Kind::Matrix, block, &[hidden, hidden]);
            let b = self.bias.then(|| f.numbered(BLOCK, Kind::Bias, block, &[hidden]));
            let y = product(&mut f, x, w, b);
            let y = f.unary(UnaryOp::Silu, y);
            x = f.add(x, y);
        }
        if !self.own_head {
            return decoder::output(f, base, x);
        }
        let w = f.numbered(BLOCK_HEAD, Kind::Matrix, self.blocks, &[base.facts.vocab, hidden]);
        let logits = f.matmul(x, w);
        f.call(&[logits])?;
        Ok(())
    }
}
