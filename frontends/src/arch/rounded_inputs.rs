//! What a function knows of inputs of products that are rounded.

use crate::checkpoint::InputRounding;
use llmcc_ir::graph::Value;

/// What a function knows of inputs that are rounded.
#[derive(Debug, Default)]
pub(super) struct Rounded {
    /// Matrices whose products round their input.
    pub matrices: Vec<(Value, InputRounding)>,
    /// Inputs that were rounded.
    pub inputs: Vec<RoundedInput>,
}

/// An input that was rounded.
#[derive(Clone, Copy, Debug)]
pub(super) struct RoundedInput {
    /// The input.
    pub x: Value,
    /// How.
    pub how: InputRounding,
    /// What is multiplied.
    pub numbers: Value,
    /// Multiplies the product.
    pub scale: Value,
}

impl Rounded {
    /// A matrix of the checkpoint, and how the input of its products is rounded.
    pub(super) fn matrix(&mut self, w: Value, how: Option<InputRounding>) {
        self.matrices.extend(how.map(|how| (w, how)));
    }
}
