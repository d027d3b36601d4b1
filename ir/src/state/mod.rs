//! The state that sequences keep from step to step, and their settings: one table.
//!
//! Keys and values that grow page by page; numbers of fixed size, such as the matrices of a
//! recurrence; the matrix of an adapter. A kind's file has its shape (`StateKind`) with its text
//! and its rules, and the evaluators' copy (`Kept`). Its [`Lifetime`] tells the runtime how to
//! store it: a kind whose `Lifetime` exists needs no runtime change.

mod adapter;
#[cfg(any(test, feature = "dummies"))]
mod dummy;
mod fixed;
mod kind;
mod paged;
mod tracks;

pub(crate) use adapter::adapted;
pub use adapter::{AdapterSpec, AdapterState};
#[cfg(any(test, feature = "dummies"))]
pub use dummy::{TallySpec, TallyState};
pub use fixed::{FixedSpec, FixedState};
pub use kind::Lifetime;
pub use tracks::Tracks;

use crate::eval::{EvalError, KvState};
use crate::kv::KvSpec;
use crate::text::{Parsed, Parser};
use kind::{Kept, NewKept, ReadState, StateKind};
use std::fmt;

kind::kinds! {
    /// Keys and values, in pages that grow with the sequence.
    Paged KvSpec KvState "kv" paged paged_mut;
    /// Numbers that do not grow with it.
    Fixed FixedSpec FixedState "state" fixed fixed_mut;
    /// A matrix of the adapter that the sequence has.
    Adapter AdapterSpec AdapterState "adapter" adapter adapter_mut;
  in tests:
    /// A newcomer: how many tokens the sequence has had, see `dummy.rs`.
    Tally TallySpec TallyState "tally" tally tally_mut;
}

impl StateSpec {
    /// How long it is kept.
    pub fn lifetime(&self) -> Lifetime {
        self.kind().lifetime()
    }

    /// Bytes of a page, or of a slot.
    pub fn bytes(&self) -> usize {
        self.kind().bytes()
    }

    /// Columns of the rows that go into it or through it.
    pub fn columns(&self) -> usize {
        self.kind().columns()
    }

    /// The code and the message of each mistake in its sizes.
    pub(crate) fn verify(&self) -> Vec<(&'static str, String)> {
        self.kind().verify()
    }

    /// Whether both can have one block table.
    pub fn lives_as_long_as(&self, other: &StateSpec) -> bool {
        self.lifetime() == other.lifetime()
    }
}

impl fmt::Display for StateSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.kind().fmt(f)
    }
}

impl State {
    /// One more than the largest number of a sequence that has anything.
    pub fn sequences(&self) -> usize {
        self.kept().sequences()
    }

    /// Rounds a kernel's results as memory holds them.
    pub(crate) fn round(&mut self) {
        self.kept_mut().round();
    }

    /// Writes it into a pool of pages or slots; `tables[s]` are the pages of sequence `s`.
    ///
    /// # Errors
    /// A sequence has no page, or one outside the pool.
    pub fn to_pool(&self, tables: &[Vec<u32>], pool: &mut [u8]) -> Result<(), EvalError> {
        self.kept().to_pool(tables, pool)
    }
}

/// The group of each state: states of one track that live as long share a block table. Groups count up in the order of
/// their first states.
pub fn groups(states: &[StateSpec], tracks: &[usize]) -> Vec<usize> {
    let mut kinds = vec![];
    let group = |(s, track): (&StateSpec, &usize)| {
        let kind = (s.lifetime(), *track);
        kinds.iter().position(|k| *k == kind).unwrap_or_else(|| {
            kinds.push(kind);
            kinds.len() - 1
        })
    };
    states.iter().zip(tracks).map(group).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kv::KvDType;

    /// Windows and states of fixed size are groups of their own.
    #[test]
    fn states_are_grouped_by_how_long_they_live() {
        let kv = |window| {
            StateSpec::Paged(KvSpec {
                dtype: KvDType::F16,
                kv_heads: 1,
                key_dim: 8,
                value_dim: 8,
                latent: false,
                window,
                every: 1,
                first: None,
            })
        };
        let fixed = |rows| StateSpec::Fixed(FixedSpec { heads: 1, rows, cols: 5 });
        let of_several = |every| match kv(None) {
            StateSpec::Paged(kv) => StateSpec::Paged(KvSpec { latent: true, every, ..kv }),
            other => other,
        };
        let states = [kv(None), fixed(3), kv(Some(8)), fixed(4), kv(None), kv(Some(8)), of_several(4), of_several(9)];
        assert_eq!(groups(&states, &[0; 8]), [0, 1, 2, 1, 0, 2, 3, 4]);
        assert_eq!(groups(&states, &[0, 0, 0, 0, 1, 1, 0, 0]), [0, 1, 2, 1, 3, 4, 5, 6]);
        assert!(fixed(1).lives_as_long_as(&fixed(2)) && !fixed(1).lives_as_long_as(&kv(None)));
        assert_eq!(fixed(3).fixed().map(FixedSpec::bytes), Some(64));
        assert_eq!(fixed(4).fixed().map(FixedSpec::bytes), Some(128));
    }
}
