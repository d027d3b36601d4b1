//! The source of a module.

use crate::arch::blocks::names::Names;
use crate::checkpoint::Checkpoint;
use crate::config::Facts;

/// Where the tensors of a module are.
pub(crate) enum Source<'a> {
    /// In a checkpoint, where they are looked up and checked.
    Checkpoint(&'a Checkpoint),
    /// Nowhere yet: whatever is asked for is there, as bf16, and is written down.
    Wanted(Vec<Wanted>),
}

/// A tensor that a model asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Wanted {
    /// Name in the checkpoint.
    pub name: String,
    /// Dimensions.
    pub shape: Vec<usize>,
    /// Multiplies a normalized row.
    pub gain: bool,
    /// Whole numbers; each row holds a permutation of its columns.
    pub numbers: bool,
}

/// The source of a module.
pub(crate) struct Origin<'a> {
    /// The tensors.
    pub source: Source<'a>,
    /// Facts about the model.
    pub facts: &'a Facts,
    /// Names of the tensors in the checkpoint.
    pub names: Names,
    /// Name of the architecture's class.
    pub class: &'static str,
    /// `model_type` of the architecture.
    pub model_type: &'static str,
    /// The model is a part of a larger one.
    pub nested: bool,
}
