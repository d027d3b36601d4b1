//! Products of at most 8 rows: weights streamed past the input. Bound by memory, so everything
//! serves the stream.
//!
//! **On sm90** ([`direct`]) a lane loads the 16-byte pieces that it will multiply straight to
//! registers, a unit (one or several adjacent column tiles of its strips) ahead of the products. Each
//! piece is loaded anew as soon as it has been multiplied, so that as much as the registers hold is
//! under way at every moment, also while an output tile is finished. The first units are under way
//! before the kernels before have ended: weights are no results.
//!
//! **Elsewhere, and with f32 arithmetic,** each lane copies its pieces into a ring in shared memory
//! (`cp.async`). Only the scales of a unit are shared by a warp. No other warp need be waited for.
//!
//! Measured on an H200 (docs/gpu-results.md): the ring, and copies in bulk with deeper rings, are
//! no faster. More bytes under way gain nothing: 35 KB on each multiprocessor are enough, which 8
//! warps have of 4-bit weights. A 4-bit unit of 544 bytes (groups of 128) costs a warp 60
//! instructions, half of them on the pipe of integers, which takes two cycles for each; at 4.3 TB/s
//! a scheduler has 132 while a unit arrives. A unit of bf16 costs 20. The rest is the ends of a
//! kernel: some 4 µs each, and some 9 µs where tiles are cut between blocks.
//!
//! Subtracting 136 from every code (16 instructions) could be left to one product of the sum of the
//! input, but sums of `(128 + u)·x` are some 34 times as large as sums of `(u − 8)·x` where the
//! input has one sign: five bits of f32, more than the error that the evaluator's own f32 sums
//! have.
//!
//! With f32 weights or input ([`Variant::Fma`]) the same stream feeds multiply-adds: each lane has
//! the products of two rows of weights with 16 adjacent columns of all rows of input, and the four
//! lanes of a quad are added at the end.

mod direct;

use super::decode;
use super::input::{self, Staged};
use super::one_row;
use super::weights::Weights;
use super::work::{self, Block, Room, Share};
use super::{PhaseCx, Plan};
use crate::Source;
use crate::cx::Args;
use crate::mlir::{Builder, Cmp, Elem, F32, Memory, Ty, V, V4I32};
use crate::piece;
use llmcc_abi::layout::round_up;
use llmcc_ir::gpu::schedule::{self, Input, TILE_K, Variant};

/// Bytes at the start of shared memory for the word that tells all threads something.
const FLAG: usize = 16;

/// Offsets in shared memory.
struct Map {
    factors: usize,
    x: usize,
    sums: usize,
    spare: usize,
    rings: usize,
    bytes: usize,
}

impl Map {
    fn new(plan: &Plan<'_>, phases: &[PhaseCx<'_>]) -> Map {
        let s = &plan.schedule;
        let most = |f: &dyn Fn(&PhaseCx<'_>) -> usize| work::most(phases, f);
        let x = FLAG + input::factor_bytes(plan);
        let sums = x + input::bytes(plan);
        let spare_at = sums + most(&|p| schedule::sums_bytes(p.phase.parts, s.rows, &p.segments[0]));
        let rings = round_up(spare_at + work::spare_bytes(plan, phases), 16);
        let bytes = rings + if s.direct { 0 } else { most(&|p| s.warps * p.phase.stages * p.unit_bytes()) };
        Map { factors: FLAG, x, sums, spare: spare_at, rings, bytes }
    }

    /// Declares the layout of shared memory.
    fn declare(&self, b: &mut Builder, plan: &Plan<'_>, phases: &[PhaseCx<'_>]) {
        let of = |name, at, bytes| Memory { name, at, bytes, stages: 1, conflict_free: false, over: &[] };
        b.buffer(of("flag", 0, FLAG));
        b.buffer(of("factors", self.factors, self.x - self.factors));
        b.buffer(of("sums of warps", self.factors, self.x - self.factors));
        if plan.body.prologue.and_then(|p| p.norm).is_some_and(|norm| norm.center) {
            b.buffer(of("means", self.factors, self.x - self.factors));
        }
        b.buffer(of("input", self.x, self.sums - self.x));
        b.buffer(of("sums", self.sums, self.spare - self.sums));
        b.buffer(of("spare", self.spare, self.rings - self.spare));
        if !plan.schedule.direct {
            work::declare_rings(b, plan, phases, self.rings);
        }
    }
}

