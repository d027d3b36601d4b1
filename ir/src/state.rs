//! What a sequence keeps from token to token: one state per attention layer, any number per layer
//! of another kind; and the matrices of its adapter.

use crate::kv::KvSpec;
use std::fmt;

/// A state of every sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum StateSpec {
    /// Keys and values, in pages that grow with the sequence.
    Paged(KvSpec),
    /// Numbers that do not grow with it.
    Fixed(FixedSpec),
    /// A matrix of the adapter that the sequence has.
    Adapter(AdapterSpec),
}

/// A state of fixed size: f32 `[heads, rows, cols]`, zero before the first token. The matrices of a
/// recurrence, or the last inputs of a convolution (one head, a row per input). Text:
/// `state<f32, 4x64x128>`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FixedSpec {
    /// Matrices.
    pub heads: usize,
    /// Rows of each.
    pub rows: usize,
    /// Columns of each.
    pub cols: usize,
}

/// A matrix of adapters that are loaded while the model runs: bf16 `[n, k]`, one for each of `slots`
/// adapters, packed as weights are for a CPU. A sequence has the one of its adapter, which no step
/// changes, and none if it has no adapter. Text: `adapter<bf16, 48x64, slots 4>`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct AdapterSpec {
    /// Rows (outputs); whole blocks of 16.
    pub n: usize,
    /// Columns (inputs).
    pub k: usize,
    /// Adapters that there is room for.
    pub slots: usize,
}

/// What states must agree on to share a block table: how long they keep what they keep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lifetime {
    /// Tokens within a window, or all.
    Window(Option<usize>),
    /// The state after the last token.
    Last,
    /// For as long as the sequence has its adapter, of so many.
    Chosen(usize),
}

impl StateSpec {
    /// The keys and values, if it is that.
    pub const fn paged(&self) -> Option<&KvSpec> {
        match self {
            StateSpec::Paged(kv) => Some(kv),
            StateSpec::Fixed(_) | StateSpec::Adapter(_) => None,
        }
    }

    /// The same, to change it.
    pub const fn paged_mut(&mut self) -> Option<&mut KvSpec> {
        match self {
            StateSpec::Paged(kv) => Some(kv),
            StateSpec::Fixed(_) | StateSpec::Adapter(_) => None,
        }
    }

    /// The state of fixed size, if it is that.
    pub const fn fixed(&self) -> Option<&FixedSpec> {
        match self {
            StateSpec::Paged(_) | StateSpec::Adapter(_) => None,
            StateSpec::Fixed(fixed) => Some(fixed),
        }
    }

    /// The matrix of adapters, if it is that.
    pub const fn adapter(&self) -> Option<&AdapterSpec> {
        match self {
            StateSpec::Paged(_) | StateSpec::Fixed(_) => None,
            StateSpec::Adapter(adapter) => Some(adapter),
        }
    }

    /// Whether both can have one block table.
    pub fn lives_as_long_as(&self, other: &StateSpec) -> bool {
        self.lifetime() == other.lifetime()
    }

    const fn lifetime(&self) -> Lifetime {
        match self {
            StateSpec::Paged(kv) => Lifetime::Window(kv.window),
            StateSpec::Fixed(_) => Lifetime::Last,
            StateSpec::Adapter(adapter) => Lifetime::Chosen(adapter.slots),
        }
    }
}

impl FixedSpec {
    /// Most numbers in one.
    pub const MOST: usize = 1 << 28;

    /// Numbers in it; all there can be if there were more.
    pub const fn len(&self) -> usize {
        self.heads.saturating_mul(self.rows).saturating_mul(self.cols)
    }

    /// Whether it holds nothing.
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes of a slot: whole cache lines.
    pub const fn bytes(&self) -> usize {
        self.len().saturating_mul(4).div_ceil(64).saturating_mul(64)
    }
}

impl AdapterSpec {
    /// Rows that are packed together.
    pub const BLOCK: usize = llmcc_abi::layout::BLOCK;
    /// Most adapters that there may be room for.
    pub const MOST: usize = 1 << 12;

    /// Bytes of one adapter's matrix.
    pub const fn bytes(&self) -> usize {
        llmcc_abi::layout::packed_bytes(&llmcc_abi::encoding::Encoding::BF16, self.n, self.k)
    }
}

/// The group of each state: those that live as long share a block table. Groups count up in the
/// order of their first states.
pub fn groups(states: &[StateSpec]) -> Vec<usize> {
    let mut lifetimes = vec![];
    let group = |s: &StateSpec| {
        lifetimes.iter().position(|l| *l == s.lifetime()).unwrap_or_else(|| {
            lifetimes.push(s.lifetime());
            lifetimes.len() - 1
        })
    };
    states.iter().map(group).collect()
}

impl From<KvSpec> for StateSpec {
    fn from(kv: KvSpec) -> StateSpec {
        StateSpec::Paged(kv)
    }
}

impl From<FixedSpec> for StateSpec {
    fn from(fixed: FixedSpec) -> StateSpec {
        StateSpec::Fixed(fixed)
    }
}

impl From<AdapterSpec> for StateSpec {
    fn from(adapter: AdapterSpec) -> StateSpec {
        StateSpec::Adapter(adapter)
    }
}

impl fmt::Display for AdapterSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "adapter<bf16, {}x{}, slots {}>", self.n, self.k, self.slots)
    }
}

impl fmt::Display for FixedSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "state<f32, {}x{}x{}>", self.heads, self.rows, self.cols)
    }
}

impl fmt::Display for StateSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StateSpec::Paged(kv) => kv.fmt(f),
            StateSpec::Fixed(fixed) => fixed.fmt(f),
            StateSpec::Adapter(adapter) => adapter.fmt(f),
        }
    }
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
            })
        };
        let fixed = |rows| StateSpec::Fixed(FixedSpec { heads: 1, rows, cols: 5 });
        let states = [kv(None), fixed(3), kv(Some(8)), fixed(4), kv(None), kv(Some(8))];
        assert_eq!(groups(&states), [0, 1, 2, 1, 0, 2]);
        assert!(fixed(1).lives_as_long_as(&fixed(2)) && !fixed(1).lives_as_long_as(&kv(None)));
        assert_eq!(fixed(3).fixed().map(FixedSpec::bytes), Some(64));
        assert_eq!(fixed(4).fixed().map(FixedSpec::bytes), Some(128));
    }
}
