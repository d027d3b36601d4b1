//! Writes an expression for `fancy-regex`.

use super::parse::Parsed;
use super::{Anchor, Node, names};
use regex_syntax::hir::ClassUnicode;
use std::fmt::Write;

/// The expression.
///
/// # Errors
/// A part of it has no exact translation.
pub(super) fn print(parsed: &Parsed) -> Result<String, String> {
    let starts = |n: &Node| matches!(n, Node::Anchor(Anchor::SearchStart));
    if parsed.node.has(&starts) && parsed.node.is_nullable() {
        return Err(r"has \G and matches an empty text, which cannot be translated".into());
    }
    // After an empty turn Oniguruma ends a repetition, whatever else the part could match.
    let ends_early = |n: &Node| matches!(n, Node::Repeat { node, high: None, .. } if node.is_nullable());
    if parsed.node.has(&ends_early) {
        return Err("repeats without an end what may be empty, which cannot be translated".into());
    }
    let within = |n: &Node| matches!(n, Node::Group(g, node) if node.has(&|n| matches!(n, Node::Backref(r) if r == g)));
    if parsed.node.has(&within) {
        return Err("refers to a group within itself, which cannot be translated".into());
    }
    let folds = |n: &Node| matches!(n, Node::IgnoreCase(node) if node.has(&|n| matches!(n, Node::Backref(_))));
    if parsed.node.has(&folds) {
        return Err("refers back in either case, which cannot be translated".into());
    }
    let mut printer = Printer { parsed, out: String::new(), numbers: vec![], ignore_case: false };
    number(&parsed.node, &parsed.referred, &mut printer.numbers);
    printer.node(&parsed.node, Around::Nothing)?;
    Ok(printer.out)
}

/// Numbers that groups get: those referred to, in order.
fn number(node: &Node, referred: &[u32], numbers: &mut Vec<u32>) {
    node.visit(&mut |n| {
        if let Node::Group(number, _) = n
            && referred.contains(number)
        {
            numbers.push(*number);
        }
    });
}

/// The context of a part.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Around {
    Nothing,
    Others,
    Repetition,
}

struct Printer<'p> {
    parsed: &'p Parsed,
    out: String,
    numbers: Vec<u32>,
    ignore_case: bool,
}

