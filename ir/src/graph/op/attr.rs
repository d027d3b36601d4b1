//! Attributes of operations.

use crate::graph::value::F32;
use std::fmt;
use std::sync::Arc;

/// Value of an attribute.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Attr {
    /// A size.
    Size(usize),
    /// A real number.
    Real(F32),
    /// Yes or no.
    Flag(bool),
    /// One of a few words.
    Word(&'static str),
    /// A list of sizes.
    Sizes(Arc<[usize]>),
}

/// Kind of an attribute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttrKind {
    /// [`Attr::Size`].
    Size,
    /// [`Attr::Real`].
    Real,
    /// [`Attr::Flag`].
    Flag,
    /// [`Attr::Word`], one of these.
    Word(&'static [&'static str]),
    /// [`Attr::Sizes`].
    Sizes,
}

impl fmt::Display for Attr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Attr::Size(n) => n.fmt(f),
            Attr::Real(x) => x.fmt(f),
            Attr::Flag(b) => b.fmt(f),
            Attr::Word(w) => w.fmt(f),
            Attr::Sizes(list) => fmt::Debug::fmt(list, f),
        }
    }
}

/// A type that an attribute of an operation may have.
pub trait AttrType: Sized {
    /// The token the parser must find.
    const KIND: AttrKind;
    /// As a value of [`AttrType::KIND`].
    fn to_attr(&self) -> Attr;
    /// `None` if `attr` is of another kind.
    fn from_attr(attr: &Attr) -> Option<Self>;
}

/// An enumeration as an attribute: the words of all its values, in the order of `ALL`.
macro_rules! words {
    ($ty:ty: $words:ident) => {
        impl AttrType for $ty {
            const KIND: AttrKind = AttrKind::Word($words);
            fn to_attr(&self) -> Attr {
                Attr::Word($words[*self as usize])
            }
            fn from_attr(attr: &Attr) -> Option<$ty> {
                let Attr::Word(word) = attr else { return None };
                <$ty>::ALL.iter().zip($words).find(|(_, name)| *name == word).map(|(value, _)| *value)
            }
        }
    };
}
pub(super) use words;

macro_rules! attr_types {
    ($($ty:ty = $kind:ident: |$x:ident| $to:expr, $from:expr;)*) => { $(
        impl AttrType for $ty {
            const KIND: AttrKind = AttrKind::$kind;
            fn to_attr(&self) -> Attr {
                let $x = self;
                Attr::$kind($to)
            }
            fn from_attr(attr: &Attr) -> Option<$ty> {
                if let Attr::$kind($x) = attr { Some($from) } else { None }
            }
        }
    )* };
}

attr_types! {
    usize = Size: |x| *x, *x;
    F32 = Real: |x| *x, *x;
    bool = Flag: |x| *x, *x;
    Vec<usize> = Sizes: |x| x.as_slice().into(), x.to_vec();
}
