//! Expression trees (epilogues of kernels, packed weights) as infix text.
//!
//! `+ -` bind weaker than `* /`, all associate to the left; everything else is a call, `max(a, b)`. Parentheses appear only where the tree
//! needs them, so that printing and parsing keep its exact shape.

use super::names::Float;
use crate::graph::{BinaryOp, F32};

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
