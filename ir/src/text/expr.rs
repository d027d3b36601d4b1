//! Expression trees (epilogues of kernels, packed weights) as infix text.
//!
//! `+ -` bind weaker than `* /`, all associate to the left; everything else is a call, `max(a, b)`.
//! Parentheses appear only where the tree needs them, so that printing and parsing keep its exact
//! shape.
//!
//! The parser refuses trees higher than [`MAX_DEPTH`]: every walk over them is recursive.

use super::lex::Kind;
use super::names::Float;
use super::parse::{Parsed, Parser, fault};
use crate::graph::{BinaryOp, F32, UnaryOp};

/// Infix symbol and binding strength of an operation; `None`: written as a call.
pub(super) fn infix(op: BinaryOp) -> Option<(char, u8)> {
    match op {
        BinaryOp::Add => Some(('+', 1)),
        BinaryOp::Sub => Some(('-', 1)),
        BinaryOp::Mul => Some(('*', 2)),
        BinaryOp::Div => Some(('/', 2)),
        BinaryOp::Max | BinaryOp::Min => None,
    }
}

/// How a tree looks to the printer.
pub(super) enum Shape<'a, E> {
    /// A leaf, ready to print.
    Leaf(String),
    /// A number.
    Const(F32),
    /// `op(a, b)` or `a ∘ b`.
    Binary(BinaryOp, &'a E, &'a E),
    /// `head(args…)`, `head` including attributes.
    Call(String, Vec<&'a E>),
}

/// A tree that can be printed.
pub(super) trait Tree: Sized {
    /// Context for leaves (names of operands).
    type Names;
    fn shape<'a>(&'a self, names: &Self::Names) -> Shape<'a, Self>;
}

/// Prints a tree.
pub(super) fn print<E: Tree>(out: &mut String, e: &E, names: &E::Names) {
    print_at(out, e, names, 0);
}

/// Prints `e` as an operand that must bind at least as strongly as `min`.
fn print_at<E: Tree>(out: &mut String, e: &E, names: &E::Names, min: u8) {
    match e.shape(names) {
        Shape::Leaf(text) => out.push_str(&text),
        Shape::Const(x) => put!(out, "{}", Float(x.get())),
        Shape::Call(head, args) => {
            out.push_str(&head);
            call(out, &args, names);
        }
        Shape::Binary(op, a, b) => match infix(op) {
            None => {
                out.push_str(op.name());
                call(out, &[a, b], names);
            }
            Some((symbol, strength)) => {
                let parens = strength < min;
                if parens {
                    out.push('(');
                }
                print_at(out, a, names, strength);
                put!(out, " {symbol} ");
                print_at(out, b, names, strength + 1);
                if parens {
                    out.push(')');
                }
            }
        },
    }
}

fn call<E: Tree>(out: &mut String, args: &[&E], names: &E::Names) {
    out.push('(');
    for (i, a) in args.iter().enumerate() {
        if i > 0 {
            out.push_str(", ");
        }
        print_at(out, *a, names, 0);
    }
    out.push(')');
}

/// Greatest height of a tree, and nesting of parentheses, that is read.
pub(super) const MAX_DEPTH: usize = 200;

/// A tree that can be read.
pub(super) trait ParseTree<'a>: Tree {
    /// The referents of names in leaves.
    type Scope;
    fn constant(x: F32) -> Self;
    fn unary(op: UnaryOp, x: Self) -> Self;
    fn binary(op: BinaryOp, a: Self, b: Self) -> Self;
    /// A leaf or a call that only this kind of tree has; reads the arguments of a call through
    /// `args`.
    fn special(p: &mut Parser<'a>, scope: &Self::Scope, args: &mut Args<'_, 'a, Self>) -> Parsed<Self>;
    /// Words that may start [`ParseTree::special`], for error messages.
    fn specials() -> Vec<&'static str>;
}

/// Reads the arguments of calls and keeps track of the height of the tree.
pub(super) struct Args<'s, 'a, E: ParseTree<'a>> {
    scope: &'s E::Scope,
    /// Nesting of the call.
    depth: usize,
    /// Greatest height among the arguments read.
    height: usize,
}

impl<'a, E: ParseTree<'a>> Args<'_, 'a, E> {
    /// `(a, b, …)`
    pub fn list(&mut self, p: &mut Parser<'a>) -> Parsed<Vec<E>> {
        p.expect(b'(')?;
        p.list(b')', |p| {
            let (e, height) = parse_at(p, self.scope, 0, self.depth + 1)?;
            self.height = self.height.max(height);
            Ok(e)
        })
    }

