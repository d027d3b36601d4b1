//! Entries: the computations of a model that a caller runs.

use super::Input;
use crate::output::{self, EntryOutput, Output};
use crate::tap::Tap;

/// Name of the entry that appends tokens to sequences; every model has it, as its first entry.
pub const STEP: &str = "step";
/// Name of the entry that describes texts by rows, beside one that writes text.
pub const EMBED: &str = "embed";
/// Name of the entry that shows the inputs of the first entry's products.
pub const TAP: &str = "tap";

/// Name of the entry of a draft head, counted from 0.
pub fn draft_entry(number: usize) -> String {
    format!("draft.{number}")
}

/// Name of the entry that reads the source, of a model that writes a text about another one.
pub const ENCODE: &str = "encode";

/// Name of the entry that makes rows of an image for `step`.
pub const ENCODE_IMAGE: &str = "encode.image";

/// A computation that a caller runs on a ragged batch, over the module's weights, states and functions.
///
/// Its inputs are those that its calls bind ([`Arg::Input`]).
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    /// Name, unique in the module.
    pub name: String,
    /// Calls in order.
    pub calls: Vec<Call>,
    /// Outputs, each kind once: values of the entry, counted among all results of its calls in order.
    pub outputs: Vec<EntryOutput>,
    /// Inputs of products that the caller sees call by call, in the order of their calls.
    pub taps: Vec<Tap>,
    /// Longest sequence of its track, in tokens, where that is not the model's.
    pub context: Option<usize>,
}

/// One use of a function in an entry.
#[derive(Clone, Debug, PartialEq)]
pub struct Call {
    /// Index in [`super::Module::funcs`].
    pub func: usize,
    /// One per parameter of the function.
    pub args: Vec<Arg>,
}

/// The argument of a call for a parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Arg {
    /// Value `i` of the entry (results of its calls, counted in order).
    Value(usize),
    /// Weight `i` of the module.
    Weight(usize),
    /// State `i` of the module.
    State(usize),
    /// An input array of the entry.
    Input(Input),
}

impl Call {
    /// Whether it calls the same function with the same weights and states.
    pub fn binds_as(&self, other: &Call) -> bool {
        let bound = |arg: &Arg| matches!(arg, Arg::Weight(_) | Arg::State(_));
        let same = |(a, b): (&Arg, &Arg)| a == b || !(bound(a) || bound(b));
        self.func == other.func && self.args.len() == other.args.len() && self.args.iter().zip(&other.args).all(same)
    }
}

impl Entry {
    /// An entry of this name without calls and outputs.
    pub fn new(name: &str) -> Entry {
        Entry { name: name.to_string(), calls: vec![], outputs: vec![], taps: vec![], context: None }
    }

    /// The output that has a row for each token that the caller asks for.
    pub fn requested(&self) -> Option<EntryOutput> {
        output::requested(&self.outputs)
    }

    /// The value that holds the hidden states.
    pub fn hidden(&self) -> Option<usize> {
        self.outputs.iter().find(|o| o.output == Output::Hidden).map(|o| o.at)
    }
}
