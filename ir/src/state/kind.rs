//! The trait of every kind of state, and the table of kinds.

use crate::eval::EvalError;
use crate::text::{Parsed, Parser};
use std::fmt;

/// How long a state keeps its contents: states must agree on it to share a block table, and beside
/// the bytes the runtime needs no more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lifetime {
    /// Tokens within a window, or all: pages.
    Window(Option<usize>),
    /// A row for so many tokens, which is kept: pages.
    Every(usize),
    /// The first tokens, so many: pages.
    First(usize),
    /// The state after the last token: a slot.
    Last,
    /// For as long as the sequence has its adapter, of so many; no step changes it.
    Chosen(usize),
}

/// The shape of a kind of state.
pub(crate) trait StateKind: fmt::Display {
    /// How long it is kept.
    fn lifetime(&self) -> Lifetime;

    /// Bytes of a page, or of a slot: whole cache lines.
    fn bytes(&self) -> usize;

    /// Columns of the rows that go into it or through it.
    fn columns(&self) -> usize;

    /// The code and the message of each mistake in its sizes.
    fn verify(&self) -> Vec<(&'static str, String)>;
}

/// A shape that can be read.
pub(crate) trait ReadState: StateKind + Sized {
    /// Reads its printed text.
    fn read(p: &mut Parser<'_>) -> Parsed<Self>;
}

/// The evaluators' copy of a state, for all sequences.
pub(crate) trait Kept {
    /// One more than the largest number of a sequence that has anything.
    fn sequences(&self) -> usize;

    /// Rounds a kernel's results as memory holds them; nothing where storing rounds them.
    fn round(&mut self) {}

    /// Writes it into a pool of pages or slots; `tables[s]` are the pages of sequence `s`.
    ///
    /// # Errors
    /// A sequence has no page, or one outside the pool.
    fn to_pool(&self, tables: &[Vec<u32>], pool: &mut [u8]) -> Result<(), EvalError>;
}

/// A state that can be made.
pub(crate) trait NewKept<Spec>: Kept + Sized {
    /// Without tokens.
    fn empty(spec: Spec) -> Self;

