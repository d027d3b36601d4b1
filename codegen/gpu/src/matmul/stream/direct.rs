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

    /// All output tiles of the block's share; `unit` is what was loaded of the warp's first unit, `q0`.
    pub(super) fn direct_tiles(&self, b: &mut Builder, th: &Thread<'_>, q0: V, unit: Vec<V>) {
        let kt = self.plan.kt() as i64;
        let (first, end) = self.range(b, th.share);
        let (one, loaded) = (b.i32(1), unit.len());
        let init = [&[q0][..], &unit].concat();
        b.for_((first, end, one), &init, |b, tile, carried| {
            let start = b.mulc(tile, kt);
            let tile_end = b.addc(start, kt);
            let end = b.min(tile_end, th.share.hi);
            let zero = b.f32(0.0);
            let mut init = carried.to_vec();
            init.extend(vec![zero; th.weights.strips().len() * self.sums_of_strip()]);
            let parts = self.p.phase.parts as i64;
            let step = b.i32(parts);
            let units = |b: &mut Builder, x: &[V]| {
                b.for_((carried[0], end, step), &init, |b, q, carried| {
                    let mut next = vec![b.addc(q, parts)];
                    next.extend(self.direct_turn(b, (th, x), (q, start), &carried[1..]));
                    next
                })
            };
            let out = match th.fits {
                None => units(b, &th.x[0]),
                // The same twice, so that neither has to ask where its input is.
                Some(fits) => {
                    let types: Vec<Ty> = init.iter().map(|v| v.ty).collect();
                    b.if_else(fits, &types, |b| units(b, &th.x[0]), |b| units(b, &th.x[1]))
                }
            };
            self.finish(b, th, tile, &out[1 + loaded..]);
            out[..1 + loaded].to_vec()
        });
    }

    /// Adds unit `q` of an output tile whose first is `start`, and loads the warp's next one. `carried`
    /// is what was loaded, and the sums.
    fn direct_turn(&self, b: &mut Builder, (th, x): (&Thread<'_>, &[V]), (q, start): (V, V), carried: &[V]) -> Vec<V> {
        let next = b.addc(q, self.p.phase.parts as i64);
        let inside = b.cmp(Cmp::Slt, next, th.share.hi);
        let first = b.sub(q, start);
        let first = b.mulc(first, self.p.tiles as i64);
        let offset = b.mulc(first, TILE_K as i64 * 2);
        let x = b.at(x[0], offset);
        let some = b.select(inside, next, q);
        let at = self.place(b, some);
        let from = th.weights.sources(b, at, inside);
        self.unit_and_next(b, th, x, carried, &from)
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
