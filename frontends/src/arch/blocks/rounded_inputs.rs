//! What a function knows of inputs of products that are rounded.

use crate::checkpoint::InputRounding;
use llmcc_ir::graph::Value;

/// What a function knows of inputs that are rounded.
#[derive(Debug, Default)]
pub(crate) struct Rounded {
    /// Matrices whose products round their input, and what multiplies it where it is normalized first.
    pub matrices: Vec<(Value, InputRounding, Option<Value>)>,
    /// Inputs that were rounded.
    pub inputs: Vec<RoundedInput>,
    /// The same of experts, each of which has numbers of its own.
    pub of_experts: Vec<RoundedSlots>,
    /// How many products with experts of several zeros there were.
    pub less_of_experts: usize,
}

/// An input that was rounded.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RoundedInput {
    /// The input.
    pub x: Value,
    /// How.
    pub how: InputRounding,
    /// Runs of columns, each of which has a scale of its own where tokens have such: slots of experts.
    pub runs: usize,
    /// What is multiplied: its numbers, and the zero more.
    pub codes: Value,
    /// Minus the zero: what makes numbers of codes; none where it is 0.
    pub less: Option<Value>,
    /// Multiplies the product.
    pub scale: Value,
}

/// An input that was rounded by what the expert of each slot has.
#[derive(Clone, Debug)]
pub(crate) struct RoundedSlots {
    /// The input.
    pub x: Value,
    /// How, for each expert.
    pub each: Vec<InputRounding>,
    /// What is multiplied, of each slot: its numbers, and the zero more.
    pub codes: Value,
    /// Multiplies the products, `[T, top]`.
    pub scales: Value,
}

impl Rounded {
    /// A matrix of the checkpoint, and how the input of its products is rounded.
    pub(crate) fn matrix(&mut self, w: Value, how: InputRounding, gain: Option<Value>) {
        self.matrices.push((w, how, gain));
    }
}