/// Bytes of shared memory of a block.
pub fn shared_bytes(plan: &Plan<'_>) -> usize {
    Map::new(plan, &plan.phases()).bytes
}

/// Emits the kernel.
pub fn emit(plan: &Plan<'_>) -> Source {
    let phases = plan.phases();
    let map = Map::new(plan, &phases);
    let declare = |b: &mut Builder| map.declare(b, plan, &phases);
    work::kernel(plan, &phases, map.bytes, declare, |b, args, block, i, p| {
        Stream { plan, p, args, block, map: &map }.emit(b, i == 0);
    })
}

/// A phase while it is emitted.
struct Stream<'a> {
    plan: &'a Plan<'a>,
    p: &'a PhaseCx<'a>,
    args: Args<'a>,
    block: Block,
    map: &'a Map,
}

/// A thread's place.
struct Thread<'a> {
    weights: Weights<'a>,
    /// Quad of the warp, and thread of the quad.
    g: V,
    t: V,
    /// Which column of warps, and which part of the units.
    column: V,
    part: V,
    /// Whether there is such a part.
    active: V,
    /// Start of the warp's ring.
    ring: V,
    share: Share,
    /// Input of the rows this thread multiplies, at its columns: one address, or one per row; for
    /// each place where it may be.
    x: Vec<Vec<V>>,
    /// Whether it is in the first place, if there are two.
    fits: Option<V>,
}

impl<'a> Stream<'a> {
    fn is_fma(&self) -> bool {
        self.plan.schedule.variant == Variant::Fma
    }

    fn emit(&self, b: &mut Builder, first: bool) {
        let s = &self.plan.schedule;
        let share = work::share(b, self.plan, self.p, &self.block);
        let staged = Staged { base: b.shared_in("input", self.map.x), stride: input::stride(self.plan) };
        let th = self.thread(b, share, staged);
        if !first {
            b.sync_warp();
        }
        let mine = b.add(share.lo, th.part);
        let q0 = b.select(th.active, mine, share.hi);
        // Weights are on their way before the kernels before have ended, whatever those compute.
        let carried = if s.direct { self.load_first(b, &th, q0) } else { self.fill(b, &th, q0) };
        if first {
            let ahead = one_row::ahead(b, self.plan, self.args);
            b.wait_for_inputs();
            self.stage(b, &th, staged, ahead);
        }
        self.tiles(b, &th, q0, &carried);
    }

    /// Starts copying the first units to the ring. Returns where the first unit is read in the ring, and
    /// where the next one is written.
    fn fill(&self, b: &mut Builder, th: &Thread<'_>, q0: V) -> Vec<V> {
        for i in 0..self.p.phase.stages as i64 - 1 {
            let q = b.addc(q0, i * self.p.phase.parts as i64);
            let slot = b.atc(th.ring, i * self.p.unit_bytes() as i64);
            self.fetch(b, th, q, slot);
        }
        let write = (self.p.phase.stages as i64 - 1) * self.p.unit_bytes() as i64;
        vec![b.i32(0), b.i32(write)]
    }

    /// Brings the input to shared memory, if it is to be there.
    fn stage(&self, b: &mut Builder, th: &Thread<'_>, staged: Staged, ahead: Option<one_row::Ahead>) {
        let (plan, args) = (self.plan, self.args);
        let (row0, rows) = (self.block.row0, self.block.rows);
        if input::staged_rows(plan) > 0 && input::is_copy(plan) {
            let copy = |b: &mut Builder| input::copy(b, plan, args, staged, row0, rows);
            match th.fits {
                Some(fits) => b.if_(fits, copy),
                None => copy(b),
            }
            b.cp_wait(0);
            b.barrier();
        } else if plan.schedule.input == Input::Whole {
            let factors = b.shared_in("factors", self.map.factors);
            let compute = |b: &mut Builder| input::compute(b, plan, args, staged, (row0, rows), factors);
            let Some(ahead) = ahead else { return compute(b) };
            let one = b.cmpc(Cmp::Eq, rows, 1);
            let alone = |b: &mut Builder| one_row::compute(b, plan, args, staged, row0, factors, &ahead);
            b.either(one, alone, compute);
        }
    }

