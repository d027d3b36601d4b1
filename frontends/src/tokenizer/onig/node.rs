//! Parsed patterns.

use regex_syntax::hir::ClassUnicode;

/// A parsed expression.
#[derive(Clone, Debug)]
pub(super) enum Node {
    Empty,
    /// One character of a set. The text is how the expression writes it.
    Set(ClassUnicode, String),
    /// A character, and how the expression writes it.
    Char(char, String),
    Concat(Vec<Node>),
    Alt(Vec<Node>),
    Repeat {
        node: Box<Node>,
        low: u32,
        high: Option<u32>,
        greedy: bool,
    },
    Atomic(Box<Node>),
    /// A group with a number.
    Group(u32, Box<Node>),
    Look {
        behind: bool,
        negative: bool,
        node: Box<Node>,
    },
    Anchor(Anchor),
    Backref(u32),
    /// Letters of either case; the nodes within are expanded already.
    IgnoreCase(Box<Node>),
}

/// A place between characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Anchor {
    LineStart,
    LineEnd,
    TextStart,
    TextEnd,
    /// The end, or before a newline there.
    LastLineEnd,
    Word,
    NotWord,
    /// Where the search began.
    SearchStart,
}

impl Node {
    /// Whether it can match an empty text.
    pub(super) fn is_nullable(&self) -> bool {
        match self {
            Node::Set(..) | Node::Char(..) => false,
            Node::Empty | Node::Look { .. } | Node::Anchor(_) | Node::Backref(_) => true,
            Node::Concat(nodes) => nodes.iter().all(Node::is_nullable),
            Node::Alt(nodes) => nodes.iter().any(Node::is_nullable),
            Node::Repeat { node, low, .. } => *low == 0 || node.is_nullable(),
            Node::Atomic(node) | Node::Group(_, node) | Node::IgnoreCase(node) => node.is_nullable(),
        }
    }

    /// Visits this node and all within.
    pub(super) fn visit(&self, see: &mut dyn FnMut(&Node)) {
        see(self);
        match self {
            Node::Concat(nodes) | Node::Alt(nodes) => nodes.iter().for_each(|n| n.visit(see)),
            Node::Repeat { node, .. }
            | Node::Atomic(node)
            | Node::Group(_, node)
            | Node::IgnoreCase(node)
            | Node::Look { node, .. } => node.visit(see),
            _ => {}
        }
    }

    /// Whether a node within passes `test`.
    pub(super) fn has(&self, test: &dyn Fn(&Node) -> bool) -> bool {
        let mut found = false;
        self.visit(&mut |n| found |= test(n));
        found
    }
}
