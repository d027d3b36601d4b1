//! Weights on their way to a warp: units of its strips, copied lane by lane into a ring in shared
//! memory.

use super::{PhaseCx, Plan};
use crate::cx::Args;
use crate::matmul::decode::{self, Scales};
use crate::mlir::{Builder, Cache, Cmp, I64, V, V4I32};
use llmcc_ir::gpu::schedule::{self, TILE_K};
use llmcc_ir::quant::Format;

/// The weights of a phase, as a lane sees them.
pub struct Weights<'a> {
    pub(super) plan: &'a Plan<'a>,
    pub(super) p: &'a PhaseCx<'a>,
    /// Number of the lane, and which column of warps it is in.
    pub(super) lane: V,
    column: V,
    /// Whether the warp holds one strip only, of a lane of the segments that depends on the warp.
    single: bool,
    /// For each segment and lane: the address its matrix would have if output tiles of all segments
    /// were its own.
    bases: Vec<Vec<V>>,
}

impl<'a> Weights<'a> {
    /// Weights of a lane of a warp in column `column`.
    pub fn new(
        b: &mut Builder,
        plan: &'a Plan<'a>,
        p: &'a PhaseCx<'a>,
        args: Args<'_>,
        lane: V,
        column: V,
    ) -> Weights<'a> {
        let mut bases = vec![];
        for l in 0..p.lanes() {
            let bytes = p.formats[l].block_bytes(plan.k) as i64;
            let mut of = vec![];
            for (s, start) in p.segments.iter().zip(&p.starts) {
                let base = args.operand(s.weights[l]);
                of.push(b.atc(base, -(*start as i64 * p.wide() as i64 * bytes)));
            }
            bases.push(of);
        }
        Weights { plan, p, lane, column, single: false, bases }
    }

    /// Weights of a lane of warp `warp`, which holds strip `warp` of all the lanes of the segments
    /// (of equal format) one after the other.
    pub fn single(
        b: &mut Builder,
        plan: &'a Plan<'a>,
        p: &'a PhaseCx<'a>,
        args: Args<'_>,
        lane: V,
        warp: V,
    ) -> Weights<'a> {
        let wide = p.wide() as i64;
        let of = b.divc(warp, wide);
        let skip = b.mulc(of, wide);
        let column = b.sub(warp, skip);
        let mut all = Weights::new(b, plan, p, args, lane, column);
        for l in 1..p.lanes() {
            let later = b.cmpc(Cmp::Uge, of, l as i64);
            for s in 0..p.segments.len() {
                all.bases[0][s] = b.select(later, all.bases[l][s], all.bases[0][s]);
            }
        }
        all.single = true;
        all
    }

    /// Strips of a warp: `(lane of the segments, number in the lane)`.
    pub fn strips(&self) -> Vec<(usize, usize)> {
        if self.single {
            return vec![(0, 0)];
        }
        (0..self.p.lanes()).flat_map(|l| (0..self.p.phase.strips).map(move |j| (l, j))).collect()
    }

    /// Where strip `i` of a warp lies in a unit.
    fn strip_at(&self, i: usize) -> i64 {
        self.strips()[..i].iter().map(|(l, _)| schedule::unit_bytes(self.p.formats[*l]) as i64).sum()
    }

    /// Starts copying column tile `kt` of output tile `tile` to `slot`.
    pub fn fetch(&self, b: &mut Builder, tile: V, kt: V, slot: V) {
        let piece = b.shlc(self.lane, 4);
        let own = b.at(slot, piece);
        for (i, (l, j)) in self.strips().into_iter().enumerate() {
            let from = self.strip(b, tile, l, j);
            self.fetch_strip(b, (from, l), kt, (own, piece), self.strip_at(i));
        }
    }

    /// Address of the block of 16 rows that is strip `j` of lane `l` of an output tile.
    pub fn strip(&self, b: &mut Builder, tile: V, l: usize, j: usize) -> V {
        let (wide, columns) = (self.p.wide() as i64, self.p.phase.columns as i64);
        let ragged = self.p.segments.iter().any(|s| !s.n.div_ceil(16).is_multiple_of(self.p.wide()));
        let mut base = self.bases[l][0];
        // One past the last strip, all segments' tiles numbered through.
        let end = |i: usize| (self.p.starts[i] * self.p.wide() + self.p.segments[i].n.div_ceil(16)) as i64;
        let mut last = b.i32(end(0) - 1);
        for i in 1..self.p.segments.len() {
            let later = b.cmpc(Cmp::Sge, tile, self.p.starts[i] as i64);
            base = b.select(later, self.bases[l][i], base);
            if ragged {
                let own = b.i32(end(i) - 1);
                last = b.select(later, own, last);
            }
        }
        let line = b.mulc(tile, wide);
        let strip = b.add(line, self.column);
        let mut strip = b.addc(strip, j as i64 * columns);
        if ragged {
            strip = b.min(strip, last);
        }
        let strip = b.zext(strip, I64);
        let offset = b.mulc(strip, self.p.formats[l].block_bytes(self.plan.k) as i64);
        b.at(base, offset)
    }

    /// Copies a strip's part of a unit: the lane's pieces of the codes, and by the first lanes the
    /// scales of the groups in it.
    fn fetch_strip(&self, b: &mut Builder, (from, l): (V, usize), kt: V, (own, piece): (V, V), at: i64) {
        let format = self.p.formats[l];
        let layout = format.block(self.plan.k);
        let bytes = format.tile_bytes() as i64;
        let offset = b.mulc(kt, bytes);
        let offset = b.add(offset, piece);
        let codes = b.at(from, offset);
        for c in 0..bytes / 512 {
            let (to, from) = (b.atc(own, at + c * 512), b.atc(codes, layout.codes as i64 + c * 512));
            b.cp_async(to, from, Cache::L2);
        }
        if schedule::has_f32_factors(format) {
            return self.fetch_factors(b, format, from, kt, (own, piece), at + bytes);
        }
        let all = schedule::unit_scales(format) as i64;
        if all == 0 {
            return;
        }
        let groups = TILE_K.div_ceil(usize::from(format.group)) as i64;
        let some = b.cmpc(Cmp::Ult, self.lane, 2 * all);
        b.if_(some, |b| {
            let first = if groups == 2 { b.shlc(kt, 1) } else { b.divc(kt, i64::from(format.group) / TILE_K as i64) };
            let line = b.shlc(first, 5);
            let mut offset = b.add(line, piece);
            if all > groups {
                // The second half of these lanes copies minima.
                let minima = b.cmpc(Cmp::Uge, self.lane, 2 * groups);
                let (skip, zero) = (b.i32(layout.mins as i64 - 32 * groups), b.i32(0));
                let skip = b.select(minima, skip, zero);
                offset = b.add(offset, skip);
            }
            let (to, from) = (b.atc(own, at + bytes), b.at(from, offset));
            b.cp_async(to, from, Cache::L2);
        });
    }

    /// Copies factors that are not f16 of groups, run by run.
    fn fetch_factors(&self, b: &mut Builder, format: Format, from: V, kt: V, (own, piece): (V, V), at: i64) {
        let layout = format.block(self.plan.k);
        for run in schedule::factor_runs(format) {
            let some = b.cmpc(Cmp::Ult, self.lane, run.bytes() as i64 / 16);
            b.if_(some, |b| {
                let line = decode::line_of(b, &run, kt);
                let offset = line.map_or(piece, |line| b.add(line, piece));
                let (to, from) = (b.atc(own, at + run.at as i64), b.at(from, offset));
                let from = b.atc(from, run.in_block(&layout) as i64);
                b.cp_async(to, from, Cache::L2);
            });
        }
    }

    /// Strip `i` of the unit in `slot`: the words of the lane's pieces, and the scales of its two
    /// rows.
    pub fn read(&self, b: &mut Builder, slot: V, i: usize) -> (Vec<V>, Option<Scales>) {
        let format = self.p.formats[self.strips()[i].0];
        let bytes = format.tile_bytes() as i64;
        let piece = b.shlc(self.lane, 4);
        let own = b.at(slot, piece);
        let mut words = vec![];
        for c in 0..bytes / 512 {
            let p = b.atc(own, self.strip_at(i) + c * 512);
            let v = b.load(p, V4I32);
            words.extend(b.unpack(v));
        }
        if schedule::has_f32_factors(format) {
            let at = b.atc(slot, self.strip_at(i) + bytes);
            return (words, decode::load_factors(b, format, at, self.lane));
        }
        let scales = (schedule::unit_scales(format) > 0).then(|| {
            let at = b.atc(slot, self.strip_at(i) + bytes);
            decode::load_scales(b, format, at, self.lane)
        });
        (words, scales)
    }
}
