//! Ranks of rows, and the best of them that a block keeps.

use super::plan::Plan;
use crate::mlir::{Builder, Cmp, I1, I32, I64, Memory, V, WARP};
use crate::nth::{self, PROBES, WARPS};

/// Counts of the warps, two sets of them; totals of the warps; a word.
const COUNTS: usize = 0;
const TOTALS: usize = COUNTS + 2 * 4 * WARPS;
const FLAG: usize = TOTALS + 4 * WARPS;

/// The rank of a row by its score: of equal scores the first row has the largest; NaN has the smallest of all.
pub(super) fn rank(b: &mut Builder, score: V, index: V) -> V {
    let zero = b.f32(0.0);
    // Zeros of both signs are equal.
    let score = b.fadd(score, zero);
    let bits = b.bitcast(score, I32);
    let negative = b.cmpc(Cmp::Slt, bits, 0);
    let (inverted, raised) = (b.xorc(bits, -1), b.orc(bits, 1 << 31));
    let key = b.select(negative, inverted, raised);
    let nan = b.op(I1, format!("arith.cmpf uno, {score}, {score} : f32"));
    let none = b.i32(0);
    let key = b.select(nan, none, key);
    let index = b.xorc(index, -1);
    let (key, index) = (b.zext(key, I64), b.zext(index, I64));
    let key = b.shlc(key, 32);
    b.or(key, index)
}

/// The number of a rank's row.
pub(super) fn row_of(b: &mut Builder, rank: V) -> V {
    let index = b.trunc(rank, I32);
    b.xorc(index, -1)
}

/// The ranks kept so far.
#[derive(Clone, Copy)]
pub(super) struct Kept {
    /// How many.
    pub(super) count: V,
    /// At least as many rows as are selected have no smaller rank (`i64`).
    pub(super) least: V,
}

impl Kept {
    pub(super) fn none(b: &mut Builder) -> Kept {
        Kept { count: b.i32(0), least: b.i64(0) }
    }

    pub(super) fn carried(self) -> Vec<V> {
        vec![self.count, self.least]
    }

    pub(super) fn from_carried(values: &[V]) -> Kept {
        Kept { count: values[0], least: values[1] }
    }
}

/// The ranks of a block, in shared memory, in the order of their rows.
pub(super) struct Ranks<'a> {
    pub(super) plan: &'a Plan<'a>,
    pub(super) tid: V,
    pub(super) warp: V,
    pub(super) lane: V,
    counts: nth::Counts,
    /// The first rank; the first total.
    base: V,
    totals: V,
}

