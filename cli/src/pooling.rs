//! How the rows of a text become one.

use clap::ValueEnum;
use llmcc_model::sys::*;

/// How the rows of a text's tokens become one row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Pooling {
    /// Their mean
    Mean,
    /// The first token's
    First,
    /// The last token's
    Last,
    /// The largest of each column
    Max,
    /// The sum over the root of their number
    Root,
    /// A mean in which the first weighs 1, the second 2, and so on
    Weighted,
}

impl Pooling {
    /// Its code in the C API (`LLMCC_POOL_*`).
    pub fn code(self) -> u32 {
        match self {
            Pooling::Mean => LLMCC_POOL_MEAN,
            Pooling::First => LLMCC_POOL_FIRST,
            Pooling::Last => LLMCC_POOL_LAST,
            Pooling::Max => LLMCC_POOL_MAX,
            Pooling::Root => LLMCC_POOL_ROOT,
            Pooling::Weighted => LLMCC_POOL_WEIGHTED,
        }
    }
}
