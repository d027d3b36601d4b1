//! The language of the e-graph.
//!
//! Four kinds of terms share one e-graph:
//!
//! - graph operations ([`Term::Op`]), attributes first as leaves, then operands, so that a rewrite
//!   is plain text:
//!   `(slice_cols ?start ?len (matmul ?x ?w)) => (matmul ?x (slice_rows ?start ?len ?w))`;
//! - implementations ([`Term::Kernel`]): one launch of a fused kernel. With one result the kernel
//!   stands in the class of the value it computes; with several it has a class of its own and its
//!   results are [`Term::Proj`]s of it;
//! - `quant` ([`Term::Quant`]): a value rounded to rows of fewer bits. It is an approximation, so
//!   it is a class apart and never equal to its operand;
//! - storage ([`Term::Store`]): a weight packed in a format, or an attention state cached in a
//!   type, with the error that this makes. Classes apart too.
//!
//! The heads of operations come from the table of graph operations. Operations of any number of
//! operands (`concat_cols`, `concat_rows`) are binary here, nested to the right, and flattened
//! again when leaving the e-graph.

use crate::spec::Spec;
use egg::{FromOp, Id, Language};
use llmcc_ir::graph::{Attr, F32, Head};
use llmcc_ir::kv::KvDType;
use llmcc_ir::quant::Format;
use std::fmt;
use std::sync::Arc;

/// How a value is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Form {
    /// A weight matrix in a format.
    Packed(Format),
    /// Keys and values of a type.
    Cached(KvDType),
}

impl fmt::Display for Form {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Form::Packed(format) => write!(f, "{format}"),
            Form::Cached(dtype) => write!(f, "{dtype}"),
        }
    }
}

impl Term {
    /// Head, attributes and operands of an operation; `None` for other terms.
    pub fn operation(&self) -> Option<(Head, &[Id], &[Id])> {
        let Term::Op(head, children) = self else { return None };
        let (attributes, operands) = children.split_at(head.attributes().len().min(children.len()));
        Some((*head, attributes, operands))
    }

    /// The leaf of an attribute.
    pub fn attribute(value: Attr) -> Term {
        match value {
            Attr::Size(n) => Term::Int(n),
            Attr::Real(x) => Term::Float(x),
            value @ (Attr::Flag(_) | Attr::Word(_) | Attr::Sizes(_)) => Term::Attr(value),
        }
    }
}

/// A node of the e-graph.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Term {
    /// Parameter of the function.
    Param(u32),
    /// Integer attribute.
    Int(usize),
    /// Float attribute, or the scalar constant.
    Float(F32),
    /// Attribute of another kind.
    Attr(Attr),
    /// An operation: attributes, then operands.
    Op(Head, Box<[Id]>),
    /// `quant(storage, x)`: rows of `x` stored as the attribute says.
    Quant([Id; 2]),
    /// A kernel with its inputs: operand `i` of the kernel is child `i`; outputs are the operands
    /// that follow.
    Kernel(Arc<Spec>, Box<[Id]>),
    /// Result of a kernel with several results.
    Proj(usize, [Id; 1]),
    /// A value as it is stored, with its relative error where that is known: its own class, equal
    /// to nothing.
    Store(Form, Option<F32>, [Id; 1]),
}

/// A [`Term`] without its children.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum TermKey {
    /// Key of [`Term::Param`].
    Param(u32),
    /// Key of [`Term::Int`].
    Int(usize),
    /// Key of [`Term::Float`].
    Float(F32),
    /// Key of [`Term::Attr`].
    Attr(Attr),
    /// Key of [`Term::Op`].
    Op(Head),
    /// Key of [`Term::Quant`].
    Quant,
    /// Key of [`Term::Kernel`].
    Kernel(Arc<Spec>),
    /// Key of [`Term::Proj`].
    Proj(usize),
    /// Key of [`Term::Store`].
    Store(Form, Option<F32>),
}

impl Language for Term {
    type Discriminant = TermKey;

    fn discriminant(&self) -> TermKey {
        match self {
            Term::Param(i) => TermKey::Param(*i),
            Term::Int(i) => TermKey::Int(*i),
            Term::Float(x) => TermKey::Float(*x),
            Term::Attr(value) => TermKey::Attr(value.clone()),
            Term::Op(h, _) => TermKey::Op(*h),
            Term::Quant(_) => TermKey::Quant,
            Term::Kernel(s, _) => TermKey::Kernel(s.clone()),
            Term::Proj(i, _) => TermKey::Proj(*i),
            Term::Store(form, error, _) => TermKey::Store(*form, *error),
        }
    }

    fn matches(&self, other: &Term) -> bool {
        match (self, other) {
            (Term::Attr(a), Term::Attr(b)) => a == b,
            (Term::Op(a, x), Term::Op(b, y)) => a == b && x.len() == y.len(),
            (Term::Quant(_), Term::Quant(_)) => true,
            (Term::Kernel(a, x), Term::Kernel(b, y)) => x.len() == y.len() && a == b,
            (Term::Proj(a, _), Term::Proj(b, _)) => a == b,
            (Term::Store(a, x, _), Term::Store(b, y, _)) => a == b && x == y,
            (Term::Param(a), Term::Param(b)) => a == b,
            (Term::Int(a), Term::Int(b)) => a == b,
            (Term::Float(a), Term::Float(b)) => a == b,
            _ => false,
        }
    }

    fn children(&self) -> &[Id] {
        match self {
            Term::Param(_) | Term::Int(_) | Term::Float(_) | Term::Attr(_) => &[],
            Term::Op(_, c) | Term::Kernel(_, c) => c,
            Term::Quant(c) => c,
            Term::Proj(_, c) | Term::Store(_, _, c) => c,
        }
    }

    fn children_mut(&mut self) -> &mut [Id] {
        match self {
            Term::Param(_) | Term::Int(_) | Term::Float(_) | Term::Attr(_) => &mut [],
            Term::Op(_, c) | Term::Kernel(_, c) => c,
            Term::Quant(c) => c,
            Term::Proj(_, c) | Term::Store(_, _, c) => c,
        }
    }
}

impl fmt::Display for Term {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Term::Param(i) => write!(f, "%{i}"),
            Term::Int(i) => write!(f, "{i}"),
            Term::Float(x) => write!(f, "{x}"),
            Term::Attr(value) => write!(f, "{value}"),
            Term::Op(h, _) => f.write_str(h.name()),
            Term::Quant(_) => f.write_str("quant"),
            Term::Kernel(s, _) => write!(f, "{s}"),
            Term::Proj(i, _) => write!(f, "proj{i}"),
            Term::Store(form, None, _) => write!(f, "store[{form}]"),
            Term::Store(form, Some(error), _) => write!(f, "store[{form} error {error}]"),
        }
    }
}

impl FromOp for Term {
    type Error = String;

    fn from_op(op: &str, children: Vec<Id>) -> Result<Term, String> {
        if let Some(head) = Head::parse(op) {
            return Ok(Term::Op(head, children.into()));
        }
        if op == "quant" {
            return children.try_into().map(Term::Quant).map_err(|_| "`quant` takes a storage and a value".into());
        }
        let leaf = match (op.strip_prefix('%').map(str::parse), op.parse(), op.parse()) {
            (Some(Ok(i)), _, _) => Term::Param(i),
            (_, Ok(i), _) => Term::Int(i),
            (_, _, Ok(x)) => Term::Float(F32::new(x)),
            _ => return Err(format!("no operation is named `{op}`")),
        };
        if children.is_empty() { Ok(leaf) } else { Err(format!("`{op}` takes no operands")) }
    }
}
