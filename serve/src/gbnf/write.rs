//! Rules as Lark writes them.

use super::rules::{Node, Rules};
use std::fmt::Write;

/// Longest regular expression that a grammar becomes, and most nodes of it.
const LONGEST: usize = 1 << 14;
/// Deepest node of it: rules that use each other in a long row are written as rules.
const DEEPEST: usize = 1000;

/// The grammar in Lark.
pub(super) fn lark(rules: &Rules) -> String {
    let mut regex = Regex { rules, out: String::new(), open: vec![], nodes: 0, depth: 0 };
    if regex.node(&rules.nodes[rules.root]).is_some() {
        return format!("start: /{}/", regex.out);
    }
    let mut out = format!("start: r{}", rules.root);
    for (i, node) in rules.nodes.iter().enumerate() {
        let _ = write!(out, "\nr{i}: ");
        spelt(node, &mut out);
    }
    out
}

/// A regular expression, as it is written.
struct Regex<'a> {
    rules: &'a Rules,
    out: String,
    /// Rules that are being written.
    open: Vec<usize>,
    /// Nodes so far.
    nodes: usize,
    /// Nodes around the one that is being written.
    depth: usize,
}

impl Regex<'_> {
    /// Writes a node. `None`: it is recursive, or its expression is too long or too deep.
    fn node(&mut self, node: &Node) -> Option<()> {
        self.nodes += 1;
        self.depth += 1;
        if self.out.len().max(self.nodes) > LONGEST || self.depth > DEEPEST {
            return None;
        }
        match node {
            Node::Text(text) => text.chars().for_each(|c| escaped(c, &mut self.out)),
            Node::Class { negated, ranges } => class(*negated, ranges, &mut self.out),
            Node::Any => self.out += "(?s:.)",
            Node::Rule(place) => {
                if self.open.contains(place) {
                    return None;
                }
                self.open.push(*place);
                self.node(&self.rules.nodes[*place])?;
                self.open.pop();
            }
            Node::All(all) => all.iter().try_for_each(|one| self.node(one))?,
            Node::Either(all) => {
                self.out += "(?:";
                for (i, one) in all.iter().enumerate() {
                    self.out += if i > 0 { "|" } else { "" };
                    self.node(one)?;
                }
                self.out.push(')');
            }
            Node::Repeat(inner, least, most) => {
                let begin = self.out.len();
                self.node(inner)?;
                if !is_one(inner) {
                    self.out.insert_str(begin, "(?:");
                    self.out.push(')');
                }
                self.out += &times(*least, *most);
            }
        }
        self.depth -= 1;
        Some(())
    }
}

/// Whether a node's expression is a unit by itself.
fn is_one(node: &Node) -> bool {
    match node {
        Node::Text(text) => text.chars().count() == 1,
        Node::Class { .. } | Node::Any | Node::Either(_) => true,
        Node::Rule(_) | Node::All(_) | Node::Repeat(..) => false,
    }
}

/// Writes a node by terminals of one character each.
fn spelt(node: &Node, out: &mut String) {
    match node {
        Node::Text(text) if text.is_empty() => *out += "\"\"",
        Node::Text(text) => {
            let each = text.chars().map(|c| serde_json::Value::from(c.to_string()).to_string());
            *out += &each.collect::<Vec<_>>().join(" ");
        }
        Node::Class { negated, ranges } => {
            out.push('/');
            class(*negated, ranges, out);
            out.push('/');
        }
        Node::Any => *out += "/(?s:.)/",
        Node::Rule(place) => drop(write!(out, "r{place}")),
        Node::All(all) if all.is_empty() => *out += "\"\"",
        Node::All(all) => joined(all, " ", out),
        Node::Either(all) => {
            out.push('(');
            joined(all, " | ", out);
            out.push(')');
        }
        Node::Repeat(inner, least, most) => {
            let single = matches!(&**inner, Node::Class { .. } | Node::Any | Node::Rule(_) | Node::Either(_));
            *out += if single { "" } else { "(" };
            spelt(inner, out);
            *out += if single { "" } else { ")" };
            *out += &times(*least, *most);
        }
    }
}

fn joined(all: &[Node], between: &str, out: &mut String) {
    for (i, one) in all.iter().enumerate() {
        *out += if i > 0 { between } else { "" };
        spelt(one, out);
    }
}

fn times(least: u32, most: Option<u32>) -> String {
    match (least, most) {
        (0, None) => "*".into(),
        (1, None) => "+".into(),
        (0, Some(1)) => "?".into(),
        (least, None) => format!("{{{least},}}"),
        (least, Some(most)) => format!("{{{least},{most}}}"),
    }
}

fn class(negated: bool, ranges: &[(char, char)], out: &mut String) {
    *out += if negated { "[^" } else { "[" };
    for (first, last) in ranges {
        escaped(*first, out);
        if first != last {
            out.push('-');
            escaped(*last, out);
        }
    }
    out.push(']');
}

/// A character that stands for itself in an expression.
fn escaped(c: char, out: &mut String) {
    if c.is_alphanumeric() {
        out.push(c);
    } else {
        let _ = write!(out, "\\x{{{:x}}}", u32::from(c));
    }
}
