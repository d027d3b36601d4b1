//! The result of a step for one requested row.

use super::executor::Executor;
use crate::candidates::{Candidates, Want};
use crate::error::Result;

/// A row of results; it lives until the next step.
pub struct Row<'a> {
    executor: &'a mut dyn Executor,
    row: usize,
    want: Want,
}

impl<'a> Row<'a> {
    pub(super) fn new(executor: &'a mut dyn Executor, row: usize, want: Want) -> Row<'a> {
        Row { executor, row, want }
    }

    /// The most probable tokens, if they were wanted and the machine finds them.
    pub fn candidates(&self) -> Option<Candidates<'_>> {
        // Candidates of other rows were not fetched.
        (self.want != Want::Logits).then(|| Candidates::of(self.executor.candidates(self.row), self.want)).flatten()
    }

    /// The row of the output; fetched now if it was not wanted before.
    ///
    /// # Errors
    /// The machine fails.
    pub fn values(&mut self) -> Result<&[f32]> {
        self.executor.output(self.row)
    }
}
