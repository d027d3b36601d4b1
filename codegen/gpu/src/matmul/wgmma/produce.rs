//! The warps that bring weights and input to the stages.

use super::super::tiles::ROW;
use super::super::weights::Weights;
use super::super::work::{self, Repeated};
use super::super::{decode, input};
use super::{Event, Part, Product, ahead};
use crate::mlir::{Builder, Cache, Cmp, I64, V, WARP};
use crate::ring::Turn;
use llmcc_ir::gpu::schedule::{self, FactorRun, WGMMA_PIECE};

/// A thread's place.
struct Thread<'a> {
    tid: V,
    lane: V,
    /// Weights of the strip that it copies, and whether it copies.
    weights: Weights<'a>,
    strip: V,
    copies: V,
    /// The piece of 16 bytes that it copies of each of its rows: the first row's place in a stage.
    place: V,
    /// Offsets of its rows, at that piece, from the start of the input.
    rows: Vec<V>,
}

impl<'a> Product<'a> {
    /// Whether a strip's weights are copied in pieces of 512 bytes by four lanes; else as a whole
    /// by one.
    fn in_pieces(&self) -> bool {
        self.p.formats[0].tile_bytes() == 2048
    }

    pub(super) fn produce(&self, b: &mut Builder, at: &mut Turn) {
        let th = self.producer(b);
        let share = work::share(b, self.plan, self.p, &self.block);
        self.each_tile(b, (share, at), |b, tile, part, turn| {
            let next = self.bring(b, &th, (tile, part), turn);
            // The sums have taken the place of the stages: until they have become results.
            b.barrier_all();
            next
        });
    }

