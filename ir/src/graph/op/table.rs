//! The macro behind the table of operations.

/// Makes [`Op`](super::Op), [`Head`](super::Head) and everything that follows from a line of the
/// table: names, attributes and facts. A line is
///
/// ```text
/// /// What it means.
/// Variant "name" { /// What it is. attribute: Type, … } Stage (argument: Reads, …);
/// ```
///
/// with `= default` after an attribute that is written only where it differs, `; more` after the
/// last argument if any number may follow, `+ (argument: Reads, …)` if so many may, `moves` at the end if elements
/// are only moved, and `[of: Family]` instead of a name for a set of operations that differ in
/// nothing but the function of numbers that they apply.
///
/// For each line there is a structure of its attributes in [`of`](super::of), and the operation's
/// file implements [`Rule`](super::Rule) for it. No match made here has a wildcard.
macro_rules! operations {
    ($(
        $(#[doc = $doc:literal])*
        $(#[cfg($cfg:meta)])?
        $variant:ident $($name:literal)? $([$of:ident: $family:ident])?
        $({ $( $(#[doc = $field_doc:literal])* $field:ident: $ty:ty $(= $default:expr)? ),* $(,)? })?
        $stage:ident ( $($arg:ident: $reads:expr),* $(; $more:ident)? ) $(+ ( $($may:ident: $may_read:expr),* ))? $($moves:ident)?;
    )*) => {
        /// An operation of the graph level.
        #[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum Op { $(
            $(#[doc = $doc])*
            $(#[cfg($cfg)])?
            $variant $({ $( $(#[doc = $field_doc])* $field: $ty ),* })? $(($family))?,
        )* }

        /// An operation without the values of its attributes.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum Head { $(
            #[doc = concat!("Of [`Op::", stringify!($variant), "`].")]
            $(#[cfg($cfg)])?
            $variant $(($family))?,
        )* }

        /// Attributes of each operation, for its [`Rule`].
        pub(crate) mod of {
            use super::*;
            $(
                $(#[cfg($cfg)])?
                pub struct $variant { $( $(pub $field: $ty,)* )? $(pub $of: $family)? }
            )*
        }

        impl Op {
            /// The operation without its attributes.
            pub fn head(&self) -> Head {
                match self { $(
                    $(#[cfg($cfg)])?
                    Op::$variant $({ $($field: _),* })? $(($of))? => Head::$variant $((*$of))?,
                )* }
            }

            /// Attributes with their names.
            pub fn attributes(&self) -> Vec<(&'static str, Attr)> {
                match self { $(
                    $(#[cfg($cfg)])?
                    Op::$variant $({ $($field),* })? $(($of))? => {
                        $( let _: &$family = $of; )?
                        vec![$( $( (stringify!($field), $field.to_attr()), )* )?]
                    }
                )* }
            }

            /// Calls `f` with the rule of the operation.
            fn with<R>(&self, f: impl FnOnce(&dyn Rule) -> R) -> R {
                match self { $(
                    $(#[cfg($cfg)])?
                    Op::$variant $({ $($field),* })? $(($of))? => {
                        f(&of::$variant { $( $($field: Clone::clone($field),)* )? $($of: *$of)? })
                    }
                )* }
            }
        }

        impl Head {
            /// Name in `.lir` text and in rewrites.
            pub fn name(self) -> &'static str {
                match self { $(
                    $(#[cfg($cfg)])?
                    Head::$variant $(($of))? => { $($name)? $($of.name())? }
                )* }
            }

            /// Every name, in the order of the table.
            pub fn names() -> Vec<&'static str> {
                let mut names = vec![];
                $(
                    $(#[cfg($cfg)])?
                    {
                        $( names.push($name); )?
                        $( names.extend($family::ALL.iter().map(|($of, _)| $of.name())); )?
                    }
                )*
                names
            }

            /// The operation of this name.
            pub fn parse(name: &str) -> Option<Head> {
                $(
                    $(#[cfg($cfg)])?
                    {
                        $( if name == $name { return Some(Head::$variant); } )?
                        $( if let Some($of) = $family::parse(name) { return Some(Head::$variant($of)); } )?
                    }
                )*
                None
            }

            /// Declared attributes in the order of printing: names and kinds.
            pub fn attributes(self) -> &'static [(&'static str, AttrKind)] {
                match self { $(
                    $(#[cfg($cfg)])?
                    Head::$variant { .. } => &[$( $( (stringify!($field), <$ty as AttrType>::KIND), )* )?],
                )* }
            }

            /// Each attribute's default; `None` = it must be written.
            pub fn defaults(self) -> Vec<Option<Attr>> {
                match self { $(
                    $(#[cfg($cfg)])?
                    Head::$variant { .. } => vec![$( $( {
                        let given: &[$ty] = &[$($default)?];
                        given.first().map(AttrType::to_attr)
                    }, )* )?],
                )* }
            }

            /// The operation from the values of its attributes in order; `None` if their number or
            /// kinds are wrong.
            pub fn build(self, attributes: &[Attr]) -> Option<Op> {
                #[allow(unused_mut)]
                let mut values = attributes.iter();
                let op = match self { $(
                    $(#[cfg($cfg)])?
                    Head::$variant $(($of))? => Op::$variant $({ $($field: <$ty>::from_attr(values.next()?)?),* })? $(($of))?,
                )* };
                values.next().is_none().then_some(op)
            }

            /// When it is computed and which kinds of values it reads.
            pub fn facts(self) -> Facts {
                use Reads::*;
                use super::Input::*;
                match self { $(
                    $(#[cfg($cfg)])?
                    Head::$variant { .. } => Facts {
                        stage: Stage::$stage,
                        args: &[$( (stringify!($arg), $reads) ),*],
                        optional: &[$( $( (stringify!($may), $may_read) ),* )?],
                        variadic: !stringify!($($more)?).is_empty(),
                        moves: !stringify!($($moves)?).is_empty(),
                    },
                )* }
            }
        }
    };
}
pub(super) use operations;
