//! Searches by all threads of a block: the largest composite, a sum, and the threshold of the
//! largest `k`.

use super::composite::{high, join, key, logit, low};
use crate::mlir::{Builder, Cmp, Elem, F32, Memory, Ty, V};
use crate::nth::{Counts, PROBES, WARPS};

/// How far below the maximum the first probe is.
const PROBE: f32 = -8.0;

/// Shared memory of the block: two sets of numbers of the warps, their composites, their sums, a
/// word, and the candidates.
pub(super) struct Shared {
    base: V,
    tid: V,
    warp: V,
    first_lane: V,
}

const COUNTS: usize = 0;
const MAXIMA: usize = COUNTS + 2 * 4 * WARPS;
const SUMS: usize = MAXIMA + 8 * WARPS;
/// Set where the block is the last of its row.
const FLAG: usize = SUMS + 4 * WARPS;
/// Candidates in the list.
const LENGTH: usize = FLAG + 4;
const LIST: usize = FLAG + 16;

impl Shared {
    /// Bytes, with a list of `k` candidates.
    pub(super) fn bytes(k: usize) -> usize {
        LIST + 8 * k
    }

    pub(super) fn new(b: &mut Builder, tid: V, k: usize) -> Shared {
        let of = |name, at, bytes, stages| Memory { name, at, bytes, stages, conflict_free: false, over: &[] };
        b.buffer(of("counts", COUNTS, 4 * WARPS, 2));
        b.buffer(of("maxima", MAXIMA, 8 * WARPS, 1));
        b.buffer(of("sums", SUMS, 4 * WARPS, 1));
        b.buffer(of("flag", FLAG, 4, 1));
        b.buffer(of("length", LENGTH, 4, 1));
        b.buffer(of("list", LIST, 8 * k, 1));
        let (warp, lane) = b.warp_and_lane(tid);
        Shared { base: b.shared(), tid, warp, first_lane: b.cmpc(Cmp::Eq, lane, 0) }
    }

    fn at(&self, b: &mut Builder, start: usize, index: V, bytes: u32) -> V {
        let offset = b.shlc(index, bytes.trailing_zeros().into());
        let p = b.at(self.base, offset);
        let p = b.atc(p, start as i64);
        b.point_in(p, start, offset);
        p
    }

    pub(super) fn flag(&self, b: &mut Builder) -> V {
        b.atc(self.base, FLAG as i64)
    }

    pub(super) fn length(&self, b: &mut Builder) -> V {
        b.atc(self.base, LENGTH as i64)
    }

    /// Candidate `index` of the list.
    pub(super) fn entry(&self, b: &mut Builder, index: V) -> V {
        self.at(b, LIST, index, 8)
    }

    /// The largest composite of the block; also empties the list.
    pub(super) fn max(&self, b: &mut Builder, held: &[V]) -> V {
        let mine = held[1..].iter().fold(held[0], |m, c| b.max(m, *c));
        let key = high(b, mine);
        let most = b.redux(key, "umax");
        let is_most = b.cmp(Cmp::Eq, key, most);
        let (id, none) = (low(b, mine), b.i32(0));
        let id = b.select(is_most, id, none);
        let id = b.redux(id, "umax");
        let of_warp = join(b, most, id);
        b.if_(self.first_lane, |b| {
            let p = self.at(b, MAXIMA, self.warp, 8);
            b.store(of_warp, p);
        });
        let first = b.cmpc(Cmp::Eq, self.tid, 0);
        b.if_(first, |b| {
            let (zero, p) = (b.i32(0), self.length(b));
            b.store(zero, p);
        });
        b.barrier();
        let all: Vec<V> = (0..WARPS / 2)
            .flat_map(|i| {
                let p = b.atc(self.base, (MAXIMA + 16 * i) as i64);
                let pair = b.load(p, Ty::Vec(2, Elem::I64));
                b.unpack(pair)
            })
            .collect();
        all[1..].iter().fold(all[0], |m, c| b.max(m, *c))
    }

    /// The sum over the block, in a fixed order.
    pub(super) fn sum(&self, b: &mut Builder, x: V) -> V {
        let of_warp = b.reduce(x, &[16, 8, 4, 2, 1], |b, x, y| b.fadd(x, y));
        b.if_(self.first_lane, |b| {
            let p = self.at(b, SUMS, self.warp, 4);
            b.store(of_warp, p);
        });
        b.barrier();
        let all: Vec<V> = (0..WARPS)
            .map(|i| {
                let p = b.atc(self.base, (SUMS + 4 * i) as i64);
                b.load(p, F32)
            })
            .collect();
        all[1..].iter().fold(all[0], |sum, x| b.fadd(sum, *x))
    }

    /// The composite for which exactly `need` of the block's are as large or larger. `best` is the
    /// largest; at least `need` are not 0.
    pub(super) fn threshold(&self, b: &mut Builder, held: &[V], best: V, need: V) -> V {
        let (from, to, step) = (b.i32(0), b.i32(PROBES), b.i32(1));
        let (low, done) = (b.i64(0), b.cmpc(Cmp::Ne, from, 0));
        let probe = first_probe(b, best);
        let counts = Counts { warp: self.warp, first_lane: self.first_lane, start: self.base };
        counts.nth(b, held, (from, to, step), [low, best, probe, done], need)
    }
}

/// The smallest composite of a logit somewhat below the best one's, at most that one.
fn first_probe(b: &mut Builder, best: V) -> V {
    let (x, less) = (logit(b, best), b.f32(PROBE));
    let x = b.fadd(x, less);
    let (key, zero) = (key(b, x), b.i32(0));
    join(b, key, zero)
}
