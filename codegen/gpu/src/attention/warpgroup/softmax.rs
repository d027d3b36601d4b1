//! The online softmax of a lane's two rows, in base 2: scores of a tile in, as the products leave
//! them, probabilities out.
//!
//! A lane has columns `2t` and `2t + 1` of every eight (`t = lane mod 4`) of row `g = lane / 4` of
//! its warp's sixteen, and then the same columns of row `g + 8`.

use super::super::shape::Range;
use super::{Plan, TILE};
use crate::mlir::{Builder, Cmp, Elem, F32, I1, I32, Ty, V};

/// Rows of a lane.
pub(super) const ROWS: usize = 2;
/// Chains in which the values of a row are combined, to have several on their way.
const CHAINS: usize = 4;

/// State of each row: the largest score so far (not scaled), and the lane's part of the sum of
/// probabilities.
#[derive(Clone, Copy)]
pub(super) struct Rows {
    pub(super) maxima: [V; ROWS],
    pub(super) sums: [V; ROWS],
}

/// Contribution of a tile.
pub(super) struct Tile {
    /// In the order of the scores.
    pub(super) probabilities: Vec<V>,
    /// The factor for the weighted values so far.
    pub(super) change: [V; ROWS],
}

impl Rows {
    pub(super) fn start(b: &mut Builder) -> Rows {
        let (none, zero) = (b.f32(f32::NEG_INFINITY), b.f32(0.0));
        Rows { maxima: [none; ROWS], sums: [zero; ROWS] }
    }

    pub(super) fn of(values: &[V]) -> Rows {
        Rows { maxima: [values[0], values[1]], sums: [values[2], values[3]] }
    }

    pub(super) fn values(&self) -> Vec<V> {
        [self.maxima, self.sums].concat()
    }

    /// The sums over all lanes.
    pub(super) fn total(&self, b: &mut Builder) -> [V; ROWS] {
        self.sums.map(|s| b.reduce(s, &[1, 2], |b, x, y| b.fadd(x, y)))
    }
}

/// Row of the lane that has value `i` of a lane's scores or weighted values.
pub(super) fn row(i: usize) -> usize {
    i / 2 % 2
}

/// Column of value `i`, less `2t`.
pub(super) fn column(i: usize) -> usize {
    i / 4 * 8 + i % 2
}

/// Scores, replaced for unseen slots; `first`: the lane's first position. Most tiles are seen by
/// all rows of the warp, which costs a branch.
pub(super) fn mask(b: &mut Builder, scores: &[V], first: V, tokens: V, ranges: &[Range; ROWS]) -> Vec<V> {
    let zero = b.i32(0);
    let whole = ranges.iter().fold(None, |all: Option<V>, range| {
        let from = b.sub(first, range.first);
        let end = b.addc(from, TILE as i64 - 1);
        let (begins, ends) = (b.cmp(Cmp::Sge, from, zero), b.cmp(Cmp::Slt, end, range.count));
        let seen = b.and(begins, ends);
        Some(all.map_or(seen, |all| b.and(all, seen)))
    });
    let whole = whole.map_or(zero, |w| b.zext(w, I32));
    let whole = b.redux(whole, "umin");
    let whole = b.cmpc(Cmp::Ne, whole, 0);
    let types = vec![F32; scores.len()];
    b.if_else(
        whole,
        &types,
        |_| scores.to_vec(),
        |b| {
            let none = b.f32(f32::NEG_INFINITY);
            let from: Vec<V> = ranges
                .iter()
                .map(|range| {
                    let from = b.sub(first, range.first);
                    b.add(from, tokens)
                })
                .collect();
            let one = |(i, score): (usize, &V)| {
                let slot = b.addc(from[row(i)], column(i) as i64);
                let seen = b.cmp(Cmp::Ult, slot, ranges[row(i)].count);
                b.select(seen, *score, none)
            };
            scores.iter().enumerate().map(one).collect()
        },
    )
}

/// Probabilities relative to the new maximum.
pub(super) fn softmax(b: &mut Builder, scale: f32, scores: &[V], rows: &Rows) -> (Tile, Rows) {
    let (scale, none, zero) = (b.f32(scale), b.f32(f32::NEG_INFINITY), b.f32(0.0));
    let (mut next, mut change, mut bases) = (*rows, [zero; ROWS], [zero; ROWS]);
    for r in 0..ROWS {
        let mine: Vec<V> = scores.iter().enumerate().filter(|(i, _)| row(*i) == r).map(|(_, s)| *s).collect();
        let largest = combine(b, &mine, |b, x, y| b.fmax(x, y));
        let largest = b.fmax(largest, rows.maxima[r]);
        next.maxima[r] = b.reduce(largest, &[1, 2], |b, x, y| b.fmax(x, y));
        // A row that has seen nothing yet: anything finite will do.
        let empty = b.op(I1, format!("arith.cmpf oeq, {}, {none} : f32", next.maxima[r]));
        let base = b.select(empty, zero, next.maxima[r]);
        let base = b.fmul(base, scale);
        bases[r] = b.fneg(base);
        // Exactly 1 where the maximum stays: tiles that the row does not see change nothing.
        let old = b.fmul(rows.maxima[r], scale);
        let by = b.fsub(old, base);
        change[r] = b.exp2(by);
    }
    let probabilities: Vec<V> = scores
        .iter()
        .enumerate()
        .map(|(i, s)| {
            let x = b.fma(*s, scale, bases[row(i)]);
            b.exp2(x)
        })
        .collect();
    next.sums = std::array::from_fn(|r| {
        let mine: Vec<V> = probabilities.iter().enumerate().filter(|(i, _)| row(*i) == r).map(|(_, s)| *s).collect();
        let sum = combine(b, &mine, |b, x, y| b.fadd(x, y));
        b.fma(rows.sums[r], change[r], sum)
    });
    (Tile { probabilities, change }, next)
}

fn combine(b: &mut Builder, values: &[V], with: impl Fn(&mut Builder, V, V) -> V) -> V {
    let chain = |b: &mut Builder, first: usize| {
        let all: Vec<V> = values.iter().skip(first).step_by(CHAINS).copied().collect();
        all[1..].iter().fold(all[0], |x, y| with(b, x, *y))
    };
    let ends: Vec<V> = (0..CHAINS.min(values.len())).map(|first| chain(b, first)).collect();
    ends[1..].iter().fold(ends[0], |x, y| with(b, x, *y))
}

impl Plan {
    /// Probabilities as left operands: four words for every 16 tokens, which a lane has already.
    pub(super) fn narrow(&self, b: &mut Builder, probabilities: &[V]) -> Vec<V> {
        let pair = Ty::Vec(2, self.elem);
        let word = |b: &mut Builder, two: &[V]| {
            let two = b.pack(two);
            let two = if self.elem == Elem::F32 { two } else { b.ftrunc(two, pair) };
            b.bitcast(two, I32)
        };
        probabilities.chunks(2).map(|two| word(b, two)).collect()
    }
}