impl<'a> Ranks<'a> {
    pub(super) fn new(b: &mut Builder, plan: &'a Plan<'a>) -> Ranks<'a> {
        let [queries, weights, tile, sums, ranks, counts] = plan.places();
        let of = |name, at, bytes, stages| Memory { name, at, bytes, stages, conflict_free: false, over: &[] };
        b.buffer(of("queries", queries, weights - queries, 1));
        b.buffer(of("weights", weights, tile - weights, 1));
        b.buffer(of("tile", tile, sums - tile, 1));
        b.buffer(of("sums of warps", sums, ranks - sums, 1));
        b.buffer(of("ranks", ranks, counts - ranks, 1));
        b.buffer(of("counts", counts + COUNTS, 4 * WARPS, 2));
        b.buffer(of("totals", counts + TOTALS, 4 * WARPS, 1));
        b.buffer(of("flag", counts + FLAG, 16, 1));
        let tid = b.sreg("tid.x");
        let (warp, lane) = b.warp_and_lane(tid);
        let first_lane = b.cmpc(Cmp::Eq, lane, 0);
        let (base, totals) = (b.shared_at(ranks), b.shared_at(counts + TOTALS));
        let counts = nth::Counts { warp, first_lane, start: b.shared_at(counts + COUNTS) };
        Ranks { plan, tid, warp, lane, counts, base, totals }
    }

    /// Address of rank `i`.
    pub(super) fn at(&self, b: &mut Builder, i: V) -> V {
        let offset = b.shlc(i, 3);
        b.at(self.base, offset)
    }

    /// Address of a word.
    pub(super) fn flag(&self, b: &mut Builder) -> V {
        b.shared_at(self.plan.places()[5] + FLAG)
    }

    fn top(&self) -> i64 {
        self.plan.select.top as i64
    }

    /// Numbers for the thread's ranks that stay, in the order of threads: that of its first one, and how many all
    /// threads have. The warps' sums go to `start`, as [`nth::Counts::of_warps`] says.
    fn numbered(&self, b: &mut Builder, start: V, stays: &[V]) -> (V, V) {
        let none = b.i32(0);
        let own = stays.iter().fold(none, |n, stays| {
            let one = b.zext(*stays, I32);
            b.add(n, one)
        });
        let up_to = b.sum_up(own, self.lane);
        let end = b.i32(WARP as i64 - 1);
        let of_warp = b.shuffle_from(up_to, end);
        let of_warps = self.counts.of_warps(b, start, of_warp);
        let (mut first, mut all) = (b.sub(up_to, own), none);
        for (i, n) in of_warps.into_iter().enumerate() {
            let earlier = b.cmpc(Cmp::Slt, self.warp, i as i64 + 1);
            let before = b.select(earlier, none, n);
            first = b.add(first, before);
            all = b.add(all, n);
        }
        (first, all)
    }

    /// Stores the thread's ranks that stay, from number `at` on.
    fn store(&self, b: &mut Builder, mut at: V, ranks: impl Iterator<Item = (V, V)>) {
        for (rank, stays) in ranks {
            b.if_(stays, |b| {
                let p = self.at(b, at);
                b.store(rank, p);
            });
            let one = b.zext(stays, I32);
            at = b.add(at, one);
        }
    }

    /// Keeps ranks of each thread, in the order of threads, that are there and not too small: there is room for all.
    /// A barrier comes between two calls.
    pub(super) fn append(&self, b: &mut Builder, kept: Kept, ranks: &[(V, V)]) -> Kept {
        let stays: Vec<V> = ranks
            .iter()
            .map(|(rank, there)| {
                let better = b.cmp(Cmp::Ult, kept.least, *rank);
                b.and(*there, better)
            })
            .collect();
        let (first, all) = self.numbered(b, self.counts.start, &stays);
        let at = b.add(kept.count, first);
        self.store(b, at, ranks.iter().map(|(rank, _)| *rank).zip(stays));
        Kept { count: b.add(kept.count, all), ..kept }
    }

    /// Makes room for so many more.
    pub(super) fn room(&self, b: &mut Builder, kept: Kept, more: usize) -> Kept {
        let full = b.i32((self.plan.kept() - more) as i64);
        let full = b.cmp(Cmp::Slt, full, kept.count);
        self.best_if(b, full, kept)
    }

    /// Leaves no more than are selected, which all threads see then.
    pub(super) fn leave_best(&self, b: &mut Builder, kept: Kept) -> Kept {
        let top = b.i32(self.top());
        let many = b.cmp(Cmp::Slt, top, kept.count);
        let kept = self.best_if(b, many, kept);
        b.barrier();
        kept
    }

    fn best_if(&self, b: &mut Builder, when: V, kept: Kept) -> Kept {
        let left = b.if_else(when, &[I32, I64], |b| self.best(b, kept).carried(), |_| kept.carried());
        Kept::from_carried(&left)
    }

    /// Leaves the best, of more than are selected, in their order.
    fn best(&self, b: &mut Builder, kept: Kept) -> Kept {
        b.barrier();
        let held = self.held(b, kept);
        let least = self.threshold(b, &held, kept.least);
        let stays: Vec<V> = held.iter().map(|rank| b.cmp(Cmp::Uge, *rank, least)).collect();
        let (first, _) = self.numbered(b, self.totals, &stays);
        self.store(b, first, held.into_iter().zip(stays));
        b.barrier();
        Kept { count: b.i32(self.top()), least }
    }

    /// The thread's ranks, adjacent ones; 0 beyond the last.
    fn held(&self, b: &mut Builder, kept: Kept) -> Vec<V> {
        let first = b.mulc(self.tid, self.plan.held as i64);
        let (last, none) = (b.addc(kept.count, -1), b.i64(0));
        (0..self.plan.held)
            .map(|i| {
                let i = b.addc(first, i as i64);
                let (there, at) = (b.cmp(Cmp::Slt, i, kept.count), b.min(i, last));
                let p = self.at(b, at);
                let rank = b.load(p, I64);
                b.select(there, rank, none)
            })
            .collect()
    }

    /// The rank than which exactly as many as are selected are no smaller; at least as many are no smaller than `low`.
    fn threshold(&self, b: &mut Builder, held: &[V], low: V) -> V {
        let (from, to, step) = (b.i32(0), b.i32(PROBES), b.i32(1));
        let (high, no) = (b.i64(-1), b.cmpc(Cmp::Ne, from, 0));
        let (probe, top) = (nth::between(b, low, high), b.i32(self.top()));
        self.counts.nth(b, held, (from, to, step), [low, high, probe, no], top)
    }
}
