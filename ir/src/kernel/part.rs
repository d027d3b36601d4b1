//! Parts of kernels: how each is walked, shown and read, and the macro that declares a family by its parts.

use super::expr::segment_operands;
use super::{Field, Norm, ParamId, Prologue, Segment, Store, Use};
use crate::graph::{Attr, AttrType, Balance, Criterion, Eviction, F32, Router, RowScale, Score, Update};
use crate::text::{KernelReader, Parsed, Parser};

/// Fields with their names.
pub(crate) type Fields<'a> = Vec<(&'static str, Field<'a>)>;

/// A way to walk, show and read a part of type `T`.
pub(crate) trait As<T> {
    /// Calls `f` on every operand of the part and its use.
    fn operands(&self, _: &mut T, _: &mut dyn FnMut(&mut ParamId, Use)) {}

    /// Adds the part's fields, in the order of the text.
    fn show<'a>(&self, name: &'static str, part: &'a T, out: &mut Fields<'a>);

    /// Reads the text of these fields.
    fn read<'a>(&self, name: &'static str, r: &KernelReader<'a>, p: &mut Parser<'a>) -> Parsed<T>;
}

/// The usual way: by the type alone.
pub(crate) struct Plain;

/// A number that is not written if it is 1.
pub(crate) struct Or1;

/// A flag, by the word for its opposite.
pub(crate) struct Unless(pub &'static str);

/// Two operands that are read, both or neither, by a name each.
pub(crate) struct Pair(pub [&'static str; 2]);

/// One segment, whose columns belong to a slot of each row.
pub(crate) struct Slots;

/// An operand is declared by its use.
impl As<ParamId> for Use {
    fn operands(&self, part: &mut ParamId, f: &mut dyn FnMut(&mut ParamId, Use)) {
        f(part, self.clone());
    }

    fn show<'a>(&self, name: &'static str, part: &'a ParamId, out: &mut Fields<'a>) {
        out.push((name, Field::Operand(*part)));
    }

    fn read<'a>(&self, name: &'static str, r: &KernelReader<'a>, p: &mut Parser<'a>) -> Parsed<ParamId> {
        r.field(p, name)
    }
}

impl As<Option<ParamId>> for Use {
    fn operands(&self, part: &mut Option<ParamId>, f: &mut dyn FnMut(&mut ParamId, Use)) {
        part.iter_mut().for_each(|p| f(p, self.clone()));
    }

    fn show<'a>(&self, name: &'static str, part: &'a Option<ParamId>, out: &mut Fields<'a>) {
        out.push((name, Field::Optional(*part)));
    }

    fn read<'a>(&self, name: &'static str, r: &KernelReader<'a>, p: &mut Parser<'a>) -> Parsed<Option<ParamId>> {
        r.optional_field(p, name)
    }
}

impl As<Option<[ParamId; 2]>> for Pair {
    fn operands(&self, part: &mut Option<[ParamId; 2]>, f: &mut dyn FnMut(&mut ParamId, Use)) {
        part.iter_mut().flatten().for_each(|p| f(p, Use::READ));
    }

    fn show<'a>(&self, _: &'static str, part: &'a Option<[ParamId; 2]>, out: &mut Fields<'a>) {
        out.extend(self.0.into_iter().enumerate().map(|(i, name)| (name, Field::Optional(part.map(|both| both[i])))));
    }

    fn read<'a>(&self, _: &'static str, r: &KernelReader<'a>, p: &mut Parser<'a>) -> Parsed<Option<[ParamId; 2]>> {
        let [first, second] = self.0;
        match r.optional_field(p, first)? {
            Some(one) => Ok(Some([one, r.field(p, second)?])),
            None => Ok(None),
        }
    }
}

impl As<bool> for Unless {
    fn show<'a>(&self, _: &'static str, part: &'a bool, out: &mut Fields<'a>) {
        out.push((self.0, Field::Flag(!part)));
    }

    fn read<'a>(&self, _: &'static str, _: &KernelReader<'a>, p: &mut Parser<'a>) -> Parsed<bool> {
        Ok(!p.eat_word(self.0))
    }
}

