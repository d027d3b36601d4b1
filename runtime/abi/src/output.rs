//! Kinds of outputs, and the runtime's use of them.

/// Meaning of an output's rows, in [`crate::OutputDesc::kind`].
pub mod kind {
    /// Logits of the next token.
    pub const LOGITS: u32 = 0;
    /// Embeddings.
    pub const EMBEDDING: u32 = 1;
    /// Scores of classes.
    pub const SCORES: u32 = 2;
    /// Hidden states of all tokens.
    pub const HIDDEN: u32 = 3;
    /// Rows of an image, of the model's width.
    pub const IMAGE: u32 = 4;
    /// No output, in the C API: an entry that has no rows which are asked for.
    pub const NONE: u32 = u32::MAX;
}

/// How rows of a sequence become one, in [`crate::OutputDesc::pool`].
pub mod pool {
    /// Not at all: logits, hidden states and rows of images.
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

/// Bits of [`crate::OutputDesc::flags`].
pub mod flags {
    /// Pooled rows are scaled to length 1.
    pub const NORMALIZE: u64 = 1;
}
