//! The source of a module.

use crate::arch::blocks::names::{
    CLASSES, EXPERTS_DOWN, EXPERTS_GATE, EXPERTS_GATE_UP, EXPERTS_UP, HEAD, Kind, Names, Part, ROUTER, SCORE,
    SHARED_MIX,
};
use crate::checkpoint::{Checkpoint, Wanted, WantedRole};
use crate::config::Facts;

/// Where the tensors of a module are.
pub(crate) enum Source<'a> {
    /// In a checkpoint, where they are looked up and checked.
    Checkpoint(&'a Checkpoint),
    /// Nowhere yet: whatever is asked for is there, as bf16, and is written down.
    Wanted(Wish),
}

/// Tensors that a model asks for, in the order of their use.
#[derive(Debug, Default)]
pub(crate) struct Wish {
    /// The tensors.
    pub tensors: Vec<Wanted>,
    /// Experts have matrices of their own, also where checkpoints have all experts in one tensor.
    pub single_experts: bool,
}

/// The use of the tensor of these dimensions that a parameter reads.
pub(crate) fn role_of(parameter: &str, kind: Kind, shape: &[usize]) -> WantedRole {
    let one_of = |parts: &[Part]| parts.iter().any(|of| parameter == kind.parameter(*of));
    match (kind, shape.len()) {
        (Kind::Gain, _) => WantedRole::Gain,
        (_, 3) if one_of(&[EXPERTS_GATE_UP, EXPERTS_DOWN, EXPERTS_GATE, EXPERTS_UP]) => WantedRole::Experts,
        (Kind::Matrix, 2) if one_of(&[HEAD, ROUTER, SHARED_MIX, CLASSES, SCORE]) => WantedRole::Spared,
        (Kind::Matrix, 2) => WantedRole::Product,
        _ => WantedRole::Other,
    }
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