/// A field that is there only if its name comes next.
fn if_named<'a, T>(
    name: &str,
    p: &mut Parser<'a>,
    read: impl FnOnce(&mut Parser<'a>) -> Parsed<T>,
) -> Parsed<Option<T>> {
    if p.peek_word() == name { read(p).map(Some) } else { Ok(None) }
}

/// Types with one field each: `type, how: |part| field, |name, reader, parser| part`.
macro_rules! one_field {
    ($($ty:ty, $how:ident: |$part:ident| $show:expr, |$name:ident, $r:ident, $p:ident| $read:expr;)*) => { $(
        impl As<$ty> for $how {
            fn show<'a>(&self, name: &'static str, $part: &'a $ty, out: &mut Fields<'a>) {
                out.push((name, $show));
            }

            fn read<'a>(&self, $name: &'static str, $r: &KernelReader<'a>, $p: &mut Parser<'a>) -> Parsed<$ty> {
                $read
            }
        }
    )* };
}

one_field! {
    usize, Plain: |n| Field::Size(*n), |name, _r, p| p.field_size(name);
    usize, Or1: |n| Field::SizeOr1(*n), |name, _r, p| Ok(if_named(name, p, |p| p.field_size(name))?.unwrap_or(1));
    Option<usize>, Plain: |n| Field::SizeIf(*n), |name, _r, p| if_named(name, p, |p| p.field_size(name));
    Vec<usize>, Plain: |all| Field::Sizes(all), |name, _r, p| p.field_sizes(name);
    F32, Plain: |x| Field::Real(*x), |name, _r, p| p.field_real(name);
    F32, Or1: |x| Field::RealOr1(*x),
        |name, _r, p| Ok(if_named(name, p, |p| p.field_real(name))?.unwrap_or(F32::new(1.0)));
    Option<F32>, Plain: |x| Field::RealIf(*x), |name, _r, p| if_named(name, p, |p| p.field_real(name));
    bool, Plain: |yes| Field::Flag(*yes), |name, _r, p| Ok(p.eat_word(name));
    Score, Plain: |score| Field::Word(word(score)), |name, _r, p| p.field_word(name);
    Criterion, Plain: |criterion| Field::Word(word(criterion)), |name, _r, p| p.field_word(name);
    Update, Plain: |update| Field::Word(word(update)), |name, _r, p| p.field_word(name);
    Option<Norm>, Plain: |norm| Field::Norm(*norm), |_name, r, p| r.optional_norm(p);
}

/// The word of an attribute that is one.
fn word(x: &impl AttrType) -> &'static str {
    match x.to_attr() {
        Attr::Word(word) => word,
        Attr::Size(_) | Attr::Real(_) | Attr::Flag(_) | Attr::Sizes(_) => "",
    }
}

/// Attributes that stand among the fields one by one.
macro_rules! several_fields {
    ($($ty:ident { $($field:ident),* })*) => { $(
        impl As<$ty> for Plain {
            fn show<'a>(&self, _: &'static str, part: &'a $ty, out: &mut Fields<'a>) {
                $( Plain.show(stringify!($field), &part.$field, out); )*
            }

            fn read<'a>(&self, _: &'static str, r: &KernelReader<'a>, p: &mut Parser<'a>) -> Parsed<$ty> {
                Ok($ty { $( $field: Plain.read(stringify!($field), r, p)?, )* })
            }
        }
    )* };
}

several_fields! {
    Router { score, top, normalize, eps, scale, groups, kept, pairs }
    Eviction { criterion, budget, recent, drop, window, level, together }
    Balance { side, rounds, eps }
    RowScale { width, most, least }
}

impl As<Option<Prologue>> for Plain {
    fn operands(&self, part: &mut Option<Prologue>, f: &mut dyn FnMut(&mut ParamId, Use)) {
        let vectors = part.iter_mut().flat_map(|p| [&mut p.gain, &mut p.bias]).flatten();
        vectors.for_each(|vector| f(vector, Use::READ));
    }

    fn show<'a>(&self, name: &'static str, part: &'a Option<Prologue>, out: &mut Fields<'a>) {
        out.push((name, Field::Prologue(part.as_ref())));
    }

    fn read<'a>(&self, name: &'static str, r: &KernelReader<'a>, p: &mut Parser<'a>) -> Parsed<Option<Prologue>> {
        if_named(name, p, |p| r.prologue(p))
    }
}

