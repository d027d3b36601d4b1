//! Entries of a model: what a caller runs, what it gives and what it gets.

use crate::{Span, Table};

/// A computation that a caller runs on a ragged batch of tokens with positions. All entries share the model's weights,
/// states, buffers and kernels; one runs at a time.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct EntryDesc {
    /// Name, in the data segment; unique in the model.
    pub name: Span,
    /// [`InputDesc`](crate::InputDesc) per further input.
    pub inputs: Table,
    /// [`OutputDesc`] per output.
    pub outputs: Table,
    /// [`TapDesc`] per input of products that a caller may see, ascending by `call`. An entry has outputs or taps.
    pub taps: Table,
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
    /// The track of a sequence that it appends to, which is the track of its states; 0 for the first entry.
    pub track: u32,
    /// Longest sequence of that track, in tokens; 0: the model's
    /// ([`ModelDesc::max_context`](crate::ModelDesc::max_context)).
    pub context: u32,
}

/// Bits of [`EntryDesc::flags`].
pub mod entry_flags {
    /// Tokens see later ones: a sequence is computed in one step, and is whole then.
    pub const WHOLE: u64 = 1;
    /// Tokens that rows are given for (`ROWS_OF_TOKEN`) see all of those that they stand together with, which come in
    /// one step; other tokens see no later ones.
    pub const RUNS: u64 = 2;
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

/// Rows that products of an entry multiply. They are in their buffers when the steps of `call` have ended: all steps of
/// the regime whose [`StepDesc::layer`](crate::StepDesc::layer) is at most `call`. Steps of such an entry stand in the
/// order of their layers.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TapDesc {
    /// [`TappedWeightDesc`] per weight that multiplies the rows; at least one.
    pub weights: Table,
    /// Columns of a product's input.
    pub columns: u64,
    /// Index in the buffer table: f32 `[T, columns]` or `[R, columns]`; `top` times as many columns with
    /// [`tap_flags::APART`].
    pub buffer: u64,
    /// Index in the buffer table of the routes, f32 `[T, 2 * top]`: numbers of experts, then their weights; 0 without
    /// experts.
    pub routes: u64,
    /// See above.
    pub call: u32,
    /// [`rows::TOKENS`](crate::rows::TOKENS) or [`rows::OUT`](crate::rows::OUT).
    pub rows: u32,
    /// Experts; 0: the products are the same for all tokens.
    pub experts: u32,
    /// Experts of a token; 0 without experts.
    pub top: u32,
    /// See [`tap_flags`].
    pub flags: u64,
}

/// Bits of [`TapDesc::flags`].
pub mod tap_flags {
    /// A row has an input for each of the token's experts, side by side, instead of one for all.
    pub const APART: u64 = 1;
}

/// A weight that multiplies the rows of a tap.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TappedWeightDesc {
    /// Its name in the checkpoint, in the data segment.
    pub name: Span,
    /// The only expert that it belongs to; [`NO_EXPERT`]: it belongs to none, or has the matrices of all.
    pub expert: u64,
}

/// See [`TappedWeightDesc::expert`].
pub const NO_EXPERT: u64 = u64::MAX;
