//! Graph level: the model as typed SSA tensor operations.
//!
//! A [`Module`] is one model. Its `step` is a straight line of [`Call`]s of a few [`Func`]s
//! (embedding, one function per *distinct layer signature*, head); calls of the same function
//! differ only in the weights and the states they bind, so passes and code generation look
//! at each distinct layer once. `step` processes a ragged batch: `T` tokens of any sequences, each
//! with its position; logits, or other rows ([`Output`]), are computed for `R` chosen ones. Prefill, decode, chunked prefill and
//! mixed batches are the same function with different data.

mod build;
mod op;
mod value;

pub use build::{FuncBuilder, Mistake};
pub use op::{
    Attr, AttrKind, AttrType, Balance, BinaryOp, Facts, Hashes, Head, Input, Op, Reads, Router, RowScale, Score, Stage,
    UnaryOp, Update, picked_row, places, row_norm,
};
pub(crate) use op::{Operands, column, combined, expert, hashed_ids};
pub use value::{F32, ValueType};

use crate::output::Output;
use crate::state::StateSpec;
use crate::ty::TensorType;

/// A model: weights, state, functions and the step that calls them.
#[derive(Clone, Debug, PartialEq)]
pub struct Module {
    /// Name of the model (from the checkpoint).
    pub name: String,
    /// Sizes the runtime needs.
    pub info: ModelInfo,
    /// Weights, in the order of first use.
    pub weights: Vec<Weight>,
    /// States of a sequence: one per attention layer, any number per other layer.
    pub states: Vec<StateSpec>,
    /// Distinct functions.
    pub funcs: Vec<Func>,
    /// The step.
    pub step: Vec<Call>,
    /// The step value that is its output, f32 `[R, columns]` ([`ModelInfo::columns`]): index among
    /// all results of all calls, in order.
    pub output: usize,
    /// The step value that holds the hidden states, f32 `[T, hidden]`, of a model that leaves them
    /// to its caller: its head computes logits from them.
    pub hidden: Option<usize>,
}

/// Sizes of a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ModelInfo {
    /// Tokens of the vocabulary.
    pub vocab: usize,
    /// Model width.
    pub hidden: usize,
    /// Longest sequence, in tokens.
    pub max_context: usize,
    /// The output of a step.
    pub output: Output,
}

impl ModelInfo {
    /// Columns of the output.
    pub fn columns(&self) -> usize {
        match self.output {
            Output::Logits => self.vocab,
            Output::Rows(rows) => rows.width,
        }
    }
}

/// A weight of the model.
#[derive(Clone, Debug, PartialEq)]
pub struct Weight {
    /// Tensor name in the checkpoint, or a `$`-name for computed constants.
    pub name: String,
    /// Type as stored.
    pub ty: TensorType,
    /// Values computed by the frontend (RoPE frequencies); `None`: read from the checkpoint.
    pub data: Option<Vec<f32>>,
}

/// One use of a function in the step.
#[derive(Clone, Debug, PartialEq)]
pub struct Call {
    /// Index in [`Module::funcs`].
    pub func: usize,
    /// One per parameter of the function.
    pub args: Vec<Arg>,
}

/// The argument of a call for a parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Arg {
    /// Result number `i` of the step (results of all calls, counted in order).
    Value(usize),
    /// Weight `i` of the module.
    Weight(usize),
    /// State `i` of the module.
    State(usize),
    /// A per-step input array.
    Input(Input),
}

/// The kinds of values that a parameter may be bound to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Role {
    /// An activation or a per-step input.
    Data,
    /// A weight: known when compiling.
    Weight,
    /// A weight that other functions read too (tied embeddings): its values must not be rewritten
    /// for one use.
    SharedWeight,
    /// A state of the sequences.
    State,
}

/// A parameter of a function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Param {
    /// Name, unique in the function.
    pub name: String,
    /// Type.
    pub ty: ValueType,
    /// Binding.
    pub role: Role,
}

/// A value of a function: parameters first, then one per node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Value(pub u32);

/// One operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// The operation.
    pub op: Op,
    /// Arguments, all defined before.
    pub args: Vec<Value>,
    /// Type of the result.
    pub ty: ValueType,
}

/// A straight-line function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Func {
    /// Name, unique in the module.
    pub name: String,
    /// Parameters.
    pub params: Vec<Param>,
    /// Operations in order.
    pub nodes: Vec<Node>,
    /// Results (tensors only; states are updated in place).
    pub results: Vec<Value>,
}

impl Func {
    /// Type of a value; `None` when out of range.
    pub fn ty(&self, v: Value) -> Option<&ValueType> {
        let i = v.0 as usize;
        match self.params.get(i) {
            Some(p) => Some(&p.ty),
            None => self.nodes.get(i - self.params.len()).map(|n| &n.ty),
        }
    }

    /// The value of node `i`.
    pub fn node_value(&self, i: usize) -> Value {
        Value((self.params.len() + i) as u32)
    }
}
