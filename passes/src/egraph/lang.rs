//! The language of the e-graph.
//!
//! Three kinds of terms share one e-graph:
//!
//! - graph operations ([`Term::Op`]), attributes first as leaves, then operands, so that a rewrite is plain text:
//!   `(slice_cols ?start ?len (matmul ?x ?w)) => (matmul ?x (slice_rows ?start ?len ?w))`;
//! - implementations ([`Term::Kernel`]): one launch of a fused kernel. With one result the kernel stands in the class of the value it computes; with
//!   several it has a class of its own and its results are [`Term::Proj`]s of it;
//! - `quant` ([`Head::Quant`]): a value rounded to int8 rows. It is an approximation, so it is a class apart and never equal to its operand;
//! - storage ([`Term::Store`]): a weight packed in a format, or an attention state cached in a type, with the error that this makes. Classes apart too.
//!
//! `concat_cols` and `concat_rows` are binary here (nested to the right) and flattened again when leaving the e-graph.

use crate::spec::Spec;
use egg::{FromOp, Id, Language};
use llmcc_ir::graph::{BinaryOp, F32, Op, UnaryOp};
use llmcc_ir::kv::KvDType;
use llmcc_ir::quant::Format;
use std::fmt;
use std::sync::Arc;

/// An operation without its attributes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Head {
    /// See [`Op::Embed`]. Children: table, tokens.
    Embed,
    /// See [`Op::MatMul`].
    MatMul,
    /// See [`Op::Unary`].
    Unary(UnaryOp),
    /// See [`Op::Binary`].
    Binary(BinaryOp),
    /// Attributes: eps, width.
    Normalize,
    /// Attribute: scale.
    RopeTable,
    /// Attribute: head size.
    Rope,
    /// See [`Op::KvAppend`].
    KvAppend,
    /// Attributes: heads, scale.
    Attention,
    /// See [`Op::GatherRows`].
    GatherRows,
    /// Attributes: start, length.
    SliceCols,
    /// Of two operands.
    ConcatCols,
    /// See [`Op::Transpose`].
    Transpose,
    /// See [`Op::ScaleCols`].
    ScaleCols,
    /// See [`Op::ScaleRows`].
    ScaleRows,
    /// Of two operands.
    ConcatRows,
    /// Attributes: start, length.
    SliceRows,
    /// Attribute: group. `quant{group}(x)`: rows of `x` in int8 with a scale per group of columns.
    Quant,
}

const PLAIN_HEADS: &[(Head, &str, usize)] = &[
    (Head::Embed, "embed", 0),
    (Head::MatMul, "matmul", 0),
    (Head::Normalize, "normalize", 2),
    (Head::RopeTable, "rope_table", 1),
    (Head::Rope, "rope", 1),
    (Head::KvAppend, "kv_append", 0),
    (Head::Attention, "attention", 2),
    (Head::GatherRows, "gather_rows", 0),
    (Head::SliceCols, "slice_cols", 2),
    (Head::ConcatCols, "concat_cols", 0),
    (Head::Transpose, "transpose", 0),
    (Head::ScaleCols, "scale_cols", 0),
    (Head::ScaleRows, "scale_rows", 0),
    (Head::ConcatRows, "concat_rows", 0),
    (Head::SliceRows, "slice_rows", 2),
    (Head::Quant, "quant", 1),
];

