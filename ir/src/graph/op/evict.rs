//! Attention to a cache that drops tokens by their weights.

use super::attention::{batch_at, rows_of};
use super::attr::words;
use super::of::EvictingAttention;
use super::rule::{Operands, Rule, Types};
use super::{Attr, AttrKind, AttrType};
use crate::eval::{EvalError, Evict, Tensor, Value, evicting_attention};
use crate::graph::value::{F32, ValueType};
use crate::state::FixedSpec;
use crate::ty::{Dim, TensorType};
use llmcc_abi::evict::{EVICT_PLACES, KeptLayout};

pub use llmcc_abi::evict::Criterion;

/// Names of the criteria in `.lir` text.
const CRITERIA: &[&str] = &["sum", "last", "rare", "shift", "peak", "recurrence"];

words!(Criterion: CRITERIA);

/// Which tokens a cache drops, and when: attributes of `evicting_attention`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Eviction {
    /// Scores of tokens; the lowest go.
    pub criterion: Criterion,
    /// Tokens that the cache has when some are dropped.
    pub budget: usize,
    /// Last tokens that are never dropped, that of the step among them.
    pub recent: usize,
    /// Tokens dropped at once.
    pub drop: usize,
    /// Last queries that count, for criteria that say so.
    pub window: usize,
    /// See the criteria that have one.
    pub level: F32,
    /// All KV heads of the layer drop the same tokens, by the sum of their scores.
    pub together: bool,
}

impl Eviction {
    /// Most tokens in a cache: positions are f32 numbers in it, and scores of all places are scratch of a thread.
    pub const MOST: usize = 1 << 16;

    /// Eviction of one token at a time from a full cache of `budget` tokens, by each KV head for itself; the last token
    /// stays.
    pub fn new(criterion: Criterion, budget: usize) -> Eviction {
        Eviction { criterion, budget, recent: 1, drop: 1, window: 1, level: F32::new(0.0), together: false }
    }

    /// Why the attributes do not fit together.
    pub fn misfit(&self) -> Option<String> {
        let Eviction { budget, recent, drop, window, level, .. } = *self;
        if budget > Self::MOST {
            return Some(format!("a budget of {budget} tokens is more than {}", Self::MOST));
        }
        if recent == 0 || drop == 0 || recent.saturating_add(drop) > budget {
            return Some(format!("{recent} recent tokens and {drop} that are dropped do not fit into {budget}"));
        }
        if window == 0 || window > drop {
            return Some(format!(
                "{window} last queries count, of the {drop} between two times that tokens are dropped"
            ));
        }
        (!(0.0..=1.0).contains(&level.get())).then(|| format!("level {level} is no number from 0 to 1"))
    }

    /// The state of a layer.
    pub fn state(&self, kv_heads: usize, key_dim: usize, value_dim: usize) -> FixedSpec {
        let rows = key_dim.saturating_add(value_dim).saturating_add(KeptLayout::MARKS);
        FixedSpec { heads: kv_heads, rows, cols: self.budget.next_multiple_of(EVICT_PLACES) }
    }
}

impl EvictingAttention {
    fn eviction(&self) -> Eviction {
        let EvictingAttention { criterion, budget, recent, drop, window, level, together, heads: _, scale: _ } = *self;
        Eviction { criterion, budget, recent, drop, window, level, together }
    }
}

impl Rule for EvictingAttention {
    fn infer(&self, a: &Types<'_>) -> Result<ValueType, String> {
        if let Some(what) = self.eviction().misfit() {
            return Err(format!("`{}`: {what}", a.name));
        }
        let [(m, q), (of_keys, k), (of_values, v)] = [a.activation(0)?, a.activation(1)?, a.activation(2)?];
        if [m, of_keys, of_values] != [Dim::Tokens; 3] {
            return Err(format!("`{}` needs a row per token", a.name));
        }
        a.index(3, Dim::Tokens)?;
        let kv_heads = a.args[4].state().and_then(|s| s.fixed()).map_or(1, |s| s.heads);
        a.multiple("heads", q, self.heads)?;
        a.multiple("KV heads", k, kv_heads)?;
        a.multiple("KV heads", v, kv_heads)?;
        a.multiple("number of KV heads", self.heads, kv_heads)?;
        a.same("elements of queries and keys", q / self.heads.max(1), k / kv_heads.max(1))?;
        a.fixed(4, self.eviction().state(kv_heads, k / kv_heads.max(1), v / kv_heads.max(1)))?;
        let value_dim = v / kv_heads.max(1);
        Ok(TensorType::rows(m, self.heads.saturating_mul(value_dim)).into())
    }

    fn eval(&self, mut a: Operands<'_>) -> Result<Value, EvalError> {
        let batch = batch_at(&a, 3)?;
        let rows: [Vec<Vec<f64>>; 3] = [a.tensor(0)?, a.tensor(1)?, a.tensor(2)?].map(Tensor::to_rows);
        let of = Evict { scale: self.scale, eviction: self.eviction() };
        let state = a.fixed(4)?;
        Ok(rows_of(evicting_attention(state, &batch, [&rows[0], &rows[1], &rows[2]], &of)))
    }
}
