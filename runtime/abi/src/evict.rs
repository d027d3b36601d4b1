//! Attention to a cache that drops tokens by their weights: the contract of compiler and microkernel.

/// How much a cached token matters to later ones. The token with the lowest score is dropped first, of equal scores the
/// earliest one.
///
/// A token's *weight* is its share in the softmax of a query; where several query heads share a KV head, the mean of
/// their weights counts, unless the criterion says otherwise.
#[repr(u64)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Criterion {
    /// The sum of all weights so far (H2O, arXiv 2306.14048).
    Sum = 0,
    /// The weight in the last query (TOVA, arXiv 2401.06104).
    Last = 1,
    /// Minus the number of queries, among the last `window`, in which the weight was below the mean weight, `1/n` of
    /// `n` tokens (Scissorhands, arXiv 2305.17118).
    Rare = 2,
    /// How far the last query's result moves without the token: the sum over query heads of `w/(1 − w)·‖v − o‖`, for a
    /// weight `w`, a value `v` and a result `o`, where `1 − w` is at least [`REST`] (CAOTE, arXiv 2504.14051).
    Shift = 3,
    /// The larger of two numbers: the mean over the last `window` queries of the largest weight of a query head, over
    /// the largest such mean of a token that may be dropped; and `level` times the score when tokens were dropped
    /// last (G-KV, arXiv 2512.00504).
    Peak = 4,
    /// `2σ(−a/r) + 2σ(−1/r)`, where `a` is the number of tokens since the weight was last at least `level`, and `r` the
    /// longest time between two such tokens; 0 where there were no two (LazyEviction, arXiv 2506.15969).
    Recurrence = 5,
}

impl Criterion {
    /// Every criterion.
    pub const ALL: [Criterion; 6] =
        [Criterion::Sum, Criterion::Last, Criterion::Rare, Criterion::Shift, Criterion::Peak, Criterion::Recurrence];
}

/// The least difference of a weight from 1 in [`Criterion::Shift`]: half a unit in the last place.
pub const REST: f32 = f32::EPSILON / 2.0;

/// When tokens are dropped: after each token that fills the cache, and `drop` at once.
///
/// The number of tokens in the cache depends on the position alone, so a sequence drops the same tokens however its
/// steps are cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cadence {
    /// Tokens that a full cache has.
    pub budget: usize,
    /// Tokens dropped at once: at least 1, fewer than the budget.
    pub drop: usize,
}

impl Cadence {
    /// Tokens from the one at `position` to the next that fills the cache; 0: it does.
    pub const fn left(self, position: usize) -> usize {
        match (position + 1).checked_sub(self.budget) {
            None => self.budget - position - 1,
            Some(over) => (self.drop - over % self.drop) % self.drop,
        }
    }

    /// Tokens in the cache with the one at `position`, before any is dropped.
    pub const fn count(self, position: usize) -> usize {
        self.budget - self.left(position)
    }
}

/// Columns of a head's state are a multiple of this.
pub const EVICT_PLACES: usize = 16;

/// The state of a KV head: f32 `[key_dim + value_dim + 3, places]`, as one run of numbers. A place has one token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeptLayout {
    /// Elements of a key.
    pub key_dim: usize,
    /// Elements of a value.
    pub value_dim: usize,
    /// Slots: a multiple of [`EVICT_PLACES`].
    pub places: usize,
}

impl KeptLayout {
    /// Rows beside keys and values.
    pub const MARKS: usize = 3;

    /// Numbers of a head.
    pub const fn len(&self) -> usize {
        (self.key_dim + self.value_dim + Self::MARKS) * self.places
    }

    /// Whether it has none.
    pub const fn is_empty(&self) -> bool {
        self.places == 0
    }

    /// Element `d` of the key of a place: `[places / 16][key_dim][16]`.
    pub const fn key(&self, place: usize, d: usize) -> usize {
        (place / EVICT_PLACES * self.key_dim + d) * EVICT_PLACES + place % EVICT_PLACES
    }

    /// The first element of the value of a place: `[places][value_dim]`.
    pub const fn value(&self, place: usize) -> usize {
        self.key_dim * self.places + place * self.value_dim
    }

    /// Mark `i` of a place. Mark 0 is one more than the position of its token, 0 without a token; the others belong to
    /// the criterion.
    pub const fn mark(&self, i: usize, place: usize) -> usize {
        (self.key_dim + self.value_dim + i) * self.places + place
    }
}

/// Arguments of [`crate::Uk::Evict`]: one token, and the KV heads that drop the same tokens.
///
/// The token is stored in the first place without one. Then each query head attends to all tokens in the cache. A score
/// is an f32 chain of fused multiply-adds over the elements of the key, times `scale`; weights are exponentials of the
/// differences from the largest score, times the reciprocal of their sum. Sums over places are 16 chains, of places
/// that are equal modulo 16, added in halves; the result is one chain over places for each element. Sums over query
/// heads are chains. Tokens are dropped as [`Cadence`] says, the `recent` last ones never. So a token has the same bits
/// whatever else is in the step, on every instruction set.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct EvictArgs {
    /// The states of the heads, one after the other: see [`KeptLayout`].
    pub state: *mut f32,
    /// Queries `[heads][group][key_dim]`.
    pub q: *const f32,
    /// Keys `[heads][key_dim]`.
    pub k: *const f32,
    /// Values `[heads][value_dim]`.
    pub v: *const f32,
    /// Results `[heads][group][value_dim]`, apart from all else.
    pub out: *mut f32,
    /// Scratch: [`evict_work`] bytes, 64-byte aligned.
    pub work: *mut f32,
    /// The token's position.
    pub position: u64,
    /// KV heads.
    pub heads: u64,
    /// Query heads of each.
    pub group: u64,
    /// Elements of a key.
    pub key_dim: u64,
    /// Elements of a value.
    pub value_dim: u64,
    /// Slots of a head.
    pub places: u64,
    /// See [`Cadence`].
    pub budget: u64,
    /// Last tokens that are never dropped, the token itself among them: at least 1, and with `drop` at most the budget.
    pub recent: u64,
    /// See [`Cadence`].
    pub drop: u64,
    /// Last queries that count, for criteria that say so.
    pub window: u64,
    /// Scores of tokens.
    pub criterion: Criterion,
    /// Multiplies products of queries and keys.
    pub scale: f32,
    /// See the criteria that have one.
    pub level: f32,
}

/// Bytes of [`EvictArgs::work`]: weights of the query heads of a KV head, and one number for each place.
pub const fn evict_work(group: usize, places: usize) -> usize {
    (group + 1) * places * 4
}

/// Signature of [`crate::Uk::Evict`].
pub type EvictFn = unsafe extern "C" fn(*const EvictArgs);
