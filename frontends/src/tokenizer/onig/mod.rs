//! Regular expressions of tokenizers, which are Oniguruma's (RE of version 6.9, `ONIG_SYNTAX_ONIGURUMA`,
//! UTF-8), as expressions of the crate `fancy-regex` that cut texts at the same places.
//!
//! The expression is [parsed](parse) whole and [printed](print) again. Parts that mean the same in both
//! are printed as they stand, so most expressions of released models do not change. An expression that
//! cannot be translated exactly is an error, never an approximation.

mod class;
mod fold;
mod names;
mod parse;
mod print;

#[cfg(test)]
mod tests;

use regex_syntax::hir::ClassUnicode;
use serde_json::Value;

/// The expression of `fancy-regex` that cuts as `pattern` does under Oniguruma.
///
/// # Errors
/// Oniguruma refuses it, or it has a part without an exact translation.
pub(super) fn translated(pattern: &str) -> Result<String, String> {
    let parsed = parse::parse(pattern)?;
    print::print(&parsed)
}

/// Translates every expression of the normalizer, pre-tokenizer and decoder of a `tokenizer.json`. A file
/// without an expression that changes stays as it is, byte for byte.
///
/// # Errors
/// The place of an expression, and why it has no translation.
pub(super) fn translate(json: &mut Vec<u8>) -> Result<(), String> {
    /// The parts that have expressions.
    #[derive(serde::Deserialize)]
    struct Parts {
        #[serde(default)]
        normalizer: Value,
        #[serde(default)]
        pre_tokenizer: Value,
        #[serde(default)]
        decoder: Value,
    }
    // An invalid file is refused by its next reader.
    let Ok(parts) = serde_json::from_slice::<Parts>(json) else { return Ok(()) };
    let parts = [("normalizer", parts.normalizer), ("pre_tokenizer", parts.pre_tokenizer), ("decoder", parts.decoder)];
    let mut changed = vec![];
    for (name, mut part) in parts {
        if within(&mut part, name, 0)? {
            changed.push((name, part));
        }
    }
    if changed.is_empty() {
        return Ok(());
    }
    let mut file: Value = serde_json::from_slice(json).map_err(|e| e.to_string())?;
    for (name, part) in changed {
        file[name] = part;
    }
    *json = file.to_string().into_bytes();
    Ok(())
}

/// Parts within parts; deeper ones are refused later.
const DEEPEST: usize = 64;

fn within(value: &mut Value, at: &str, depth: usize) -> Result<bool, String> {
    if depth > DEEPEST {
        return Ok(false);
    }
    let mut changed = false;
    match value {
        Value::Object(map) => {
            if let Some(Value::String(regex)) = map.get_mut("pattern").and_then(|p| p.get_mut("Regex")) {
                let new = translated(regex).map_err(|e| format!("{at}.pattern: the expression {regex:?} {e}"))?;
                changed |= new != *regex;
                *regex = new;
            }
            for (key, item) in map.iter_mut().filter(|(key, _)| *key != "pattern") {
                changed |= within(item, &format!("{at}.{key}"), depth + 1)?;
            }
        }
        Value::Array(items) => {
            for (i, item) in items.iter_mut().enumerate() {
                changed |= within(item, &format!("{at}[{i}]"), depth + 1)?;
            }
        }
        _ => {}
    }
    Ok(changed)
}

/// A parsed expression.
#[derive(Clone, Debug)]
enum Node {
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
enum Anchor {
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
    fn is_nullable(&self) -> bool {
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
    fn visit(&self, see: &mut dyn FnMut(&Node)) {
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
    fn has(&self, test: &dyn Fn(&Node) -> bool) -> bool {
        let mut found = false;
        self.visit(&mut |n| found |= test(n));
        found
    }
}
