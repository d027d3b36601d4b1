//! Attention to a cache that drops tokens by their weights, token by token.

use super::Batch;
use crate::graph::{Criterion, Eviction, F32};
use crate::state::FixedState;
use llmcc_abi::evict::{Cadence, KeptLayout, REST};

/// Attributes of the attention.
pub(crate) struct Evict {
    /// Multiplies products of queries and keys.
    pub scale: F32,
    /// Which tokens are dropped.
    pub eviction: Eviction,
}

/// The states of the heads that drop the same tokens.
struct Heads<'a> {
    state: &'a mut [f64],
    layout: KeptLayout,
    of: &'a Evict,
    position: usize,
}

/// Results `[heads · value_dim]` of each token, from queries, keys and values.
pub(crate) fn evicting_attention(
    state: &mut FixedState,
    batch: &Batch,
    [q, k, v]: [&[Vec<f64>]; 3],
    of: &Evict,
) -> Vec<Vec<f64>> {
    let spec = state.spec;
    let units = if of.eviction.together { 1 } else { spec.heads };
    let token = |t: usize| {
        let part = |rows: &[Vec<f64>], unit: usize| {
            let n = rows[t].len() / units;
            rows[t][unit * n..][..n].to_vec()
        };
        let key_dim = k[t].len() / spec.heads;
        let layout = KeptLayout { key_dim, value_dim: v[t].len() / spec.heads, places: spec.cols };
        let all = state.of(batch.seqs[t]);
        let each = all.len() / units;
        let mut out = vec![];
        for (unit, state) in all.chunks_mut(each).enumerate() {
            let position = batch.positions[t].max(0) as usize;
            let mut heads = Heads { state, layout, of, position };
            out.extend(heads.token(&part(q, unit), &part(k, unit), &part(v, unit)));
        }
        out
    };
    (0..batch.seqs.len()).map(token).collect()
}