impl Printer<'_> {
    fn node(&mut self, node: &Node, around: Around) -> Result<(), String> {
        match node {
            Node::Empty if around == Around::Repetition => self.out += "(?:)",
            Node::Empty => {}
            Node::Set(set, source) => self.set(set, source),
            Node::Char(c, source) => self.char(*c, source),
            Node::Concat(nodes) => {
                let group = around == Around::Repetition;
                self.open(group);
                for node in nodes {
                    self.node(node, Around::Others)?;
                }
                self.close(group);
            }
            Node::Alt(nodes) => {
                let group = around != Around::Nothing;
                self.open(group);
                for (i, node) in nodes.iter().enumerate() {
                    if i > 0 {
                        self.out.push('|');
                    }
                    self.node(node, if matches!(node, Node::Alt(_)) { Around::Others } else { Around::Nothing })?;
                }
                self.close(group);
            }
            Node::Repeat { node, low, high, greedy } => {
                let group = around == Around::Repetition;
                self.open(group);
                self.node(node, Around::Repetition)?;
                self.times(*low, *high, *greedy);
                self.close(group);
            }
            Node::Atomic(node) => self.atomic(node, around)?,
            Node::Group(number, node) => {
                self.out += if self.parsed.referred.contains(number) { "(" } else { "(?:" };
                self.node(node, Around::Nothing)?;
                self.out.push(')');
            }
            Node::Look { behind, negative, node } => self.look(*behind, *negative, node)?,
            Node::Anchor(anchor) => self.anchor(*anchor)?,
            Node::Backref(number) => {
                let at = self.numbers.iter().position(|n| n == number).ok_or("refers to no group")?;
                // In a group: digits may follow.
                let _ = write!(self.out, r"(?:\{})", at + 1);
            }
            Node::IgnoreCase(node) => {
                let before = std::mem::replace(&mut self.ignore_case, true);
                self.out += "(?i:";
                self.node(node, Around::Nothing)?;
                self.out.push(')');
                self.ignore_case = before;
            }
        }
        Ok(())
    }

    fn open(&mut self, group: bool) {
        if group {
            self.out += "(?:";
        }
    }

    fn close(&mut self, group: bool) {
        if group {
            self.out.push(')');
        }
    }

    fn times(&mut self, low: u32, high: Option<u32>, greedy: bool) {
        // Writing to a text does not fail.
        let _ = match (low, high) {
            (0, None) => write!(self.out, "*"),
            (1, None) => write!(self.out, "+"),
            (0, Some(1)) => write!(self.out, "?"),
            (low, None) => write!(self.out, "{{{low},}}"),
            (low, Some(high)) if low == high => write!(self.out, "{{{low}}}"),
            (low, Some(high)) => write!(self.out, "{{{low},{high}}}"),
        };
        if !greedy {
            self.out.push('?');
        }
    }

    /// `a*+` is written as such.
    fn atomic(&mut self, node: &Node, around: Around) -> Result<(), String> {
        if let Node::Repeat { node: inner, low, high, greedy: true } = node
            && matches!((low, high), (0 | 1, None) | (0, Some(1)))
        {
            let group = around == Around::Repetition;
            self.open(group);
            self.node(inner, Around::Repetition)?;
            self.times(*low, *high, true);
            self.out.push('+');
            self.close(group);
            return Ok(());
        }
        self.out += "(?>";
        self.node(node, Around::Nothing)?;
        self.out.push(')');
        Ok(())
    }

    fn look(&mut self, behind: bool, negative: bool, node: &Node) -> Result<(), String> {
        self.out += match (behind, negative) {
            (false, false) => "(?=",
            (false, true) => "(?!",
            (true, false) => "(?<=",
            (true, true) => "(?<!",
        };
        // The match of a group within stays, whatever follows.
        let kept = !behind
            && !negative
            && node.has(&|n| matches!(n, Node::Group(number, _) if self.parsed.referred.contains(number)));
        if kept {
            self.out += "(?>";
        }
        self.node(node, Around::Nothing)?;
        self.close(kept);
        self.out.push(')');
        Ok(())
    }

    fn anchor(&mut self, anchor: Anchor) -> Result<(), String> {
        match anchor {
            // Not behind a newline that ends the text.
            Anchor::LineStart => self.out += r"(?:\A|(?m:^)(?!\z))",
            Anchor::LineEnd => self.out += "(?m:$)",
            Anchor::TextStart => self.out += r"\A",
            Anchor::TextEnd => self.out += r"\z",
            Anchor::LastLineEnd => self.out += r"(?=\n?\z)",
            // The alternative keeps the crate from ending the search early.
            Anchor::SearchStart => self.out += r"(?:\G|(?!))",
            Anchor::Word | Anchor::NotWord => {
                let mut word =
                    Printer { parsed: self.parsed, out: String::new(), numbers: vec![], ignore_case: self.ignore_case };
                word.set(&names::word()?, "");
                let w = word.out;
                self.out += &match anchor {
                    Anchor::Word => format!("(?:(?<={w})(?!{w})|(?<!{w})(?={w}))"),
                    _ => format!("(?:(?<={w})(?={w})|(?<!{w})(?!{w}))"),
                };
            }
        }
        Ok(())
    }

    fn char(&mut self, c: char, source: &str) {
        self.set(&names::one(c), source);
    }

    /// A set as the expression writes it, where that means the same.
    fn set(&mut self, set: &ClassUnicode, source: &str) {
        let same = |text: &str, fold: bool| names::of_engine(text, fold).as_ref() == Some(set);
        if !source.is_empty() && same(source, self.ignore_case) {
            self.out += source;
            return;
        }
        let text = match set.ranges() {
            [] => "[^\\x00-\\u{10FFFF}]".to_string(),
            [one] if one.start() == one.end() => regex_syntax::escape(&one.start().to_string()),
            _ => names::short(set).unwrap_or_else(|| canonical(set)),
        };
        match !self.ignore_case || same(&text, true) {
            true => self.out += &text,
            false => {
                let _ = write!(self.out, "(?-i:{text})");
            }
        }
    }
}

/// The ranges of a set.
fn canonical(set: &ClassUnicode) -> String {
    let mut negated = set.clone();
    negated.negate();
    let (sign, set) = if negated.ranges().len() < set.ranges().len() { ("^", &negated) } else { ("", set) };
    let mut out = format!("[{sign}");
    for range in set.ranges() {
        let _ = match range.start() == range.end() {
            true => write!(out, "\\x{{{:X}}}", range.start() as u32),
            false => write!(out, "\\x{{{:X}}}-\\x{{{:X}}}", range.start() as u32, range.end() as u32),
        };
    }
    out.push(']');
    out
}
