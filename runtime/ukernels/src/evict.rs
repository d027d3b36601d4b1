//! Attention of a token to a cache that drops tokens by their weights: see [`EvictArgs`].
//!
//! Inner loops stand in [`Lanes`], for vectors ([`Vectors`]) and for the scalar reference; all else is common to
//! both.

mod lanes;

pub(crate) use lanes::{Lanes, Vectors, halved};

use core::slice;

use crate::select::ordered;
use llmcc_abi::evict::{Cadence, Criterion, EVICT_PLACES, EvictArgs, KeptLayout, REST};

/// One call, taken apart.
struct Run<'a> {
    a: &'a EvictArgs,
    kept: KeptLayout,
    cadence: Cadence,
    position: usize,
    /// Slots that may have a token: whole blocks.
    places: usize,
    /// Query heads of a KV head.
    group: usize,
    /// Weights `[group][places]`.
    weights: *mut f32,
    /// Weights of a KV head for each place, and scores in the end.
    scores: &'a mut [f32],
}

/// The states of one KV head.
struct Head<'a> {
    keys: *mut f32,
    values: *mut f32,
    /// One more than the position of each token, 0 without one.
    seen: &'a mut [f32],
    /// Numbers of the criterion.
    marks: [&'a mut [f32]; 2],
}

/// See [`EvictArgs`].
///
/// # Safety
/// As [`EvictArgs`]; the processor has the features of `L`.
#[inline(always)]
pub(crate) unsafe fn evict_by<L: Lanes>(a: &EvictArgs) {
    let kept = KeptLayout { key_dim: a.key_dim as usize, value_dim: a.value_dim as usize, places: a.places as usize };
    let cadence = Cadence { budget: a.budget as usize, drop: a.drop as usize };
    let (position, group) = (a.position as usize, a.group as usize);
    let places = (position + 1).min(cadence.budget).next_multiple_of(EVICT_PLACES);
    let scores = unsafe { slice::from_raw_parts_mut(a.work.add(group * kept.places), kept.places) };
    let mut run = Run { a, kept, cadence, position, places, group, weights: a.work, scores };
    unsafe {
        let place = run.free();
        for head in 0..a.heads as usize {
            run.store(head, place);
            run.attend::<L>(head);
            run.pool();
            run.mark::<L>(head, place);
        }
        if cadence.left(position) == 0 {
            run.score();
            run.drop();
        }
    }
}

