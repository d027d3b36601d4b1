//! Subjects of [`StepDesc::rows`](crate::StepDesc::rows).

/// `m = T`, the tokens of the step.
pub const TOKENS: u32 = 0;
/// `m = R`, the rows for which logits are wanted.
pub const OUT: u32 = 1;
