//! Entries of a model: what a caller runs, what it gives and what it gets.

use crate::{Span, Table};

/// A computation that a caller runs on a ragged batch of tokens with positions. All entries share the model's weights,
/// states, buffers and kernels; one runs at a time.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct EntryDesc {
    /// Name, in the data segment; unique in the model.
    pub name: Span,
    /// [`InputDesc`] per further input.
    pub inputs: Table,
    /// [`OutputDesc`] per output.
    pub outputs: Table,
    /// First of its [`RegimeDesc`](crate::RegimeDesc)s, which stand together, ascending by `max_tokens`; the last has
    /// `max_tokens == NONE`.
    pub first_regime: u32,
    /// Number of these.
    pub regimes: u32,
    /// See [`entry_flags`].
    pub flags: u64,
    /// Index in the buffer table of the most probable tokens of each logits row:
    /// [`candidate_cols`](crate::layout::candidate_cols)`(candidates)` f32 per row.
    pub candidates_buffer: u64,
    /// How many of them there are per row; 0: the entry computes logits only.
    pub candidates: u64,
    /// The track of a sequence that it appends to: those of its states. That of the first entry is 0.
    pub track: u32,
    /// Zero.
    pub reserved: u32,
}

/// Bits of [`EntryDesc::flags`].
pub mod entry_flags {
    /// Tokens see later ones: a sequence is computed in one step, and is whole then.
    pub const WHOLE: u64 = 1;
}

/// An array that an entry takes with the tokens.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InputDesc {
    /// See [`input`].
    pub kind: u32,
    /// Zero.
    pub reserved: u32,
    /// Size, by the kind; positive.
    pub size: u64,
}

/// Kinds of [`InputDesc`], in [`InputDesc::kind`]. Tokens, positions and the rows that are asked for come with every
/// batch.
pub mod input {
    /// `i32 [T]` types of tokens (segments of BERT); the size is their number.
    pub const TYPES: u32 = 0;
    /// `f32 [T, size]` a row of each token, of the model's width.
    pub const HIDDEN: u32 = 1;
}

/// Rows of f32 that an entry gives; each kind once, and one kind at most that has `R` rows.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OutputDesc {
    /// See [`output::kind`](crate::output::kind).
    pub kind: u32,
    /// How the rows of a sequence become one: see [`output::pool`](crate::output::pool).
    pub pool: u32,
    /// See [`output::flags`](crate::output::flags).
    pub flags: u64,
    /// Columns; for logits the vocabulary, for hidden states the model's width.
    pub columns: u64,
    /// Index in the buffer table, f32 `[R, columns]`, of hidden states `[T, columns]`.
    pub buffer: u64,
}
