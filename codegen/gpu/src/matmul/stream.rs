//! Products of at most 8 rows: weights streamed past the input. Bound by memory, so everything
//! serves the stream.
//!
//! Each warp has a ring of units in shared memory ([`ring`]): a unit is one or several adjacent column
//! tiles of its strips. No registers are held by what is under way, no other warp need be waited for,
//! and copying goes on across output tiles while their sums are joined and stored. On sm90 one lane
//! starts a unit's copies in bulk, and the ring is full before the kernels before have ended: weights
//! are no results. Where rows of input are staged, they take the end of the ring's place, so that a
//! single row leaves the most to weights.
//!
//! Arithmetic of an H200: 4.27 TB/s measured, 132 multiprocessors at 1.75 GHz: 32 KB/µs each, and
//! some 0.7 µs of latency ask for 23 KB under way at every moment; what is prefetched before a kernel's
//! input is there hides as much of its start as it has bytes. At that rate four schedulers issue 132
//! instructions while a 4-bit unit of 544 bytes (groups of 128) arrives; counted in the machine code
//! are those of `tests/tests/snapshots/gpu_kernels__hot_loops_sm90.snap`: 17 `LOP3`, 14 shifts and 18
//! subtractions to decode, 4 `mma`, 6 to scale, and loads; places in rings are computed once for all
//! tiles of a unit.
//!
//! Subtracting 136 from every code (16 instructions) could be left to one product of the sum of the
//! input, but sums of `(128 + u)·x` are some 34 times as large as those of `(u − 8)·x` where the
//! input has one sign: five bits of f32, more than the error that the evaluator's own f32 sums
//! have.
//!
//! With f32 weights or input ([`Variant::Fma`]) the same stream feeds multiply-adds: each lane has
//! the products of two rows of weights with 16 adjacent columns of all rows of input, and the four
//! lanes of a quad are added at the end.

mod ring;

use super::decode;
use super::input::{self, Staged};
use super::weights::Weights;
use super::work::{self, Block, Room, Share};
use super::{PhaseCx, Plan};
use crate::Source;
use crate::cx::Args;
use crate::mlir::{Builder, Cmp, Elem, F32, Memory, Ty, V, V4I32};
use crate::piece;
use crate::ring::Turn;
use llmcc_abi::layout::round_up;
use llmcc_ir::gpu::schedule::{self, Input, TILE_K, Variant};

/// Bytes at the start of shared memory for the word that tells all threads something.
const FLAG: usize = 16;

/// Offsets in shared memory.
struct Map {
    /// `mbarrier`s of the rings, phase by phase; the last is the end.
    barriers: Vec<usize>,
    factors: usize,
    sums: usize,
    spare: usize,
    /// Rings, and rows of input at their end.
    rings: usize,
    bytes: usize,
}

impl Map {
    fn new(plan: &Plan<'_>, phases: &[PhaseCx<'_>]) -> Map {
        let most = |f: &dyn Fn(&PhaseCx<'_>) -> usize| work::most(phases, f);
        let mut barriers = vec![FLAG];
        for p in phases {
            barriers.push(barriers[barriers.len() - 1] + ring::barrier_bytes(plan, p));
        }
        let factors = round_up(barriers[barriers.len() - 1], 16);
        let sums = factors + input::factor_bytes(plan);
        let rows = plan.schedule.rows;
        let spare_at = sums + most(&|p| schedule::sums_bytes(p.phase.parts, rows, &p.segments[0]));
        let rings = round_up(spare_at + work::spare_bytes(plan, phases), 128);
        Map { barriers, factors, sums, spare: spare_at, rings, bytes: rings + ring::room(plan, phases) }
    }

    /// Says what lies where.
    fn declare(&self, b: &mut Builder, plan: &Plan<'_>, phases: &[PhaseCx<'_>]) {
        let of = |name, at, bytes| Memory { name, at, bytes, stages: 1, conflict_free: false, over: &[] };
        b.buffer(of("flag", 0, FLAG));
        b.buffer(of("factors", self.factors, self.sums - self.factors));
        b.buffer(of("sums of warps", self.factors, self.sums - self.factors));
        if plan.body.prologue.and_then(|p| p.norm).is_some_and(|norm| norm.center) {
            b.buffer(of("means", self.factors, self.sums - self.factors));
        }
        b.buffer(of("sums", self.sums, self.spare - self.sums));
        b.buffer(of("spare", self.spare, self.rings - self.spare));
        b.buffer(of("input", self.rings, self.bytes - self.rings));
        let stages: Vec<usize> = phases.iter().map(|p| ring::most_stages(plan, p)).collect();
        work::declare_rings(b, plan, phases, (self.rings, &stages));
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
    let declare = |b: &mut Builder| {
        map.declare(b, plan, &phases);
        ring::initialize(b, plan, &phases, &map.barriers);
    };
    work::kernel(plan, &phases, map.bytes, declare, |b, args, block, i, p| {
        Stream { plan, p, args, block, map: &map, barriers: map.barriers[i] }.emit(b, i == 0);
    })
}

