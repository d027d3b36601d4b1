//! Attention to a cache that drops tokens: every level has the bits of the scalar code, and touches nothing else.
#![allow(
    clippy::undocumented_unsafe_blocks,
    reason = "entries of a table of this machine, and memory that the test owns"
)]

use crate::support::{Guarded, Rng, levels};
use llmcc_abi::Uk;
use llmcc_abi::evict::{Cadence, Criterion, EVICT_PLACES, EvictArgs, EvictFn, KeptLayout, evict_work};
use llmcc_ukernels::{Level, table};

struct Case {
    heads: usize,
    group: usize,
    kept: KeptLayout,
    cadence: Cadence,
    recent: usize,
    window: usize,
    criterion: Criterion,
    tokens: usize,
}

impl Case {
    fn random(rng: &mut Rng) -> Case {
        let budget = 2 + rng.below(40);
        let drop = 1 + rng.below(budget - 1);
        let recent = 1 + rng.below(budget - drop);
        let kept = KeptLayout {
            key_dim: 1 + rng.below(40),
            value_dim: 1 + rng.below(90),
            places: budget.next_multiple_of(EVICT_PLACES),
        };
        let criterion = Criterion::ALL[rng.below(Criterion::ALL.len())];
        let (heads, group, window) = (1 + rng.below(3), 1 + rng.below(4), 1 + rng.below(drop));
        Case { heads, group, kept, cadence: Cadence { budget, drop }, recent, window, criterion, tokens: 90 }
    }

    /// The result of each token, and the state after all.
    fn run(&self, level: Level, seed: u64) -> Vec<Vec<u8>> {
        let mut rng = Rng(seed);
        let mut floats = |n: usize| {
            let number = |_| (rng.below(2001) as f32 - 1000.0) / 400.0;
            Guarded::from_bytes(&(0..n).map(number).flat_map(f32::to_le_bytes).collect::<Vec<u8>>())
        };
        let Case { heads, group, kept, .. } = *self;
        let mut state = Guarded::from_bytes(&vec![0; 4 * heads * kept.len()]);
        let mut work = Guarded::from_bytes(&vec![0xff; evict_work(group, kept.places).next_multiple_of(64)]);
        let f = unsafe { std::mem::transmute::<usize, EvictFn>(table(level).f[Uk::Evict as usize]) };
        let mut all = vec![];
        for position in 0..self.tokens {
            let q = floats(heads * group * kept.key_dim);
            let (k, v) = (floats(heads * kept.key_dim), floats(heads * kept.value_dim));
            let mut out = Guarded::from_bytes(&vec![0xaa; 4 * heads * group * kept.value_dim]);
            let args = EvictArgs {
                state: state.as_mut_ptr().cast(),
                q: q.as_ptr().cast(),
                k: k.as_ptr().cast(),
                v: v.as_ptr().cast(),
                out: out.as_mut_ptr().cast(),
                work: work.as_mut_ptr().cast(),
                position: position as u64,
                heads: heads as u64,
                group: group as u64,
                key_dim: kept.key_dim as u64,
                value_dim: kept.value_dim as u64,
                places: kept.places as u64,
                budget: self.cadence.budget as u64,
                recent: self.recent as u64,
                drop: self.cadence.drop as u64,
                window: self.window as u64,
                criterion: self.criterion,
                scale: 0.3,
                level: 0.05,
            };
            unsafe { f(&args) };
            all.push(out.as_bytes().to_vec());
        }
        all.push(state.as_bytes().to_vec());
        all
    }

    /// Positions of the tokens in the cache of a head.
    fn positions(&self, state: &[u8], head: usize) -> Vec<usize> {
        let seen = |place: usize| {
            let at = 4 * (head * self.kept.len() + self.kept.mark(0, place));
            f32::from_le_bytes(state[at..at + 4].try_into().unwrap()) as usize
        };
        (0..self.kept.places).map(seen).filter(|seen| *seen > 0).map(|seen| seen - 1).collect()
    }
}

#[test]
fn all_levels_have_the_same_bits() {
    for seed in 0..60 {
        let case = Case::random(&mut Rng(seed + 1));
        let want = case.run(Level::Scalar, seed);
        for level in levels() {
            for (i, (got, want)) in case.run(level, seed).iter().zip(&want).enumerate() {
                assert_eq!(got, want, "{level:?}, seed {seed}, token {i} of {:?}", case.criterion);
            }
        }
    }
}

/// The cache has as many tokens as the cadence says, the last ones among them.
#[test]
fn the_budget_is_kept() {
    for seed in 0..60 {
        let case = Case::random(&mut Rng(seed + 100));
        let state = case.run(Level::Scalar, seed).pop().unwrap();
        let last = case.tokens - 1;
        let dropped = if case.cadence.left(last) == 0 { case.cadence.drop } else { 0 };
        for head in 0..case.heads {
            let mut have = case.positions(&state, head);
            have.sort_unstable();
            assert_eq!(have.len(), case.cadence.count(last) - dropped, "seed {seed}");
            let recent: Vec<usize> = (case.tokens - case.recent..case.tokens).collect();
            assert!(have.ends_with(&recent), "seed {seed}: {have:?} without the last {}", case.recent);
        }
    }
}

#[test]
fn caches_are_full_at_the_same_positions() {
    let cadence = Cadence { budget: 5, drop: 2 };
    let left: Vec<usize> = (0..10).map(|position| cadence.left(position)).collect();
    assert_eq!(left, [4, 3, 2, 1, 0, 1, 0, 1, 0, 1]);
    let count: Vec<usize> = (0..7).map(|position| cadence.count(position)).collect();
    assert_eq!(count, [1, 2, 3, 4, 5, 4, 5]);
}
