//! The facts in the table of operations: when an operation runs and which kinds of values it reads.

use crate::ty::{DType, Dim, TensorType};
pub use llmcc_abi::AXES;

/// Arrays the caller of `step` provides.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Input {
    /// `i32 [T]` token ids.
    Tokens,
    /// `i32 [T]` places in their sequences.
    Positions,
    /// `i32 [T]` types of tokens (segments): which of two texts they are of.
    Types,
    /// `i32 [R]` rows whose logits are wanted.
    OutRows,
    /// `f32 [T, n]` rows that come with the tokens: hidden states, frames of a spectrogram, patches of an image. The
    /// type of the parameter that they are bound to says how many columns they have.
    Given,
    /// `i32 [T, AXES]` positions along the axes of time, height and width ([`AXES`]). A text's token has
    /// the same along all: one more than the largest before it in its sequence.
    Axes,
}

impl Input {
    /// Every input with its name in `.lir` text.
    pub const ALL: &[(Input, &'static str)] = &[
        (Input::Tokens, "tokens"),
        (Input::Positions, "positions"),
        (Input::Types, "types"),
        (Input::OutRows, "out_rows"),
        (Input::Given, "given"),
        (Input::Axes, "axes"),
    ];

    /// Its name in `.lir` text.
    pub fn name(self) -> &'static str {
        Input::ALL.iter().find(|(input, _)| *input == self).map_or("?", |(_, name)| *name)
    }

    /// Whether the parameter that it is bound to says how many columns it has.
    pub fn has_columns(self) -> bool {
        matches!(self, Input::Given)
    }

    /// The type of the array; given rows have so many `columns`.
    pub fn ty(self, columns: usize) -> TensorType {
        match self {
            Input::Tokens | Input::Positions | Input::Types => TensorType::new(DType::I32, [Dim::Tokens]),
            Input::OutRows => TensorType::new(DType::I32, [Dim::Rows]),
            Input::Given => TensorType::rows(Dim::Tokens, columns),
            Input::Axes => TensorType::new(DType::I32, [Dim::Tokens, Dim::Static(AXES)]),
        }
    }
}

/// When an operation is computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// In every step.
    Run,
    /// When packing: its arguments are weights.
    Pack,
    /// When packing if its arguments are known then, else in every step.
    Either,
}

/// The kind of value that an operation reads as one of its arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reads {
    /// A value that any operation may have computed.
    Any,
    /// The same, and it decides: which experts are taken, how streams are mixed. Products that it is
    /// made of are rounded no further, because a small error may change much.
    Deciding,
    /// A weight matrix that is multiplied: it is stored in a format chosen for it.
    Matrix,
    /// A weight matrix whose rows are looked up: stored in a format too.
    Table,
    /// A weight as it is, in f32.
    Weight,
    /// This array of the step and nothing else: kernels read it where it is.
    Input(Input),
    /// A state.
    State,
    /// A state that the result replaces: only the result may be read afterwards.
    Replaced,
    /// A state that the operation reads and updates: nothing else may read it.
    Updated,
}

impl Reads {
    /// Whether only a weight will do.
    pub fn weight(self) -> bool {
        matches!(self, Reads::Matrix | Reads::Table | Reads::Weight)
    }
}

/// A line of the table without names and attributes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Facts {
    /// When it is computed.
    pub stage: Stage,
    /// Name and use of each argument.
    pub args: &'static [(&'static str, Reads)],
    /// Optional arguments: none, or the first so many.
    pub optional: &'static [(&'static str, Reads)],
    /// Whether any number of arguments may follow that are read as the last is. Such an operation
    /// is associative: the e-graph nests it.
    pub variadic: bool,
    /// Whether each element of the result is an element of an argument, as it is: codes of a
    /// quantized weight may stay codes.
    pub moves: bool,
}

impl Facts {
    /// Every argument that there may be: those that must, then those that may.
    pub fn each_arg(&self) -> impl Iterator<Item = (&'static str, Reads)> {
        self.args.iter().chain(self.optional).copied()
    }

    /// Position of the argument, a state, that the result replaces.
    pub fn replaces(&self) -> Option<usize> {
        self.args.iter().position(|(_, reads)| *reads == Reads::Replaced)
    }

    /// Whether a weight may be computed by it.
    pub fn packs(&self) -> bool {
        match self.stage {
            Stage::Pack | Stage::Either => true,
            Stage::Run => false,
        }
    }
}