/// A phase while it is emitted.
struct Stream<'a> {
    plan: &'a Plan<'a>,
    p: &'a PhaseCx<'a>,
    args: Args<'a>,
    block: Block,
    map: &'a Map,
    /// Where its `mbarrier`s are.
    barriers: usize,
}

/// What a thread knows of itself.
struct Thread<'a> {
    weights: Weights<'a>,
    lane: V,
    /// Quad of the warp, and thread of the quad.
    g: V,
    t: V,
    warp: V,
    column: V,
    /// Which part of the units the warp has, and whether there is such a part.
    part: V,
    active: V,
    share: Share,
    /// Where it finds its columns of each row of the input: in one place, or in two.
    x: Vec<Vec<V>>,
    /// Whether it is in the first place, if there are two.
    fits: Option<V>,
    /// Stages of the ring.
    stages: V,
}

impl<'a> Stream<'a> {
    fn is_fma(&self) -> bool {
        self.plan.schedule.variant == Variant::Fma
    }

    fn emit(&self, b: &mut Builder, first: bool) {
        let s = &self.plan.schedule;
        let share = work::share(b, self.plan, self.p, &self.block);
        let staged = self.staged(b);
        let th = self.thread(b, share, staged);
        if !first {
            b.sync_warp();
        }
        let mine = b.add(share.lo, th.part);
        let q0 = b.select(th.active, mine, share.hi);
        // Weights are on their way before the kernels before have ended, whatever those compute.
        self.fill(b, &th, q0);
        if first {
            b.wait_for_inputs();
        }
        let copied = first && input::staged_rows(self.plan) > 0 && input::is_copy(self.plan);
        let rows = (self.block.row0, self.block.rows);
        let copy = |b: &mut Builder| input::copy(b, self.plan, self.args, staged, rows.0, rows.1);
        match th.fits {
            Some(fits) if copied => b.if_(fits, copy),
            None if copied => copy(b),
            _ => {}
        }
        if copied {
            b.cp_wait(0);
            b.barrier();
        } else if first && s.input == Input::Whole {
            let factors = b.shared_in("factors", self.map.factors);
            input::compute(b, self.plan, self.args, staged, rows, factors);
        }
        self.tiles(b, &th, q0);
    }

    /// Rows of input that are staged, at the end of shared memory.
    fn staged(&self, b: &mut Builder) -> Staged {
        let stride = input::stride(self.plan);
        let base = b.shared_in("input", self.map.rings);
        let end = b.i32((self.map.bytes - self.map.rings) as i64);
        let bytes = b.mulc(self.block.rows, stride as i64);
        let skip = b.sub(end, bytes);
        Staged { base: b.at(base, skip), stride }
    }

