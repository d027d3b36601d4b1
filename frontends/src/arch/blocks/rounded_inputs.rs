//! A function's knowledge of products' rounded inputs.

use crate::checkpoint::InputRounding;
use llmcc_ir::graph::Value;

/// A function's knowledge of rounded inputs.
#[derive(Debug, Default)]
pub(crate) struct Rounded {
    /// Matrices whose products round their input, and its gain where it is normalized first.
    pub matrices: Vec<(Value, InputRounding, Option<Value>)>,
    /// Inputs that were rounded.
    pub inputs: Vec<RoundedInput>,
    /// The same for experts; each has numbers of its own.
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
    /// Runs of columns with a scale each where tokens have scales: slots of experts.
    pub runs: usize,
    /// The multiplied codes: numbers plus the zero.
    pub codes: Value,
    /// Minus the zero: it makes numbers of codes; none where it is 0.
    pub less: Option<Value>,
    /// Multiplies the product.
    pub scale: Value,
}

/// An input that was rounded by the numbers of each slot's expert.
#[derive(Clone, Debug)]
pub(crate) struct RoundedSlots {
    /// The input.
    pub x: Value,
    /// How, for each expert.
    pub each: Vec<InputRounding>,
    /// The multiplied codes of each slot: numbers plus the zero.
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