    /// Reads the data of sequences of these lengths from a pool.
    ///
    /// # Errors
    /// As [`Kept::to_pool`].
    fn from_pool(spec: Spec, tables: &[Vec<u32>], lens: &[usize], pool: &[u8]) -> Result<Self, EvalError>;
}

/// Bytes of the slot that is the first entry of the table of sequence `seq`.
pub(super) fn slot(tables: &[Vec<u32>], seq: usize, bytes: usize) -> Option<std::ops::Range<usize>> {
    let start = (*tables.get(seq)?.first()? as usize).checked_mul(bytes)?;
    Some(start..start.checked_add(bytes)?)
}

pub(super) fn outside(seq: usize) -> EvalError {
    EvalError::batch(format!("sequence {seq} has no slot in the pool"))
}

/// One line per kind: the variant of [`StateSpec`](super::StateSpec) and of
/// [`State`](super::State), their contents, its name in text, and how a state is asked for it.
/// Kinds `in tests` are not part of shipped code.
macro_rules! kinds {
    (
        $( #[doc = $doc:literal] $kind:ident $spec:ident $state:ident $word:literal $get:ident $get_mut:ident; )*
      in tests:
        $( #[doc = $test_doc:literal] $test:ident $test_spec:ident $test_state:ident $test_word:literal
           $test_get:ident $test_get_mut:ident; )*
    ) => {
        kind::kinds! { @
            $( [#[doc = $doc]] $kind $spec $state $word $get $get_mut; )*
            $( [#[doc = $test_doc] #[cfg(any(test, feature = "dummies"))]]
               $test $test_spec $test_state $test_word $test_get $test_get_mut; )*
        }

        impl StateSpec {
            /// The names of states in text; all words count all states.
            pub const WORDS: &'static [&'static str] = &[$($word),*];
        }
    };
    (@ $( [#[doc = $doc:literal] $(#[$cfg:meta])?]
          $kind:ident $spec:ident $state:ident $word:literal $get:ident $get_mut:ident; )*) => {
        /// A state of every sequence.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum StateSpec { $( #[doc = $doc] $(#[$cfg])? $kind($spec), )* }

        /// The evaluators' copy of a state, for all sequences.
        #[derive(Clone, Debug, PartialEq)]
        pub enum State { $( #[doc = $doc] $(#[$cfg])? $kind($state), )* }

        $(
            $(#[$cfg])?
            impl From<$spec> for StateSpec {
                fn from(spec: $spec) -> StateSpec {
                    StateSpec::$kind(spec)
                }
            }

            $(#[$cfg])?
            impl From<$state> for State {
                fn from(state: $state) -> State {
                    State::$kind(state)
                }
            }

            $(#[$cfg])?
            impl StateSpec {
                #[doc = concat!("As [`StateSpec::", stringify!($kind), "`], if it is that.")]
                pub const fn $get(&self) -> Option<&$spec> {
                    if let StateSpec::$kind(spec) = self { Some(spec) } else { None }
                }

                /// The same, to change it.
                pub const fn $get_mut(&mut self) -> Option<&mut $spec> {
                    if let StateSpec::$kind(spec) = self { Some(spec) } else { None }
                }
            }

            $(#[$cfg])?
            impl State {
                #[doc = concat!("As [`State::", stringify!($kind), "`], if it is that.")]
                pub const fn $get(&self) -> Option<&$state> {
                    if let State::$kind(state) = self { Some(state) } else { None }
                }

                /// The same, to change it.
                pub const fn $get_mut(&mut self) -> Option<&mut $state> {
                    if let State::$kind(state) = self { Some(state) } else { None }
                }
            }
        )*

        impl StateSpec {
            fn kind(&self) -> &dyn StateKind {
                match self { $( $(#[$cfg])? StateSpec::$kind(spec) => spec, )* }
            }

            /// Its name in text.
            pub fn word(&self) -> &'static str {
                match self { $( $(#[$cfg])? StateSpec::$kind(_) => $word, )* }
            }

            /// Whether a kind of state is called that.
            pub(crate) fn is_word(word: &str) -> bool {
                match word { $( $(#[$cfg])? $word => true, )* _ => false }
            }

            /// Reads the printed text of a state; `None` if there is no kind of that name.
            pub(crate) fn read(p: &mut Parser<'_>) -> Option<Parsed<StateSpec>> {
                match p.peek_word() {
                    $( $(#[$cfg])? $word => Some(<$spec as ReadState>::read(p).map(StateSpec::from)), )*
                    _ => None,
                }
            }
        }

        impl State {
            /// A state without tokens.
            pub fn new(spec: StateSpec) -> State {
                match spec { $( $(#[$cfg])? StateSpec::$kind(spec) => State::$kind($state::empty(spec)), )* }
            }

            /// Reads the data of sequences of these lengths from a pool of pages or slots;
            /// `tables[s]` are the pages of sequence `s`.
            ///
            /// # Errors
            /// A sequence has no page, or one outside the pool.
            pub fn from_pool(
                spec: StateSpec,
                tables: &[Vec<u32>],
                lens: &[usize],
                pool: &[u8],
            ) -> Result<State, EvalError> {
                Ok(match spec { $(
                    $(#[$cfg])? StateSpec::$kind(spec) => {
                        State::$kind($state::from_pool(spec, tables, lens, pool)?)
                    }
                )* })
            }

            /// Its specification.
            pub fn spec(&self) -> StateSpec {
                match self { $( $(#[$cfg])? State::$kind(state) => state.spec.into(), )* }
            }

            fn kept(&self) -> &dyn Kept {
                match self { $( $(#[$cfg])? State::$kind(state) => state, )* }
            }

            fn kept_mut(&mut self) -> &mut dyn Kept {
                match self { $( $(#[$cfg])? State::$kind(state) => state, )* }
            }
        }
    };
}
pub(super) use kinds;
