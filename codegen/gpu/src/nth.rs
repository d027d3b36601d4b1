//! The number of 64 bits than which so many of a block's are no smaller, by bisection.

use crate::mlir::{Builder, Cmp, I1, I32, I64, V, V4I32, WARP};

/// Threads of a block.
pub(crate) const THREADS: usize = 256;
/// Warps of a block.
pub(crate) const WARPS: usize = THREADS / WARP;
/// Probes after which any two numbers are told apart.
pub(crate) const PROBES: i64 = 66;

/// The warps' counts in shared memory.
#[derive(Clone, Copy)]
pub(crate) struct Counts {
    pub(crate) warp: V,
    pub(crate) first_lane: V,
    /// Address of two sets of a word for each warp.
    pub(crate) start: V,
}

impl Counts {
    /// Stores a count of the warp in the set at `start`, and returns the counts of all warps. Another call with the
    /// same place comes after a further barrier.
    pub(crate) fn of_warps(&self, b: &mut Builder, start: V, of_warp: V) -> Vec<V> {
        b.if_(self.first_lane, |b| {
            let offset = b.shlc(self.warp, 2);
            let p = b.at(start, offset);
            b.store(of_warp, p);
        });
        b.barrier();
        (0..WARPS / 4)
            .flat_map(|i| {
                let p = b.atc(start, 16 * i as i64);
                let four = b.load(p, V4I32);
                b.unpack(four)
            })
            .collect()
    }

    /// How many of the numbers that the block's threads hold are `probe` or more. A call with the other `set` comes
    /// between two with the same one.
    fn no_smaller(&self, b: &mut Builder, held: &[V], probe: V, set: V) -> V {
        let none = b.i32(0);
        let own = held.iter().fold(none, |n, x| {
            let counts = b.cmp(Cmp::Uge, *x, probe);
            let one = b.zext(counts, I32);
            b.add(n, one)
        });
        let of_warp = b.redux(own, "add");
        let skip = b.mulc(set, 4 * WARPS as i64);
        let start = b.at(self.start, skip);
        let all = self.of_warps(b, start, of_warp);
        all[1..].iter().fold(all[0], |n, x| b.add(n, *x))
    }

    /// The number than which exactly `need` of those held are no smaller, after `turns` of [`PROBES`]. `start` is the
    /// lower limit, than which at least `need` are no smaller; the upper one, than which fewer are larger; the first
    /// probe; and whether there is nothing to look for.
    pub(crate) fn nth(&self, b: &mut Builder, held: &[V], turns: (V, V, V), start: [V; 4], need: V) -> V {
        let found = b.for_(turns, &start, |b, turn, carried| {
            let [low, high, probe, done] = *carried else { unreachable!("as many as were given") };
            b.if_else(
                done,
                &[I64, I64, I64, I1],
                |_| vec![low, high, probe, done],
                |b| {
                    let set = b.andc(turn, 1);
                    let n = self.no_smaller(b, held, probe, set);
                    let (exact, fewer) = (b.cmp(Cmp::Eq, n, need), b.cmp(Cmp::Ult, n, need));
                    let below = b.addc(probe, -1);
                    let (low, high) = (b.select(fewer, low, probe), b.select(fewer, below, high));
                    let (next, one) = (between(b, low, high), b.cmp(Cmp::Eq, low, high));
                    vec![low, high, next, b.or(exact, one)]
                },
            )
        });
        found[0]
    }
}

/// The number in the middle, the upper one of two.
pub(crate) fn between(b: &mut Builder, low: V, high: V) -> V {
    let half = b.sub(high, low);
    let half = b.shrc(half, 1);
    b.sub(high, half)
}