impl As<Vec<Segment>> for Plain {
    fn operands(&self, part: &mut Vec<Segment>, f: &mut dyn FnMut(&mut ParamId, Use)) {
        segment_operands(part, f);
    }

    fn show<'a>(&self, name: &'static str, part: &'a Vec<Segment>, out: &mut Fields<'a>) {
        out.push((name, Field::Segments(part)));
    }

    fn read<'a>(&self, _: &'static str, r: &KernelReader<'a>, p: &mut Parser<'a>) -> Parsed<Vec<Segment>> {
        r.segments(p)
    }
}

impl As<Segment> for Slots {
    fn operands(&self, part: &mut Segment, f: &mut dyn FnMut(&mut ParamId, Use)) {
        let segment = Some(0);
        part.weights.iter_mut().for_each(|w| f(w, Use { segment, ..Use::READ }));
        // All slots of rows, which are all columns.
        part.expr.operands(&mut |p, _| f(p, Use { segment, ..Use::READ }));
        match &mut part.store {
            Store::Rows { param, .. } | Store::KvKey(param) | Store::KvValue(param) => {
                f(param, Use { segment, ..Use::WRITE })
            }
        }
    }

    fn show<'a>(&self, _: &'static str, part: &'a Segment, out: &mut Fields<'a>) {
        out.push(("segments", Field::Segments(std::slice::from_ref(part))));
    }

    fn read<'a>(&self, _: &'static str, r: &KernelReader<'a>, p: &mut Parser<'a>) -> Parsed<Segment> {
        r.one_segment(p)
    }
}

/// A family's declaration of itself by [`family!`].
pub(crate) trait Parts {
    /// Calls `f` on every operand and its use, in the order of the text: the only walk over them.
    fn operands(&mut self, f: &mut dyn FnMut(&mut ParamId, Use));

    /// Its parts in the order of its text.
    fn fields(&self) -> Fields<'_>;

    /// Reads the text of [`Parts::fields`].
    fn read<'a>(r: &KernelReader<'a>, p: &mut Parser<'a>) -> Parsed<Self>
    where
        Self: Sized;
}

/// Declares the structure of a family of kernels with its parts in the order of their text, and from it
/// its operands, text and reader: [`Parts`]. A part is
///
/// ```text
/// /// The part's meaning.
/// name: type,
/// ```
///
/// with `as` and a way ([`As`]) where the type alone does not say how it is walked, shown and read: the
/// [`Use`] of an operand, or [`Or1`], [`Unless`], [`Pair`], [`Slots`].
macro_rules! family {
    (
        $(#[doc = $doc:literal])*
        $family:ident { $( $(#[doc = $part_doc:literal])* $part:ident: $ty:ty $(as $how:expr)?, )* }
    ) => {
        $(#[doc = $doc])*
        #[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $family { $( $(#[doc = $part_doc])* pub $part: $ty, )* }

        impl $crate::kernel::part::Parts for $family {
            fn operands(&mut self, f: &mut dyn FnMut(&mut $crate::kernel::ParamId, $crate::kernel::Use)) {
                use $crate::kernel::part::{As, family_part};
                $( As::<$ty>::operands(&family_part!($($how)?), &mut self.$part, f); )*
            }

            fn fields(&self) -> $crate::kernel::part::Fields<'_> {
                use $crate::kernel::part::{As, family_part};
                let mut out = vec![];
                $( As::<$ty>::show(&family_part!($($how)?), stringify!($part), &self.$part, &mut out); )*
                out
            }

            fn read<'a>(
                r: &$crate::text::KernelReader<'a>,
                p: &mut $crate::text::Parser<'a>,
            ) -> $crate::text::Parsed<$family> {
                use $crate::kernel::part::{As, family_part};
                Ok($family { $( $part: As::<$ty>::read(&family_part!($($how)?), stringify!($part), r, p)?, )* })
            }
        }
    };
}

/// How a part of [`family!`] is walked, shown and read.
macro_rules! family_part {
    () => {
        $crate::kernel::part::Plain
    };
    ($how:expr) => {
        $how
    };
}

pub(crate) use {family, family_part};