impl Heads<'_> {
    /// The token's results; afterwards the cache has it, and drops others if it is full.
    fn token(&mut self, q: &[f64], k: &[f64], v: &[f64]) -> Vec<f64> {
        let Eviction { budget, drop, .. } = self.of.eviction;
        let cadence = Cadence { budget, drop };
        let place = (0..budget).find(|place| self.mark(0, 0, *place) == 0.0).unwrap_or(0);
        let heads = k.len() / self.layout.key_dim;
        let mut out = vec![];
        for head in 0..heads {
            self.store(head, place, &k[head * self.layout.key_dim..], &v[head * self.layout.value_dim..]);
            let queries = &q[head * q.len() / heads..][..q.len() / heads];
            let weights: Vec<Vec<f64>> = queries.chunks(self.layout.key_dim).map(|q| self.weights(head, q)).collect();
            let results: Vec<Vec<f64>> = weights.iter().map(|w| self.weighted(head, w)).collect();
            self.observe(head, place, &weights, &results, cadence);
            out.extend(results.concat());
        }
        if cadence.left(self.position) == 0 {
            self.drop(heads);
        }
        out
    }

    fn at(&mut self, head: usize, i: usize) -> &mut f64 {
        &mut self.state[head * self.layout.len() + i]
    }

    fn mark(&self, head: usize, i: usize, place: usize) -> f64 {
        self.state[head * self.layout.len() + self.layout.mark(i, place)]
    }

    fn set(&mut self, head: usize, i: usize, place: usize, x: f64) {
        let at = self.layout.mark(i, place);
        *self.at(head, at) = x;
    }

    fn places(&self) -> Vec<usize> {
        (0..self.layout.places).filter(|place| self.mark(0, 0, *place) != 0.0).collect()
    }

    fn store(&mut self, head: usize, place: usize, k: &[f64], v: &[f64]) {
        let layout = self.layout;
        (0..layout.key_dim).for_each(|d| *self.at(head, layout.key(place, d)) = k[d]);
        (0..layout.value_dim).for_each(|d| *self.at(head, layout.value(place) + d) = v[d]);
        self.set(head, 0, place, self.position as f64 + 1.0);
    }

    /// The softmax of a query over the places; 0 without a token.
    fn weights(&self, head: usize, q: &[f64]) -> Vec<f64> {
        let (from, layout) = (head * self.layout.len(), self.layout);
        let score = |place: usize| {
            let product: f64 = q.iter().enumerate().map(|(d, q)| q * self.state[from + layout.key(place, d)]).sum();
            if self.mark(head, 0, place) == 0.0 { f64::NEG_INFINITY } else { product * f64::from(self.of.scale.get()) }
        };
        let scores: Vec<f64> = (0..layout.places).map(score).collect();
        let most = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let sum: f64 = scores.iter().map(|s| (s - most).exp()).sum();
        scores.iter().map(|s| (s - most).exp() / sum).collect()
    }

    fn value(&self, head: usize, place: usize) -> &[f64] {
        &self.state[head * self.layout.len() + self.layout.value(place)..][..self.layout.value_dim]
    }

    fn weighted(&self, head: usize, weights: &[f64]) -> Vec<f64> {
        let term = |d: usize| self.places().into_iter().map(|place| weights[place] * self.value(head, place)[d]).sum();
        (0..self.layout.value_dim).map(term).collect()
    }

    /// Takes the token's weights into account.
    fn observe(&mut self, head: usize, new: usize, weights: &[Vec<f64>], results: &[Vec<f64>], cadence: Cadence) {
        let Eviction { criterion, window, level, .. } = self.of.eviction;
        let t = self.position as f64;
        let observed = cadence.left(self.position) < window;
        for place in self.places() {
            let each = || weights.iter().map(|w| w[place]);
            let mean = each().sum::<f64>() / weights.len() as f64;
            let [first, second] = [1, 2].map(|i| self.mark(head, i, place));
            let (first, second) = match criterion {
                Criterion::Sum => (first + mean, second),
                Criterion::Last => (mean, second),
                Criterion::Rare if observed && mean < 1.0 / cadence.count(self.position) as f64 => {
                    (first - 1.0, second)
                }
                Criterion::Peak if observed => (first + each().fold(0.0, f64::max), second),
                Criterion::Rare | Criterion::Peak => (first, second),
                // Nothing of earlier tokens counts.
                Criterion::Shift if cadence.left(self.position) > 0 => (first, second),
                Criterion::Shift => {
                    let distance = |o: &[f64]| {
                        let squares = self.value(head, place).iter().zip(o).map(|(v, o)| (v - o) * (v - o));
                        squares.sum::<f64>().sqrt()
                    };
                    let moved = |(w, o): (f64, &Vec<f64>)| w / (1.0 - w).max(REST.into()) * distance(o);
                    (each().zip(results).map(moved).sum(), second)
                }
                Criterion::Recurrence if place == new => (t, 0.0),
                Criterion::Recurrence if mean >= f64::from(level.get()) => (t, second.max(t - first)),
                Criterion::Recurrence => (first, second),
            };
            self.set(head, 1, place, first);
            self.set(head, 2, place, second);
        }
    }

    /// Slots whose tokens may be dropped.
    fn candidates(&self) -> Vec<usize> {
        let recent = |place: &usize| {
            let since = self.position as f64 + 1.0 - self.mark(0, 0, *place);
            since >= self.of.eviction.recent as f64
        };
        self.places().into_iter().filter(recent).collect()
    }

    /// Drops the tokens with the lowest scores.
    fn drop(&mut self, heads: usize) {
        let mut scores = vec![0.0; self.layout.places];
        for head in 0..heads {
            self.scores(head).into_iter().for_each(|(place, score)| scores[place] += score);
        }
        let mut order = self.candidates();
        order.sort_by(|a, b| {
            let places = self.mark(0, 0, *a).total_cmp(&self.mark(0, 0, *b));
            scores[*a].total_cmp(&scores[*b]).then(places)
        });
        for place in order.into_iter().take(self.of.eviction.drop) {
            (0..heads).for_each(|head| (0..KeptLayout::MARKS).for_each(|i| self.set(head, i, place, 0.0)));
        }
    }

    /// The scores of a head's tokens.
    fn scores(&mut self, head: usize) -> Vec<(usize, f64)> {
        let Eviction { criterion, window, level, .. } = self.of.eviction;
        let (places, t) = (self.places(), self.position as f64);
        match criterion {
            Criterion::Sum | Criterion::Last | Criterion::Shift => {
                places.into_iter().map(|place| (place, self.mark(head, 1, place))).collect()
            }
            Criterion::Rare => {
                let scores = places.iter().map(|place| (*place, self.mark(head, 1, *place))).collect();
                places.into_iter().for_each(|place| self.set(head, 1, place, 0.0));
                scores
            }
            Criterion::Peak => {
                let candidates = self.candidates();
                let mean = |of: &Self, place: usize| of.mark(head, 1, place) / window as f64;
                let most = candidates.iter().map(|place| mean(self, *place)).fold(0.0, f64::max);
                for place in &candidates {
                    let own = if most > 0.0 { mean(self, *place) / most } else { 0.0 };
                    self.set(head, 2, *place, own.max(f64::from(level.get()) * self.mark(head, 2, *place)));
                }
                places.iter().for_each(|place| self.set(head, 1, *place, 0.0));
                places.into_iter().map(|place| (place, self.mark(head, 2, place))).collect()
            }
            Criterion::Recurrence => {
                let twice = |x: f64| 2.0 / (1.0 + x.exp());
                let score = |place: usize| {
                    let [last, longest] = [1, 2].map(|i| self.mark(head, i, place));
                    if longest > 0.0 { twice((t - last) / longest) + twice(1.0 / longest) } else { 0.0 }
                };
                places.into_iter().map(|place| (place, score(place))).collect()
            }
        }
    }
}