    fn thread(&self, b: &mut Builder, share: Share, staged: Staged) -> Thread<'a> {
        let phase = self.p.phase;
        let tid = b.sreg("tid.x");
        let (warp, lane) = b.warp_and_lane(tid);
        let (g, t) = (b.shrc(lane, 2), b.andc(lane, 3));
        let part = b.divc(warp, phase.columns as i64);
        let skip = b.mulc(part, phase.columns as i64);
        let column = b.sub(warp, skip);
        let active = b.cmpc(Cmp::Slt, part, phase.parts as i64);
        let rings = b.shared_in(&work::ring_name(self.p), self.map.rings);
        let offset = b.mulc(warp, (phase.stages * self.p.unit_bytes()) as i64);
        let ring = b.at(rings, offset);
        let weights = Weights::new(b, self.plan, self.p, self.args, lane, column);
        let (x, fits) = match self.plan.schedule.input {
            Input::Fitting(most) => {
                let fits = b.cmpc(Cmp::Slt, self.block.rows, most as i64 + 1);
                (vec![self.input(b, staged, g, t, false), self.input(b, staged, g, t, true)], Some(fits))
            }
            input => (vec![self.input(b, staged, g, t, input == Input::Global)], None),
        };
        Thread { weights, g, t, column, part, active, ring, share, x, fits }
    }

    /// Addresses of a thread's operands: rows beyond the block's repeat the last one, and their
    /// results are not stored.
    fn input(&self, b: &mut Builder, staged: Staged, g: V, t: V, global: bool) -> Vec<V> {
        let last = b.addc(self.block.rows, -1);
        let rows: Vec<V> =
            if self.is_fma() { (0..self.plan.schedule.rows as i64).map(|r| b.i32(r)).collect() } else { vec![g] };
        let bytes = if global { self.stored().bytes() } else { input::elem_bytes(self.plan) };
        let columns = b.mulc(t, 16 * bytes as i64);
        rows.into_iter()
            .map(|r| {
                let r = b.min(r, last);
                let line = if global {
                    let r = b.add(self.block.row0, r);
                    input::row(b, self.plan, self.args, r)
                } else {
                    let skip = b.mulc(r, staged.stride as i64);
                    b.at(staged.base, skip)
                };
                b.at(line, columns)
            })
            .collect()
    }

    /// The type the input is read as.
    fn stored(&self) -> Elem {
        piece::storage(self.plan.cx.kernel.rows(self.plan.body.x).elem)
    }

    /// Starts copying unit `q` to `slot`, if it is one of this block's: always one group of copies.
    fn fetch(&self, b: &mut Builder, th: &Thread<'_>, q: V, slot: V) {
        let inside = b.cmp(Cmp::Slt, q, th.share.hi);
        b.if_(inside, |b| {
            let (tile, kt) = self.place(b, q);
            th.weights.fetch(b, tile, kt, slot);
        });
        b.cp_commit();
    }

    /// Output tile of unit `q`, and the unit's number in it.
    fn place(&self, b: &mut Builder, q: V) -> (V, V) {
        let tile = b.divc(q, self.plan.kt() as i64);
        let skip = b.mulc(tile, self.plan.kt() as i64);
        (tile, b.sub(q, skip))
    }

    /// The output tiles of the block's share: the first, and one past the last.
    fn range(&self, b: &mut Builder, share: Share) -> (V, V) {
        let kt = self.plan.kt() as i64;
        let (first, up) = (b.divc(share.lo, kt), b.addc(share.hi, kt - 1));
        let end = b.divc(up, kt);
        let some = b.cmp(Cmp::Slt, share.lo, share.hi);
        (first, b.select(some, end, first))
    }

    /// All output tiles of the block's share. `q0` is the warp's first unit; `carried` is the state that
    /// turns hand on beside the sums: positions in the ring, or the unit that was loaded.
    fn tiles(&self, b: &mut Builder, th: &Thread<'_>, q0: V, carried: &[V]) {
        let (kt, parts) = (self.plan.kt() as i64, self.p.phase.parts as i64);
        let (first, end) = self.range(b, th.share);
        let one = b.i32(1);
        let kept = 1 + carried.len();
        let init = [&[q0], carried].concat();
        b.for_((first, end, one), &init, |b, tile, carried| {
            let start = b.mulc(tile, kt);
            let tile_end = b.addc(start, kt);
            let end = b.min(tile_end, th.share.hi);
            let zero = b.f32(0.0);
            let mut init = carried.to_vec();
            init.extend(vec![zero; th.weights.strips().len() * self.sums_of_strip()]);
            let step = b.i32(parts);
            let units = |b: &mut Builder, x: &[V]| {
                b.for_((carried[0], end, step), &init, |b, q, carried| {
                    let turn = if self.plan.schedule.direct { Self::direct_turn } else { Self::ring_turn };
                    turn(self, b, (th, x), (q, start), &carried[1..])
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
            self.finish(b, th, tile, &out[kept..]);
            out[..kept].to_vec()
        });
    }

    /// Adds unit `q` of an output tile whose first unit is `start`, and starts the copy of a later one.
    /// `carried` is the positions of [`Stream::fill`], and the sums. Returns the warp's next unit, and the
    /// same anew.
    fn ring_turn(&self, b: &mut Builder, (th, x): (&Thread<'_>, &[V]), (q, start): (V, V), carried: &[V]) -> Vec<V> {
        let phase = self.p.phase;
        let unit = self.p.unit_bytes() as i64;
        let (read, write) = (carried[0], carried[1]);
        b.cp_wait(phase.stages - 2);
        // Scales were copied by other lanes, and the slot filled next was read by them.
        b.sync_warp();
        let ahead = b.addc(q, (phase.stages as i64 - 1) * phase.parts as i64);
        let slot = b.at(th.ring, write);
        self.fetch(b, th, ahead, slot);
        let slot = b.at(th.ring, read);
        let kt = b.sub(q, start);
        let mut next = vec![b.addc(q, phase.parts as i64)];
        for at in [read, write] {
            let up = b.addc(at, unit);
            let over = b.cmpc(Cmp::Sge, up, phase.stages as i64 * unit);
            let zero = b.i32(0);
            next.push(b.select(over, zero, up));
        }
        next.extend(self.unit(b, (th, x), slot, kt, &carried[2..]));
        next
    }

    /// Adds the sums of all warps, and makes results of them.
    fn finish(&self, b: &mut Builder, th: &Thread<'_>, tile: V, sums: &[V]) {
        b.if_(th.active, |b| self.store_sums(b, th, sums));
        let room = Room {
            sums: b.shared_in("sums", self.map.sums),
            spare: b.shared_in("spare", self.map.spare),
            flag: b.shared_in("flag", 0),
        };
        let whose = (&self.block, th.share, &room);
        work::finish(b, self.args, self.plan, self.p, whose, tile, self.p.phase.parts);
    }

    /// Sums that a lane keeps for a strip.
    fn sums_of_strip(&self) -> usize {
        if self.is_fma() { 2 * self.plan.schedule.rows } else { 4 }
    }

    /// Adds a unit in `slot`, column tile `kt`, to the sums.
    fn unit(&self, b: &mut Builder, (th, x): (&Thread<'_>, &[V]), slot: V, kt: V, sums: &[V]) -> Vec<V> {
        let n = self.sums_of_strip();
        let values = if self.is_fma() { self.f32_input(b, x, kt) } else { vec![] };
        let x = if self.is_fma() { vec![] } else { self.half_input(b, x, kt) };
        let mut out = vec![];
        for (i, (l, _)) in th.weights.strips().into_iter().enumerate() {
            let format = self.p.formats[l];
            let weights = th.weights.read(b, slot, i);
            let sums = &sums[i * n..][..n];
            out.extend(if self.is_fma() {
                decode::multiply_add(b, format, weights, &values, sums)
            } else {
                decode::multiply(b, format, decode::half(self.plan.elem), weights, &x, sums)
            });
        }
        out
    }

    /// The B operands of a unit: eight words, two for each of four steps.
    fn half_input(&self, b: &mut Builder, x: &[V], kt: V) -> Vec<V> {
        let offset = b.mulc(kt, TILE_K as i64 * 2);
        let p = b.at(x[0], offset);
        self.words(b, p, 2)
    }

    /// So many times 16 bytes of input.
    fn words(&self, b: &mut Builder, p: V, pieces: i64) -> Vec<V> {
        let mut out = vec![];
        for i in 0..pieces {
            let p = b.atc(p, 16 * i);
            let v = b.load(p, V4I32);
            out.extend(b.unpack(v));
        }
        out
    }

    /// 16 columns of all rows, as f32.
    fn f32_input(&self, b: &mut Builder, rows: &[V], kt: V) -> Vec<Vec<V>> {
        let stored = self.stored();
        let wide = self.plan.schedule.input == Input::Whole || stored == Elem::F32;
        let offset = b.mulc(kt, TILE_K as i64 * if wide { 4 } else { 2 });
        rows.iter()
            .map(|row| {
                let p = b.at(*row, offset);
                if wide {
                    let words = self.words(b, p, 4);
                    return words.into_iter().map(|w| b.bitcast(w, F32)).collect();
                }
                let words = self.words(b, p, 2);
                words.into_iter().flat_map(|w| input::halves(b, w, stored)).collect()
            })
            .collect()
    }

    /// Writes a warp's sums to shared memory.
    fn store_sums(&self, b: &mut Builder, th: &Thread<'_>, sums: &[V]) {
        let stride = schedule::sums_stride(&self.p.segments[0]) as i64;
        let rows = self.plan.schedule.rows.max(8) as i64;
        let base = b.shared_in("sums", self.map.sums);
        let skip = b.mulc(th.part, rows * stride * 4);
        let base = b.at(base, skip);
        let within = b.shlc(th.column, 4);
        let within = b.add(within, th.g);
        let n = self.sums_of_strip();
        for (i, (l, j)) in th.weights.strips().into_iter().enumerate() {
            let column = b.addc(within, (l * self.p.tile_n + j * self.p.phase.columns * 16) as i64);
            let offset = b.shlc(column, 2);
            let at = b.at(base, offset);
            let sums = &sums[i * n..][..n];
            if self.is_fma() {
                store_fma(b, th, at, stride, sums);
                continue;
            }
            // Sums 0 and 1: row g of the strip, rows 2t and 2t + 1 of the input; 2 and 3: row g +
            // 8.
            let skip = b.mulc(th.t, 2 * stride * 4);
            let at = b.at(at, skip);
            for (k, v) in sums.iter().enumerate() {
                let p = b.atc(at, (k % 2) as i64 * stride * 4 + (k / 2) as i64 * 32);
                b.store(*v, p);
            }
        }
    }
}

/// Adds the lanes of each quad and stores the sums of a strip, `[row of input][row g, row g + 8]`.
fn store_fma(b: &mut Builder, th: &Thread<'_>, at: V, stride: i64, sums: &[V]) {
    let sums: Vec<V> = sums.iter().map(|v| b.reduce(*v, &[1, 2], |b, x, y| b.fadd(x, y))).collect();
    let first = b.cmpc(Cmp::Eq, th.t, 0);
    b.if_(first, |b| {
        for (i, v) in sums.iter().enumerate() {
            let p = b.atc(at, (i / 2) as i64 * stride * 4 + (i % 2) as i64 * 32);
            b.store(*v, p);
        }
    });
}
