//! Kinds of a step's output, and the runtime's use of it.

/// Meaning of the rows of a step's output, in [`crate::ModelDesc::output`].
pub mod kind {
    /// Logits of the next token.
    pub const LOGITS: u32 = 0;
    /// Embeddings.
    pub const EMBEDDING: u32 = 1;
    /// Scores of classes.
    pub const SCORES: u32 = 2;
}

/// How rows of a sequence become one, in [`crate::ModelDesc::pool`].
pub mod pool {
    /// Not at all: logits.
    pub const NONE: u32 = 0;
    /// Their mean.
    pub const MEAN: u32 = 1;
    /// The first token's.
    pub const FIRST: u32 = 2;
    /// The last token's.
    pub const LAST: u32 = 3;
    /// The largest of each column.
    pub const MAX: u32 = 4;
    /// Their sum over the root of their number.
    pub const ROOT: u32 = 5;
    /// Their mean, the first weighing 1, the second 2, and so on.
    pub const WEIGHTED: u32 = 6;
    /// The greatest of these numbers.
    pub const LARGEST: u32 = WEIGHTED;
}

/// Bits of [`crate::ModelDesc::flags`].
pub mod flags {
    /// Pooled rows are scaled to length 1.
    pub const NORMALIZE: u64 = 1;
    /// Tokens see later ones: a sequence is computed in one step, and is whole then.
    pub const WHOLE: u64 = 2;
}