impl Head {
    /// Name in rewrites and dumps.
    pub fn name(self) -> &'static str {
        match self {
            Head::Unary(u) => u.name(),
            Head::Binary(b) => b.name(),
            _ => PLAIN_HEADS.iter().find(|(h, _, _)| *h == self).map_or("?", |(_, n, _)| n),
        }
    }

    /// The operation named `name`.
    pub fn parse(name: &str) -> Option<Head> {
        let unary = || UnaryOp::ALL.iter().find(|(_, n)| *n == name).map(|(o, _)| Head::Unary(*o));
        let binary = || BinaryOp::ALL.iter().find(|(_, n)| *n == name).map(|(o, _)| Head::Binary(*o));
        PLAIN_HEADS.iter().find(|(_, n, _)| *n == name).map(|(h, _, _)| *h).or_else(unary).or_else(binary)
    }

    /// Leading children that are attributes.
    pub fn attributes(self) -> usize {
        PLAIN_HEADS.iter().find(|(h, _, _)| *h == self).map_or(0, |(_, _, n)| *n)
    }

    /// The operation and its attributes, from a graph operation (`Const` has no head).
    pub fn of(op: &Op) -> Option<(Head, Vec<Attr>)> {
        use Attr::{Float, Int};
        Some(match *op {
            Op::Embed => (Head::Embed, vec![]),
            Op::MatMul => (Head::MatMul, vec![]),
            Op::Unary(u) => (Head::Unary(u), vec![]),
            Op::Binary(b) => (Head::Binary(b), vec![]),
            Op::Const(_) => return None,
            Op::Normalize { eps, width } => (Head::Normalize, vec![Float(eps), Int(width)]),
            Op::RopeTable { scale } => (Head::RopeTable, vec![Float(scale)]),
            Op::Rope { head_dim } => (Head::Rope, vec![Int(head_dim)]),
            Op::KvAppend => (Head::KvAppend, vec![]),
            Op::Attention { heads, scale } => (Head::Attention, vec![Int(heads), Float(scale)]),
            Op::GatherRows => (Head::GatherRows, vec![]),
            Op::SliceCols { start, len } => (Head::SliceCols, vec![Int(start), Int(len)]),
            Op::ConcatCols => (Head::ConcatCols, vec![]),
            Op::Transpose => (Head::Transpose, vec![]),
            Op::ScaleCols => (Head::ScaleCols, vec![]),
            Op::ScaleRows => (Head::ScaleRows, vec![]),
            Op::ConcatRows => (Head::ConcatRows, vec![]),
            Op::SliceRows { start, len } => (Head::SliceRows, vec![Int(start), Int(len)]),
        })
    }

    /// The graph operation, given its attributes; `None` for `quant` and for attributes of the wrong kind.
    pub fn op(self, attrs: &[Attr]) -> Option<Op> {
        use Attr::{Float, Int};
        Some(match (self, attrs) {
            (Head::Embed, []) => Op::Embed,
            (Head::MatMul, []) => Op::MatMul,
            (Head::Unary(u), []) => Op::Unary(u),
            (Head::Binary(b), []) => Op::Binary(b),
            (Head::Normalize, [Float(eps), Int(width)]) => Op::Normalize { eps: *eps, width: *width },
            (Head::RopeTable, [Float(scale)]) => Op::RopeTable { scale: *scale },
            (Head::Rope, [Int(head_dim)]) => Op::Rope { head_dim: *head_dim },
            (Head::KvAppend, []) => Op::KvAppend,
            (Head::Attention, [Int(heads), Float(scale)]) => Op::Attention { heads: *heads, scale: *scale },
            (Head::GatherRows, []) => Op::GatherRows,
            (Head::SliceCols, [Int(start), Int(len)]) => Op::SliceCols { start: *start, len: *len },
            (Head::ConcatCols, []) => Op::ConcatCols,
            (Head::Transpose, []) => Op::Transpose,
            (Head::ScaleCols, []) => Op::ScaleCols,
            (Head::ScaleRows, []) => Op::ScaleRows,
            (Head::ConcatRows, []) => Op::ConcatRows,
            (Head::SliceRows, [Int(start), Int(len)]) => Op::SliceRows { start: *start, len: *len },
            _ => return None,
        })
    }
}

/// Value of an attribute leaf.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attr {
    /// A count.
    Int(usize),
    /// A number.
    Float(F32),
}

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

/// A node of the e-graph.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Term {
    /// Parameter of the function.
    Param(u32),
    /// Integer attribute.
    Int(usize),
    /// Float attribute, or the scalar constant.
    Float(F32),
    /// An operation: attributes, then operands.
    Op(Head, Box<[Id]>),
    /// A kernel with its inputs: operand `i` of the kernel is child `i`; outputs are the operands that follow.
    Kernel(Arc<Spec>, Box<[Id]>),
    /// Result of a kernel with several results.
    Proj(usize, [Id; 1]),
    /// A value as it is stored, with its relative error where that is known: its own class, equal to nothing.
    Store(Form, Option<F32>, [Id; 1]),
}

/// A [`Term`] without its children.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum TermKey {
    /// Of [`Term::Param`].
    Param(u32),
    /// Of [`Term::Int`].
    Int(usize),
    /// Of [`Term::Float`].
    Float(F32),
    /// Of [`Term::Op`].
    Op(Head),
    /// Of [`Term::Kernel`].
    Kernel(Arc<Spec>),
    /// Of [`Term::Proj`].
    Proj(usize),
    /// Of [`Term::Store`].
    Store(Form, Option<F32>),
}

impl Language for Term {
    type Discriminant = TermKey;

    fn discriminant(&self) -> TermKey {
        match self {
            Term::Param(i) => TermKey::Param(*i),
            Term::Int(i) => TermKey::Int(*i),
            Term::Float(x) => TermKey::Float(*x),
            Term::Op(h, _) => TermKey::Op(*h),
            Term::Kernel(s, _) => TermKey::Kernel(s.clone()),
            Term::Proj(i, _) => TermKey::Proj(*i),
            Term::Store(form, error, _) => TermKey::Store(*form, *error),
        }
    }

    fn matches(&self, other: &Term) -> bool {
        match (self, other) {
            (Term::Op(a, x), Term::Op(b, y)) => a == b && x.len() == y.len(),
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
            Term::Param(_) | Term::Int(_) | Term::Float(_) => &[],
            Term::Op(_, c) | Term::Kernel(_, c) => c,
            Term::Proj(_, c) | Term::Store(_, _, c) => c,
        }
    }

    fn children_mut(&mut self) -> &mut [Id] {
        match self {
            Term::Param(_) | Term::Int(_) | Term::Float(_) => &mut [],
            Term::Op(_, c) | Term::Kernel(_, c) => c,
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
            Term::Op(h, _) => f.write_str(h.name()),
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
        let leaf = match (op.strip_prefix('%').map(str::parse), op.parse(), op.parse()) {
            (Some(Ok(i)), _, _) => Term::Param(i),
            (_, Ok(i), _) => Term::Int(i),
            (_, _, Ok(x)) => Term::Float(F32::new(x)),
            _ => return Err(format!("no operation is named `{op}`")),
        };
        if children.is_empty() { Ok(leaf) } else { Err(format!("`{op}` takes no operands")) }
    }
}
