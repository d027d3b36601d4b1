//! The table of graph operations: names and attributes, from which both the printer and the parser work.

use super::names::Float;
use crate::graph::{BinaryOp, F32, Op, UnaryOp};
use std::fmt;

/// Value of an attribute.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Attr {
    /// A size.
    Size(usize),
    /// A real number.
    Real(F32),
}

impl fmt::Display for Attr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Attr::Size(n) => n.fmt(f),
            Attr::Real(x) => Float(x.get()).fmt(f),
        }
    }
}

/// A type that an attribute of an operation may have.
pub(super) trait AttrType: Sized {
    /// What the parser must find.
    const KIND: AttrKind;
    fn to_attr(self) -> Attr;
    /// `None` if `attr` is of another kind.
    fn from_attr(attr: Attr) -> Option<Self>;
}

/// Kind of an attribute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AttrKind {
    /// [`Attr::Size`].
    Size,
    /// [`Attr::Real`].
    Real,
}

impl AttrType for usize {
    const KIND: AttrKind = AttrKind::Size;
    fn to_attr(self) -> Attr {
        Attr::Size(self)
    }
    fn from_attr(attr: Attr) -> Option<usize> {
        match attr {
            Attr::Size(n) => Some(n),
            Attr::Real(_) => None,
        }
    }
}

impl AttrType for F32 {
    const KIND: AttrKind = AttrKind::Real;
    fn to_attr(self) -> Attr {
        Attr::Real(self)
    }
    fn from_attr(attr: Attr) -> Option<F32> {
        match attr {
            Attr::Real(x) => Some(x),
            Attr::Size(_) => None,
        }
    }
}

/// Declared attributes of an operation, in the order of printing.
pub(super) type AttrDecls = &'static [(&'static str, AttrKind)];

/// What the parser knows about an operation before it reads its attributes.
pub(super) struct OpSyntax {
    /// Attributes, all required.
    pub attrs: AttrDecls,
    build: Build,
}

enum Build {
    /// Without attributes.
    Done(Op),
    /// From the values of the attributes in order.
    From(fn(&[Attr]) -> Option<Op>),
}

impl OpSyntax {
    /// The operation from the values of its attributes, in the order of `attrs`; `None` if their number or kinds are wrong.
    pub fn build(&self, values: &[Attr]) -> Option<Op> {
        match &self.build {
            Build::Done(op) => values.is_empty().then(|| op.clone()),
            Build::From(f) => f(values),
        }
    }
}

/// One line per operation: variant, name, attributes with their types. `attrs` matches without a wildcard, so a new operation does not compile
/// until it has its line.
macro_rules! ops {
    ($( $variant:ident = $name:literal $( ($tuple:ident: $tuple_ty:ty) )? $( { $($field:ident: $ty:ty),* } )? ; )*) => {
        /// Attributes of an operation with their names.
        pub(super) fn attrs(op: &Op) -> Vec<(&'static str, Attr)> {
            match op {
                Op::Unary(_) | Op::Binary(_) => vec![],
                $( ops!(@pat $variant $(($tuple))? $({$($field),*})?) => {
                    vec![ $( (stringify!($tuple), $tuple.to_attr()), )? $( $( (stringify!($field), $field.to_attr()), )* )? ]
                } )*
            }
        }

        /// Looks an operation of this table up by name.
        fn structured(name: &str) -> Option<OpSyntax> {
            match name {
                $( $name => Some(OpSyntax {
                    attrs: &[
                        $( (stringify!($tuple), <$tuple_ty as AttrType>::KIND), )?
                        $( $( (stringify!($field), <$ty as AttrType>::KIND), )* )?
                    ],
                    build: Build::From(|values| {
                        #[allow(unused_mut)]
                        let mut values = values.iter().copied();
                        let op = ops!(@build values $variant $(($tuple: $tuple_ty))? $({$($field: $ty),*})?);
                        values.next().is_none().then_some(op)
                    }),
                }), )*
                _ => None,
            }
        }

        /// Every name of this table.
        pub(super) const STRUCTURED: &[&str] = &[$($name),*];
    };
    (@pat $variant:ident ($tuple:ident)) => { &Op::$variant($tuple) };
    (@pat $variant:ident {$($field:ident),*}) => { &Op::$variant { $($field),* } };
    (@pat $variant:ident) => { &Op::$variant };
    (@build $values:ident $variant:ident ($tuple:ident: $ty:ty)) => { Op::$variant(<$ty>::from_attr($values.next()?)?) };
    (@build $values:ident $variant:ident {$($field:ident: $ty:ty),*}) => { Op::$variant { $($field: <$ty>::from_attr($values.next()?)?),* } };
    (@build $values:ident $variant:ident) => { Op::$variant };
}

ops! {
    Embed = "embed";
    MatMul = "matmul";
    Const = "const" (value: F32);
    Normalize = "normalize" { eps: F32, width: usize };
    RopeTable = "rope_table" { scale: F32 };
    Rope = "rope" { head_dim: usize };
    KvAppend = "kv_append";
    Attention = "attention" { heads: usize, scale: F32 };
    GatherRows = "gather_rows";
    SliceCols = "slice_cols" { start: usize, len: usize };
    ConcatCols = "concat_cols";
    Transpose = "transpose";
    ScaleCols = "scale_cols";
    ScaleRows = "scale_rows";
    ConcatRows = "concat_rows";
    SliceRows = "slice_rows" { start: usize, len: usize };
}

/// Looks an operation up by name.
pub(super) fn op(name: &str) -> Option<OpSyntax> {
    structured(name).or_else(|| {
        let unary = unary(name).map(Op::Unary);
        let op = unary.or_else(|| binary(name).map(Op::Binary))?;
        Some(OpSyntax { attrs: &[], build: Build::Done(op) })
    })
}

/// The elementwise function of one argument of this name.
pub(super) fn unary(name: &str) -> Option<UnaryOp> {
    UnaryOp::ALL.iter().find(|(_, n)| *n == name).map(|(o, _)| *o)
}

/// The elementwise function of two arguments of this name.
pub(super) fn binary(name: &str) -> Option<BinaryOp> {
    BinaryOp::ALL.iter().find(|(_, n)| *n == name).map(|(o, _)| *o)
}
