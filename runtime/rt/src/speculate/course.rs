//! A text under way, as guessers see it.

use crate::candidates::Want;
use crate::engine::Row;
use crate::error::Result;

/// The text that guesses continue, and how to choose from logits.
pub struct Course<'a> {
    /// Prompt and generated tokens.
    pub history: &'a [i32],
    /// The generation's own choice of the token after `history` and guesses: draws of heads are then as alike to the
    /// model's as their distributions are.
    pub choose: &'a dyn Fn(Row, &[i32]) -> Result<i32>,
    /// The request for rows that are chosen from.
    pub want: Want,
}