impl Run<'_> {
    /// The states of a head.
    unsafe fn head(&self, head: usize) -> Head<'static> {
        unsafe {
            let keys = self.a.state.add(head * self.kept.len());
            let mark = |i| slice::from_raw_parts_mut(keys.add(self.kept.mark(i, 0)), self.kept.places);
            Head { keys, values: keys.add(self.kept.value(0)), seen: mark(0), marks: [mark(1), mark(2)] }
        }
    }

    /// The first place without a token, which all heads have in common.
    unsafe fn free(&self) -> usize {
        if self.position < self.cadence.budget {
            return self.position;
        }
        let seen = unsafe { self.head(0).seen };
        seen.iter().position(|seen| *seen == 0.0).unwrap_or(0)
    }

    /// Stores the token's key and value.
    unsafe fn store(&self, head: usize, place: usize) {
        unsafe {
            let (of, kept) = (self.head(head), &self.kept);
            for d in 0..kept.key_dim {
                of.keys.add(kept.key(place, d)).write(self.a.k.add(head * kept.key_dim + d).read());
            }
            let value = self.a.v.add(head * kept.value_dim);
            core::ptr::copy_nonoverlapping(value, of.values.add(place * kept.value_dim), kept.value_dim);
            of.seen[place] = (self.position + 1) as f32;
        }
    }

    /// The weights of all places, 0 without a token, and the results.
    #[inline(always)]
    unsafe fn attend<L: Lanes>(&mut self, head: usize) {
        unsafe {
            let (of, kept, n) = (self.head(head), &self.kept, self.places);
            for g in 0..self.group {
                let row = self.weights.add(g * kept.places);
                let q = self.a.q.add((head * self.group + g) * kept.key_dim);
                for first in (0..n).step_by(EVICT_PLACES) {
                    L::scores(q, of.keys.add(kept.key(first, 0)), kept.key_dim, self.a.scale, row.add(first));
                }
                let weights = slice::from_raw_parts_mut(row, n);
                let mut most = f32::NEG_INFINITY;
                for (weight, seen) in weights.iter_mut().zip(&*of.seen) {
                    *weight = if *seen == 0.0 { f32::NEG_INFINITY } else { *weight };
                    most = if *weight > most { *weight } else { most };
                }
                let sum = L::soften(row, n, most);
                L::scale(row, n, 1.0 / sum);
                let out = self.a.out.add((head * self.group + g) * kept.value_dim);
                L::weigh((row, of.seen.as_ptr(), n), of.values, kept.value_dim, out);
            }
        }
    }

    /// The weight of each place for all query heads: their mean, or the largest.
    unsafe fn pool(&mut self) {
        let largest = self.a.criterion == Criterion::Peak;
        let share = 1.0 / self.group as f32;
        for place in 0..self.places {
            let weight = |g: usize| unsafe { self.weights.add(g * self.kept.places + place).read() };
            let mut all = weight(0);
            for g in 1..self.group {
                all = match largest {
                    true if weight(g) > all => weight(g),
                    true => all,
                    false => all + weight(g),
                };
            }
            self.scores[place] = if largest { all } else { all * share };
        }
    }

    /// Takes the token's weights into account.
    #[inline(always)]
    unsafe fn mark<L: Lanes>(&mut self, head: usize, new: usize) {
        let of = unsafe { self.head(head) };
        let [first, second] = of.marks;
        let (t, n) = (self.position as f32, self.places);
        let observed = self.cadence.left(self.position) < self.a.window as usize;
        let full = self.cadence.left(self.position) == 0;
        let rare = 1.0 / self.cadence.count(self.position) as f32;
        if self.a.criterion == Criterion::Recurrence {
            (first[new], second[new]) = (t, 0.0);
        }
        for place in (0..n).filter(|place| of.seen[*place] != 0.0) {
            let weight = self.scores[place];
            match self.a.criterion {
                Criterion::Sum => first[place] += weight,
                Criterion::Last => first[place] = weight,
                Criterion::Rare if observed && weight < rare => first[place] -= 1.0,
                Criterion::Peak if observed => first[place] += weight,
                Criterion::Shift if full => first[place] = unsafe { self.shift::<L>(head, place) },
                Criterion::Recurrence if weight >= self.a.level => {
                    let since = t - first[place];
                    second[place] = if since > second[place] { since } else { second[place] };
                    first[place] = t;
                }
                Criterion::Rare | Criterion::Peak | Criterion::Shift | Criterion::Recurrence => {}
            }
        }
    }

    /// How far the results of a head's queries move without the token of a place.
    #[inline(always)]
    unsafe fn shift<L: Lanes>(&self, head: usize, place: usize) -> f32 {
        let kept = &self.kept;
        let mut sum = 0.0;
        for g in 0..self.group {
            unsafe {
                let weight = self.weights.add(g * kept.places + place).read();
                let value = self.head(head).values.add(place * kept.value_dim);
                let out = self.a.out.add((head * self.group + g) * kept.value_dim);
                let distance = libm::sqrtf(L::distance(value, out, kept.value_dim));
                let rest = if 1.0 - weight > REST { 1.0 - weight } else { REST };
                sum += weight / rest * distance;
            }
        }
        sum
    }

    /// The score of each place, over all heads.
    unsafe fn score(&mut self) {
        self.scores[..self.places].fill(0.0);
        for head in 0..self.a.heads as usize {
            let of = unsafe { self.head(head) };
            let [first, second] = of.marks;
            if self.a.criterion == Criterion::Peak {
                self.peaks(of.seen, first, second);
            }
            for place in 0..self.places {
                self.scores[place] += match self.a.criterion {
                    Criterion::Sum | Criterion::Last | Criterion::Shift => first[place],
                    Criterion::Rare => core::mem::take(&mut first[place]),
                    Criterion::Peak => second[place],
                    Criterion::Recurrence => recurrence(self.position as f32 - first[place], second[place]),
                };
            }
        }
    }

    /// Scores of [`Criterion::Peak`] in `second`; the sums over the window begin again.
    fn peaks(&self, seen: &[f32], first: &mut [f32], second: &mut [f32]) {
        let mean = |sum: f32| sum / self.a.window as f32;
        let mut most = 0.0;
        for place in (0..self.places).filter(|place| self.may_go(seen[*place])) {
            most = if mean(first[place]) > most { mean(first[place]) } else { most };
        }
        for place in 0..self.places {
            let sum = core::mem::take(&mut first[place]);
            if self.may_go(seen[place]) {
                let own = if most > 0.0 { mean(sum) / most } else { 0.0 };
                let before = self.a.level * second[place];
                second[place] = if before > own { before } else { own };
            }
        }
    }

    /// Whether a token may be dropped, by its mark.
    fn may_go(&self, seen: f32) -> bool {
        seen != 0.0 && self.position + 1 - seen as usize >= self.a.recent as usize
    }

    /// Drops the tokens with the lowest scores.
    unsafe fn drop(&mut self) {
        for _ in 0..self.cadence.drop {
            let seen = unsafe { self.head(0).seen };
            let ranks = (0..self.places).filter(|place| self.may_go(seen[*place]));
            let lowest = ranks.map(|place| (rank(self.scores[place], seen[place]), place)).min();
            let Some((_, place)) = lowest else { return };
            for head in 0..self.a.heads as usize {
                let of = unsafe { self.head(head) };
                of.seen[place] = 0.0;
                of.marks.into_iter().for_each(|mark| mark[place] = 0.0);
            }
        }
    }
}

/// The order in which tokens are dropped: by score, NaN first, then by position.
fn rank(score: f32, seen: f32) -> u64 {
    u64::from(ordered(score)) << 32 | u64::from(seen as u32)
}

/// The score of [`Criterion::Recurrence`] of a token last important `since` tokens ago, before at most `longest` tokens
/// apart.
fn recurrence(since: f32, longest: f32) -> f32 {
    // 2σ(−x) for x of 0 and more.
    let twice = |x: f32| {
        let e = crate::reference::exp(0.0 - x);
        2.0 * e / (1.0 + e)
    };
    if longest > 0.0 { twice(since / longest) + twice(1.0 / longest) } else { 0.0 }
}
