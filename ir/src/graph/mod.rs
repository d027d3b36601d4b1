//! Graph level: the model as typed SSA tensor operations.
//!
//! A [`Module`] is one model. Its [`Entry`]s are what a caller runs: `step`, and others over the same
//! weights and states. An entry is a straight line of [`Call`]s of a few [`Func`]s
//! (embedding, one function per *distinct layer signature*, head); calls of the same function
//! differ only in the weights and the states they bind, so passes and code generation look
//! at each distinct layer once. An entry processes a ragged batch: `T` tokens of any sequences, each
//! with its position; logits, or other rows ([`Output`]), are computed for `R` chosen ones. Prefill,
//! decode, chunked prefill and mixed batches are the same entry with different data.

mod build;
mod entry;
mod join;
mod op;
mod value;

pub use build::{FuncBuilder, Mistake};
pub use entry::{Arg, Call, EMBED, ENCODE, ENCODE_IMAGE, Entry, STEP, TAP, draft_entry};
pub use op::{
    AXES, Attr, AttrKind, AttrType, Balance, BinaryOp, Criterion, Eviction, Facts, Hashes, Head, Input, Op, Reads,
    Router, RowScale, Score, Stage, UnaryOp, Update, picked_row, places, row_norm,
};
pub(crate) use op::{Operands, column, combined, expert, hashed_ids, substituted, windows_misfit, without_row};
pub use value::{F32, ValueType};

use crate::output::Output;
use crate::state::{StateSpec, Tracks};
use crate::ty::{Dim, TensorType};

/// A model: weights, state, functions and the entries that call them.
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
    /// Computations that a caller runs; at least one. The first is the one that callers run unless they name
    /// another.
    pub entries: Vec<Entry>,
}

impl Module {
    /// The output of the first entry whose rows a caller asks for; logits where there is none.
    pub fn output(&self) -> Output {
        self.entries.first().and_then(Entry::requested).map_or(Output::Logits, |o| o.output)
    }

    /// The calls of all entries in order: the numbers of [`crate::diag::Place::Call`].
    pub fn calls(&self) -> impl Iterator<Item = &Call> {
        self.entries.iter().flat_map(|e| &e.calls)
    }

    /// The tracks of entries and states.
    pub fn tracks(&self) -> Tracks {
        let updated = |e: &Entry| e.calls.iter().flat_map(|c| self.updated(c)).collect();
        Tracks::of(self.states.len(), &self.entries.iter().map(updated).collect::<Vec<_>>())
    }

    /// The states that a call updates.
    fn updated<'a>(&'a self, call: &'a Call) -> impl Iterator<Item = usize> + 'a {
        let func = self.funcs.get(call.func);
        call.args.iter().enumerate().filter_map(move |(param, arg)| match arg {
            Arg::State(s) if func.is_some_and(|f| f.updates(param)) => Some(*s),
            _ => None,
        })
    }

    /// The calls of all entries, without calls that an earlier entry has too: of the same function with the same
    /// weights and states.
    pub fn calls_once(&self) -> impl Iterator<Item = &Call> {
        let known = |before: &[Entry], call: &Call| before.iter().any(|e| e.calls.iter().any(|c| c.binds_as(call)));
        let entries = self.entries.iter().enumerate();
        entries.flat_map(move |(i, e)| e.calls.iter().filter(move |c| !known(&self.entries[..i], c)))
    }
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
}

impl ModelInfo {
    /// The rows of an output: `T`, or the `R` that the caller asks for, and their columns.
    pub fn rows(&self, output: Output) -> (Dim, usize) {
        match output {
            Output::Logits => (Dim::Rows, self.vocab),
            Output::Rows(rows) => (Dim::Rows, rows.width),
            Output::Hidden => (Dim::Tokens, self.hidden),
            Output::Image => (Dim::Rows, self.hidden),
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
    /// Whether both differ in their names at most.
    pub fn computes_as(&self, other: &Func) -> bool {
        (&self.params, &self.nodes, &self.results) == (&other.params, &other.nodes, &other.results)
    }

    /// Whether every operation that reads the state `value` reads all of it, whatever the positions of the tokens:
    /// attention without a window or a bias, to all tokens alike.
    pub fn reads_all(&self, value: Value) -> bool {
        let windowed =
            self.ty(value).and_then(ValueType::state).and_then(StateSpec::paged).is_none_or(|kv| kv.window.is_some());
        let all = |n: &Node| matches!(n.op, Op::Attention { causal: false, biased: false, .. });
        !windowed && self.nodes.iter().filter(|n| n.args.contains(&value)).all(all)
    }

    /// Whether an operation updates the state that is parameter `param`.
    pub fn updates(&self, param: usize) -> bool {
        let value = Value(param as u32);
        let updates = |n: &Node| {
            let args = n.args.iter().zip(n.op.facts().args);
            args.into_iter().any(|(v, (_, reads))| *v == value && matches!(reads, Reads::Replaced | Reads::Updated))
        };
        self.nodes.iter().any(updates)
    }

    /// Type of a value; `None` when out of range.
    pub fn ty(&self, v: Value) -> Option<&ValueType> {
        let i = v.0 as usize;
        match self.params.get(i) {
            Some(p) => Some(&p.ty),
            None => self.nodes.get(i - self.params.len()).map(|n| &n.ty),
        }
    }

    /// Whether both have the same parameters and operations: they differ in their names and results at most.
    pub fn extends(&self, other: &Func) -> bool {
        (&self.params, &self.nodes) == (&other.params, &other.nodes)
    }

    /// The value of node `i`.
    pub fn node_value(&self, i: usize) -> Value {
        Value((self.params.len() + i) as u32)
    }
}
