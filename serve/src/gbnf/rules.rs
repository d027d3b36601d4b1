//! The rules of a grammar, and its faults.

use std::fmt;

/// A fault in a grammar, at a line and a column that count from 1.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Fault {
    pub(crate) line: usize,
    pub(crate) column: usize,
    pub(crate) message: String,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}, column {}: {}", self.line, self.column, self.message)
    }
}

/// A set of texts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Node {
    Text(String),
    /// One character of these, or none of these.
    Class {
        negated: bool,
        ranges: Vec<(char, char)>,
    },
    /// Any character.
    Any,
    /// A rule, by its place.
    Rule(usize),
    All(Vec<Node>),
    Either(Vec<Node>),
    /// Between so many times and so many.
    Repeat(Box<Node>, u32, Option<u32>),
}

/// A grammar; its first rule need not be `root`.
#[derive(Clone, Debug)]
pub(super) struct Rules {
    pub(super) nodes: Vec<Node>,
    pub(super) root: usize,
}