    fn producer(&self, b: &mut Builder) -> Thread<'a> {
        let s = &self.plan.schedule;
        let tid = b.sreg("tid.x");
        let tid = b.addc(tid, -(s.warps as i64 * WARP as i64));
        let (warp, lane) = b.warp_and_lane(tid);
        // Copies of the lanes of a warp start one after the other: every warp has its part of the
        // strips.
        let strips = (s.warps / s.producers) as i64;
        let shift = if self.in_pieces() { 2 } else { 0 };
        let (number, first) = (b.shrc(lane, shift), b.mulc(warp, strips));
        let copies = b.cmpc(Cmp::Slt, number, strips);
        let number = b.remc(number, strips);
        let strip = b.add(first, number);
        let weights = Weights::single(b, self.plan, self.p, self.args, lane, strip);
        // Eight threads copy a line of 128 bytes; rows that a thread copies are so far apart that
        // the swizzle moves their pieces alike.
        let each = s.producers * WARP / 8;
        let (row, piece) = (b.shrc(tid, 3), b.andc(tid, 7));
        let swizzle = b.andc(row, 7);
        let to = b.xor(piece, swizzle);
        let (line, to) = (b.shlc(row, 7), b.shlc(to, 4));
        let place = b.add(line, to);
        let repeated = Repeated::new(b, self.block.rows, self.rows());
        let (cols, elem) = self.plan.cx.rows(self.plan.body.x);
        let stride = crate::cx::row_stride(cols, elem) as i64;
        let skip = b.shlc(piece, 4);
        let rows = (0..self.rows() / each)
            .map(|i| {
                let row = b.addc(row, (i * each) as i64);
                let row = repeated.source(b, row);
                let offset = b.mulc(row, stride);
                b.add(offset, skip)
            })
            .collect();
        Thread { tid, lane, weights, strip, copies, place, rows }
    }

    /// Brings all units of an output tile.
    fn bring(&self, b: &mut Builder, th: &Thread<'_>, (tile, part): (V, Option<Part>), turn: Turn) -> Turn {
        let turns = part.map_or(self.turns(), |part| part.count) as i64;
        let ahead = ahead(self.map.stages);
        let weights = th.weights.strip(b, tile, 0, 0);
        let x = input::row(b, self.plan, self.args, self.block.row0);
        let zero = b.i32(0);
        let (end, one) = (b.i32(turns + ahead as i64), b.i32(1));
        // With a constant `ptxas` spills registers of parts of 256 rows.
        let end = if part.is_some() { b.anew(end) } else { end };
        // Start of the copies, and of their announcements.
        let init = [turn.values(), turn.values()].concat();
        let out = b.for_((zero, end, one), &init, |b, i, carried| {
            let (start, arrive) = (Turn::of(&carried[..2]), Turn::of(&carried[2..]));
            // Arrived copies are announced first: the wait for room may be long.
            let late = b.cmpc(Cmp::Sge, i, ahead as i64);
            b.if_(late, |b| self.announce(b, th, arrive.stage, ahead));
            let inside = b.cmpc(Cmp::Slt, i, turns);
            b.if_(inside, |b| {
                let free = Event::Free.barrier(b, self.map, start.stage);
                // The first turn of the ring has nothing to wait for.
                let parity = b.xorc(start.parity, 1);
                b.mbarrier_wait(&free, parity);
                let number = part.map_or(i, |part| b.add(i, part.first));
                self.copy_weights(b, th, weights, number, start.stage);
                self.copy_input(b, th, x, number, start.stage);
            });
            b.cp_commit();
            // A turn of the ring each; none where nothing was done.
            let next = [start, arrive].map(|t| t.next(b, self.map.stages));
            let pick = |b: &mut Builder, c: V, new: Turn, old: Turn| {
                [b.select(c, new.stage, old.stage), b.select(c, new.parity, old.parity)]
            };
            [pick(b, inside, next[0], start), pick(b, late, next[1], arrive)].concat()
        });
        Turn::of(&out)
    }

    /// Says that the warp's part of the input of a stage is there, once it is: that of the oldest
    /// of `ahead` units.
    fn announce(&self, b: &mut Builder, th: &Thread<'_>, stage: V, ahead: usize) {
        b.cp_wait(ahead - 1);
        b.fence_proxy_async();
        b.sync_warp();
        let first = b.cmpc(Cmp::Eq, th.lane, 0);
        b.if_(first, |b| {
            let there = Event::Input.barrier(b, self.map, stage);
            b.mbarrier_arrive(&there);
        });
    }

    /// Starts copying the weights of stage number `turn` of an output tile, of the warp's strips:
    /// as many lanes as there are copies.
    fn copy_weights(&self, b: &mut Builder, th: &Thread<'_>, from: V, turn: V, stage: V) {
        let format = self.p.formats[0];
        let layout = format.block(self.plan.k);
        // Units of a strip are adjacent; where there are several, without scales.
        let tile = self.units() * format.tile_bytes();
        let runs = schedule::factor_runs(format);
        let factors: usize = runs.iter().map(FactorRun::bytes).sum();
        let there = Event::Weights.barrier(b, self.map, stage);
        // One thread announces the bytes of all. Earlier copies cannot complete the phase, which
        // lacks its arrival.
        let first = b.cmpc(Cmp::Eq, th.tid, 0);
        b.if_(first, |b| b.mbarrier_expect(&there, self.plan.schedule.warps * (tile + factors)));
        let slot = self.weights_at(b, stage);
        let skip = b.mulc(th.strip, self.strip_bytes() as i64);
        let slot = b.at(slot, skip);
        let turn64 = b.zext(turn, I64);
        let offset = b.mulc(turn64, tile as i64);
        let codes = b.at(from, offset);
        let codes = b.atc(codes, layout.codes as i64);
        b.if_(th.copies, |b| {
            if self.in_pieces() {
                let piece = b.andc(th.lane, 3);
                let (skip, to) = (b.shlc(piece, 9), b.mulc(piece, WGMMA_PIECE as i64));
                let (from, to) = (b.at(codes, skip), b.at(slot, to));
                return b.bulk_copy(to, from, 512, &there);
            }
            b.bulk_copy(slot, codes, tile, &there);
            for run in &runs {
                let mut from = b.atc(from, run.in_block(&layout) as i64);
                if let Some(line) = decode::line_of(b, run, turn) {
                    from = b.at(from, line);
                }
                let to = b.atc(slot, (tile + run.at) as i64);
                b.bulk_copy(to, from, run.bytes(), &there);
            }
        });
    }

    /// Starts copying a thread's pieces of the input of stage number `turn`.
    fn copy_input(&self, b: &mut Builder, th: &Thread<'_>, x: V, turn: V, stage: V) {
        let column = b.mulc(turn, ROW as i64);
        let from = b.at(x, column);
        let base = self.input_at(b, stage);
        let to = b.at(base, th.place);
        let apart = self.plan.schedule.producers * WARP / 8 * ROW;
        for (i, row) in th.rows.iter().enumerate() {
            let row = b.zext(*row, I64);
            let (from, to) = (b.at(from, row), b.atc(to, (i * apart) as i64));
            b.cp_async(to, from, Cache::L2);
        }
    }
}