    fn thread(&self, b: &mut Builder, share: Share, staged: Staged) -> Thread<'a> {
        let phase = self.p.phase;
        let tid = b.sreg("tid.x");
        let (warp, lane) = (b.shrc(tid, 5), b.andc(tid, 31));
        let (g, t) = (b.shrc(lane, 2), b.andc(lane, 3));
        let part = b.divc(warp, phase.columns as i64);
        let skip = b.mulc(part, phase.columns as i64);
        let column = b.sub(warp, skip);
        let active = b.cmpc(Cmp::Slt, part, phase.parts as i64);
        let weights = Weights::new(b, self.plan, self.p, self.args, lane, column);
        let (x, fits) = match self.plan.schedule.input {
            Input::Fitting(most) => {
                let fits = b.cmpc(Cmp::Slt, self.block.rows, most as i64 + 1);
                (vec![self.input(b, staged, g, t, false), self.input(b, staged, g, t, true)], Some(fits))
            }
            input => (vec![self.input(b, staged, g, t, input == Input::Global)], None),
        };
        let stages = self.stages(b, fits);
        Thread { weights, lane, g, t, warp, column, part, active, share, x, fits, stages }
    }

    /// Addresses of what a thread multiplies with: rows beyond those of the block repeat the last
    /// one, and what comes of them is not stored.
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

    /// As what the input is read.
    fn stored(&self) -> Elem {
        piece::storage(self.plan.cx.kernel.rows(self.plan.body.x).elem)
    }

    /// All output tiles of the block's share.
    fn tiles(&self, b: &mut Builder, th: &Thread<'_>, q0: V) {
        let kt = self.plan.kt() as i64;
        let (first, up) = (b.divc(th.share.lo, kt), b.addc(th.share.hi, kt - 1));
        let end = b.divc(up, kt);
        let some = b.cmp(Cmp::Slt, th.share.lo, th.share.hi);
        let end = b.select(some, end, first);
        let (start, one) = (Turn::start(b), b.i32(1));
        let init = [&[q0][..], &start.values()].concat();
        b.for_((first, end, one), &init, |b, tile, carried| {
            let start = b.mulc(tile, kt);
            let tile_end = b.addc(start, kt);
            let end = b.min(tile_end, th.share.hi);
            let zero = b.f32(0.0);
            let sums = th.weights.strips().len() * self.sums_of_strip();
            let mut init = carried.to_vec();
            init.extend(vec![zero; sums]);
            let step = b.i32(self.p.phase.parts as i64);
            let units = |b: &mut Builder, x: &[V]| {
                b.for_((carried[0], end, step), &init, |b, q, carried| self.turn(b, (th, x), (q, start), carried))
            };
            let out = match th.fits {
                None => units(b, &th.x[0]),
                // The same twice, so that neither has to ask where its input is.
                Some(fits) => {
                    let types: Vec<Ty> = init.iter().map(|v| v.ty).collect();
                    b.if_else(fits, &types, |b| units(b, &th.x[0]), |b| units(b, &th.x[1]))
                }
            };
            b.if_(th.active, |b| self.store_sums(b, th, &out[3..]));
            let room = Room {
                sums: b.shared_in("sums", self.map.sums),
                spare: b.shared_in("spare", self.map.spare),
                flag: b.shared_in("flag", 0),
            };
            let whose = (&self.block, th.share, &room);
            work::finish(b, self.args, self.plan, self.p, whose, tile, self.p.phase.parts);
            out[..3].to_vec()
        });
    }

    /// A turn of the ring: unit `q` of an output tile whose first is `start`. `carried` is the unit, the
    /// turn, and the sums.
    fn turn(&self, b: &mut Builder, (th, x): (&Thread<'_>, &[V]), (q, start): (V, V), carried: &[V]) -> Vec<V> {
        let turn = Turn::of(&carried[1..]);
        self.await_unit(b, th, turn);
        let slot = self.slot(b, th, turn.stage);
        let kt = b.sub(q, start);
        let sums = self.unit(b, (th, x), slot, kt, &carried[3..]);
        // All lanes have read the slot.
        b.sync_warp();
        let skip = b.mulc(th.stages, self.p.phase.parts as i64);
        let ahead = b.add(q, skip);
        self.refill(b, th, ahead, turn.stage);
        let mut next = vec![b.addc(q, self.p.phase.parts as i64)];
        let up = b.addc(turn.stage, 1);
        let over = b.cmp(Cmp::Sge, up, th.stages);
        let (zero, other) = (b.i32(0), b.xorc(turn.parity, 1));
        next.push(b.select(over, zero, up));
        next.push(b.select(over, other, turn.parity));
        next.extend(sums);
        next
    }

    /// Sums that a lane keeps for a strip.
    fn sums_of_strip(&self) -> usize {
        if self.is_fma() { 2 * self.plan.schedule.rows } else { 4 }
    }

    /// Adds unit `kt` of a tile, which is in `slot`, to the sums.
    fn unit(&self, b: &mut Builder, (th, x): (&Thread<'_>, &[V]), slot: V, kt: V, sums: &[V]) -> Vec<V> {
        let tiles = self.p.tiles;
        let first = b.mulc(kt, tiles as i64);
        let mut sums = sums.to_vec();
        for j in 0..tiles {
            let kt = b.addc(first, j as i64);
            sums = self.column_tile(b, (th, x), (slot, j), kt, &sums);
        }
        sums
    }

    /// Adds column tile `kt`, number `j` of the unit in `slot`, to the sums.
    fn column_tile(
        &self,
        b: &mut Builder,
        (th, x): (&Thread<'_>, &[V]),
        (slot, j): (V, usize),
        kt: V,
        sums: &[V],
    ) -> Vec<V> {
        let n = self.sums_of_strip();
        let values = if self.is_fma() { self.f32_input(b, x, kt) } else { vec![] };
        let x = if self.is_fma() { vec![] } else { self.half_input(b, x, kt) };
        let mut out = vec![];
        for (i, (l, _)) in th.weights.strips().into_iter().enumerate() {
            let format = self.p.formats[l];
            let weights = th.weights.read(b, slot, i, j);
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
