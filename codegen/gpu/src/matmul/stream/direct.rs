//! A stream whose weights are in registers a unit ahead: see [`crate::matmul::direct`].

use super::{Stream, Thread};
use crate::matmul::decode;
use crate::matmul::direct::Sources;
use crate::mlir::{BF16, Builder, Cmp, F16, F32, I8, Ty, V};
use llmcc_ir::gpu::schedule::TILE_K;

impl Stream<'_> {
    /// Loads unit `q`, if it is one of this block's.
    pub(super) fn load_first(&self, b: &mut Builder, th: &Thread<'_>, q: V) -> Vec<V> {
        let types = th.weights.unit_types();
        let inside = b.cmp(Cmp::Slt, q, th.share.hi);
        b.if_else(
            inside,
            &types,
            |b| {
                let at = self.place(b, q);
                let yes = b.yes();
                let from = th.weights.sources(b, at, yes);
                th.weights.load_unit(b, &from)
            },
            |b| zeros(b, &types),
        )
    }

    /// Adds unit `q` of an output tile whose first unit is `start`, and loads the warp's next one.
    /// `carried` is the loaded unit, and the sums. Returns the number of the next unit, and the same anew.
    pub(super) fn direct_turn(
        &self,
        b: &mut Builder,
        (th, x): (&Thread<'_>, &[V]),
        (q, start): (V, V),
        carried: &[V],
    ) -> Vec<V> {
        let next = b.addc(q, self.p.phase.parts as i64);
        let inside = b.cmp(Cmp::Slt, next, th.share.hi);
        let first = b.sub(q, start);
        let first = b.mulc(first, self.p.tiles as i64);
        let offset = b.mulc(first, TILE_K as i64 * 2);
        let x = b.at(x[0], offset);
        let some = b.select(inside, next, q);
        let at = self.place(b, some);
        let from = th.weights.sources(b, at, inside);
        let unit = self.unit_and_next(b, th, x, carried, &from);
        [&[next], &unit[..]].concat()
    }

    /// Each column tile of each strip is loaded anew as soon as it has been multiplied.
    fn unit_and_next(&self, b: &mut Builder, th: &Thread<'_>, x: V, carried: &[V], from: &Sources) -> Vec<V> {
        let (unit, sums) = carried.split_at(th.weights.unit_types().len());
        let (strips, n) = (th.weights.strips(), self.sums_of_strip());
        let (mut next, mut sums) = (vec![], sums.to_vec());
        for j in 0..self.p.tiles {
            let p = b.atc(x, (j * TILE_K * 2) as i64);
            let words = self.words(b, p, 2);
            for (i, (l, _)) in strips.iter().enumerate() {
                let weights = th.weights.loaded(b, unit, i, j);
                let half = decode::half(self.plan.elem);
                let added = decode::multiply(b, self.p.formats[*l], half, weights, &words, &sums[i * n..][..n]);
                sums[i * n..][..n].copy_from_slice(&added);
                next.extend(th.weights.load(b, from, i, j));
            }
        }
        next.extend(sums);
        next
    }
}

/// A zero of each type.
fn zeros(b: &mut Builder, types: &[Ty]) -> Vec<V> {
    let (int, float) = (b.i32(0), b.f32(0.0));
    let zero = |ty: &Ty| match *ty {
        F32 => float,
        I8 => b.trunc(int, I8),
        F16 | BF16 => b.ftrunc(float, *ty),
        _ => int,
    };
    types.iter().map(zero).collect()
}