    /// `(a, b)` with `n` arguments.
    pub fn counted(&mut self, p: &mut Parser<'a>, op: &str, n: usize) -> Parsed<Vec<E>> {
        let mark = p.mark().saturating_sub(1);
        let args = self.list(p)?;
        if args.len() != n {
            let s = if n == 1 { "" } else { "s" };
            return Err(fault("arguments", p.since(mark), format!("`{op}` takes {n} argument{s}, not {}", args.len())));
        }
        Ok(args)
    }

    /// `(a, b)` with exactly `N` arguments.
    pub fn exactly<const N: usize>(&mut self, p: &mut Parser<'a>, op: &str) -> Parsed<[E; N]> {
        let args = self.counted(p, op, N)?;
        args.try_into().map_err(|_| p.unexpected("other arguments"))
    }
}

/// Reads a tree.
pub(super) fn parse<'a, E: ParseTree<'a>>(p: &mut Parser<'a>, scope: &E::Scope) -> Parsed<E> {
    parse_at(p, scope, 0, 0).map(|(e, _)| e)
}

/// Reads a tree of operators that bind at least as strongly as `min`; returns its height too.
fn parse_at<'a, E: ParseTree<'a>>(p: &mut Parser<'a>, scope: &E::Scope, min: u8, depth: usize) -> Parsed<(E, usize)> {
    let mark = p.mark();
    if depth > MAX_DEPTH {
        return Err(too_deep(p, mark));
    }
    let (mut left, mut height) = operand(p, scope, depth)?;
    while let Some((op, strength)) = next_infix(p).filter(|(_, strength)| *strength >= min) {
        p.next();
        let (right, h) = parse_at(p, scope, strength + 1, depth + 1)?;
        height = height.max(h) + 1;
        if height > MAX_DEPTH {
            return Err(too_deep(p, mark));
        }
        left = E::binary(op, left, right);
    }
    Ok((left, height))
}

fn too_deep(p: &Parser<'_>, mark: usize) -> Box<crate::diag::Diagnostic> {
    fault("too-deep", p.since(mark), format!("the expression is nested more than {MAX_DEPTH} deep"))
}

fn next_infix(p: &Parser<'_>) -> Option<(BinaryOp, u8)> {
    let Kind::Punct(symbol) = p.peek().kind else { return None };
    BinaryOp::ALL.iter().find_map(|(op, _)| {
        infix(*op).filter(|(s, _)| *s as u32 == u32::from(symbol)).map(|(_, strength)| (*op, strength))
    })
}

fn operand<'a, E: ParseTree<'a>>(p: &mut Parser<'a>, scope: &E::Scope, depth: usize) -> Parsed<(E, usize)> {
    match p.peek().kind {
        Kind::Int | Kind::Float | Kind::Bits | Kind::Punct(b'-') => return Ok((E::constant(F32::new(p.real()?)), 0)),
        Kind::Punct(b'(') => {
            p.next();
            let inner = parse_at(p, scope, 0, depth + 1)?;
            p.expect(b')')?;
            return Ok(inner);
        }
        Kind::Word | Kind::Value => {}
        _ => return Err(p.unexpected("an expression")),
    }
    let mut args = Args { scope, depth, height: 0 };
    let name = p.peek_word();
    let e = if let Some(op) = UnaryOp::parse(name) {
        p.next();
        let [x] = args.exactly(p, name)?;
        E::unary(op, x)
    } else if let Some(op) = BinaryOp::parse(name) {
        p.next();
        let [a, b] = args.exactly(p, name)?;
        E::binary(op, a, b)
    } else {
        E::special(p, scope, &mut args)?
    };
    Ok((e, args.height + 1))
}

/// The error at a word that starts no expression.
pub(super) fn no_expression<'a, E: ParseTree<'a>>(p: &Parser<'a>) -> Box<crate::diag::Diagnostic> {
    let word = p.peek_word();
    if word.is_empty() {
        return p.unexpected("an expression");
    }
    let e = fault("unknown-op", p.peek().range(), format!("no expression `{}`", super::parse::shorten(word)));
    let names = UnaryOp::ALL.iter().map(|(_, n)| *n).chain(BinaryOp::ALL.iter().map(|(_, n)| *n)).chain(E::specials());
    Box::new(super::parse::suggest(*e, word, names))
}
