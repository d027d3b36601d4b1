//! Products of fp8 weights with fp8 rows, for prompts, by `wgmma` (sm_90a): 128 columns (of all lanes) by 128 or 256 rows of input per block.
//!
//! Nothing is decoded. A lane's piece of 16 bytes of weights in fragment order is its A operand of a step of 32 columns; input is the B operand, in shared memory in lines of 128 bytes
//! (a **turn**: two units) with the 128-byte swizzle. Fragment order has permuted the columns, and [fp8 rows](llmcc_abi::layout::Fp8Row) are stored permuted in the same
//! way, so that copies of 16 bytes (`cp.async`) go straight from memory to their places.
//!
//! One barrier per turn orders it all. Turn `i` of a thread: its copies of turn `i` land, and it makes them visible to the asynchronous proxy; it loads its weights, which it copied
//! itself, to registers; it meets the others, starts the products, starts copying turn `i + stages − 1`, and waits for the products. What it then overwrites was
//! last read by the products of turn `i − 1`, which every group had finished when it came to the barrier of turn `i`.
//!
//! Sums are f32 (the hardware keeps fewer bits while it adds the 32 products of a step); the scales of both operands are the epilogue's.
//!
//! Registers: 128 sums for 256 rows, 16 of weights, 16 of addresses; 256 threads may have 255 each.

use super::warpgroup::{self, Step};
use super::weights::Weights;
use super::work::{self, Block, Room, Share};
use super::{PhaseCx, Plan, input};
use crate::Source;
use crate::cx::Args;
use crate::mlir::{Builder, Cache, Cmp, V};
use llmcc_abi::layout::round_up;
use llmcc_codegen::CodegenError;
use llmcc_ir::gpu::program::{Atom, Buffer, Condition, Index, Op, Pattern, Recorder, Scope, Slot, Source as From, Sync, Trips};
use llmcc_ir::gpu::schedule::{self, FP8_TURN};

/// Bytes of a row in a stage: a turn.
const LINE: usize = 128;
/// Units of a turn, and the `wgmma` steps of 32 columns in it.
const UNITS: usize = FP8_TURN / schedule::TILE_K;
const STEPS: usize = FP8_TURN / 32;
/// Shared memory starts with a word that tells all threads something; stages are aligned to 1024 bytes, as the swizzle wants.
const STAGES_AT: usize = 1024;

/// Offsets in shared memory: stages, then rings; the sums take the place of both.
struct Map {
    rings: usize,
    spare: usize,
    bytes: usize,
}

impl Map {
    fn new(plan: &Plan<'_>, phases: &[PhaseCx<'_>]) -> Map {
        let s = plan.schedule;
        let most = |f: &dyn Fn(&PhaseCx<'_>) -> usize| work::most(phases, f);
        let rings = STAGES_AT + most(&|p| p.phase.stages) * s.rows * LINE;
        let end = rings + most(&|p| s.warps * p.phase.stages * slot_bytes(p));
        let spare_at = round_up(STAGES_AT + most(&|p| schedule::sums_bytes(1, s.rows, &p.segments[0])), 16);
        Map { rings, spare: spare_at, bytes: end.max(spare_at + work::spare_bytes(plan, phases)) }
    }
}

/// Bytes of a turn of a warp's weights.
fn slot_bytes(p: &PhaseCx<'_>) -> usize {
    UNITS * schedule::unit_bytes(p.formats[0])
}

/// Emits the kernel.
///
/// # Errors
/// Operands of the wrong kind, or more shared memory than there is.
pub fn emit(plan: &Plan<'_>) -> Result<Source, CodegenError> {
    let phases = plan.phases()?;
    let map = Map::new(plan, &phases);
    work::kernel(plan, &phases, map.bytes, |b, args, block, _, p| Product { plan, p, args, block, map: &map }.emit(b))
}

/// The skeleton of a phase.
pub fn program(r: &mut Recorder, plan: &Plan<'_>, p: &PhaseCx<'_>) {
    let (stages, rows) = (p.phase.stages as i64, plan.schedule.rows);
    let buffer = |name: &str, bytes: usize, scope| Buffer {
        name: name.into(),
        bytes: bytes as u32,
        stages: stages as u32,
        scope,
        conflict_free: true,
    };
    let ring = r.buffer(buffer("ring", slot_bytes(p), Scope::Warp));
    let sums_bytes = schedule::sums_bytes(1, rows, &p.segments[0]);
    let sums = r.buffer(Buffer { stages: 1, ..buffer("sums", sums_bytes, Scope::Block) });
    let x = r.buffer(buffer("input", rows * LINE, Scope::Block));
    let (acc, a) = (r.registers("sums"), r.registers("weights"));
    let at = |buffer, stage| Slot { buffer, stage };
    let k = r.declare_loop("turns");
    let ahead = |r: &mut Recorder, index: Index| {
        r.begin_if(Condition::Within(index, k));
        [x, ring].into_iter().for_each(|c| r.op(Op::CpAsync(at(c, index))));
        r.end_if();
        r.op(Op::CpCommit);
    };
    (0..stages - 1).for_each(|i| ahead(r, Index::at(i)));
    r.begin_loop(k, Trips::Some);
    r.op(Op::CpWait(stages as u32 - 2));
    r.op(Op::FenceAsync);
    let lanes = Pattern { lanes: (0..32).map(|l| 16 * l).collect(), width: 16 };
    r.op(Op::Read { slot: at(ring, Index::turn(k, 0)), pattern: Some(lanes), own: true });
    r.op(Op::RegisterWrite(a));
    r.op(Op::Barrier(Sync::Block));
    r.op(Op::WgmmaFence);
    for _ in 0..STEPS {
        r.op(Op::Wgmma(Atom::M64K32(rows as u32), acc, From::Registers(a), at(x, Index::turn(k, 0))));
    }
    r.op(Op::WgmmaCommit);
    ahead(r, Index::turn(k, stages - 1));
    r.op(Op::WgmmaWait(0));
    r.end_loop();
    r.op(Op::CpWait(0));
    r.op(Op::Barrier(Sync::Block));
    super::program::finish(r, plan, p, acc, sums);
}

/// A phase while it is emitted.
struct Product<'a> {
    plan: &'a Plan<'a>,
    p: &'a PhaseCx<'a>,
    args: Args<'a>,
    block: Block,
    map: &'a Map,
}

/// What a thread knows of itself.
struct Thread<'a> {
    weights: Weights<'a>,
    warp: V,
    lane: V,
    ring: V,
    share: Share,
    /// Pieces of the input that it copies: where each starts in the first turn, and its place in a stage.
    pieces: Vec<(V, V)>,
}

/// A place in one of several buffers: the turns go round.
fn next(b: &mut Builder, stage: V, stages: usize) -> V {
    let up = b.addc(stage, 1);
    let over = b.cmpc(Cmp::Sge, up, stages as i64);
    let zero = b.i32(0);
    b.select(over, zero, up)
}

impl<'a> Product<'a> {
    fn rows(&self) -> usize {
        self.plan.schedule.rows
    }

    /// Turns of an output tile.
    fn turns(&self) -> i64 {
        (self.plan.kt() / UNITS) as i64
    }

    fn emit(&self, b: &mut Builder) -> Result<(), CodegenError> {
        let share = work::share(b, self.plan, self.p, &self.block);
        let tid = b.sreg("tid.x");
        let (warp, lane) = (b.shrc(tid, 5), b.andc(tid, 31));
        let rings = b.shared_at(self.map.rings);
        let offset = b.mulc(warp, (self.p.phase.stages * slot_bytes(self.p)) as i64);
        let ring = b.at(rings, offset);
        let weights = Weights::single(b, self.plan, self.p, self.args, lane, warp);
        let pieces = self.pieces(b, tid)?;
        let th = Thread { weights, warp, lane, ring, share, pieces };
        let kt = self.plan.kt() as i64;
        let (first, end, one) = (b.divc(share.lo, kt), b.divc(share.hi, kt), b.i32(1));
        let mut done = Ok(());
        b.for_((first, end, one), &[], |b, tile, _| {
            done = self.tile(b, &th, tile);
            vec![]
        });
        done
    }

    /// What a thread copies of a stage: piece `n mod 8` of row `n / 8`, for `n` = its number and further ones. Rows beyond those of the step repeat the last one.
    fn pieces(&self, b: &mut Builder, tid: V) -> Result<Vec<(V, V)>, CodegenError> {
        let threads = self.plan.schedule.warps * 32;
        let last = b.addc(self.block.rows, -1);
        (0..self.rows() * 8 / threads)
            .map(|i| {
                let n = b.addc(tid, (i * threads) as i64);
                let (row, piece) = (b.shrc(n, 3), b.andc(n, 7));
                let source = b.min(row, last);
                let source = b.add(self.block.row0, source);
                let from = input::row(b, self.plan, self.args, source)?;
                let offset = b.shlc(piece, 4);
                let from = b.at(from, offset);
                let (line, swizzle) = (b.shlc(row, 7), b.andc(row, 7));
                let place = b.xor(piece, swizzle);
                let place = b.shlc(place, 4);
                Ok((from, b.add(line, place)))
            })
            .collect()
    }

    /// Starts copying turn `turn`, if there is one: always one group of copies.
    fn fetch(&self, b: &mut Builder, th: &Thread<'_>, tile: V, turn: V, stage: V) {
        let inside = b.cmpc(Cmp::Slt, turn, self.turns());
        b.if_(inside, |b| {
            let column = b.mulc(turn, LINE as i64);
            let base = b.shared_at(STAGES_AT);
            let skip = b.mulc(stage, (self.rows() * LINE) as i64);
            let base = b.at(base, skip);
            for (from, place) in &th.pieces {
                let (from, to) = (b.at(*from, column), b.at(base, *place));
                b.cp_async(to, from, Cache::L2);
            }
            let skip = b.mulc(stage, slot_bytes(self.p) as i64);
            let slot = b.at(th.ring, skip);
            let first = b.mulc(turn, UNITS as i64);
            for u in 0..UNITS {
                let (kt, slot) = (b.addc(first, u as i64), b.atc(slot, (u * schedule::unit_bytes(self.p.formats[0])) as i64));
                th.weights.fetch(b, tile, kt, slot);
            }
        });
        b.cp_commit();
    }

    fn tile(&self, b: &mut Builder, th: &Thread<'_>, tile: V) -> Result<(), CodegenError> {
        let stages = self.p.phase.stages;
        for i in 0..stages - 1 {
            let (turn, stage) = (b.i32(i as i64), b.i32(i as i64));
            self.fetch(b, th, tile, turn, stage);
        }
        let (zero, one, end) = (b.i32(0), b.i32(1), b.i32(self.turns()));
        let write = b.i32(stages as i64 - 1);
        let nothing = b.f32(0.0);
        // Stages to read and to fill, sums.
        let mut init = vec![zero, write];
        init.extend(vec![nothing; self.rows() / 2]);
        let out = b.for_((zero, end, one), &init, |b, turn, carried| {
            let (read, write) = (carried[0], carried[1]);
            b.cp_wait(stages - 2);
            b.fence_proxy_async();
            let a = self.weights(b, th, read);
            b.barrier();
            let sums = self.multiply(b, read, &a, &carried[2..]);
            let ahead = b.addc(turn, stages as i64 - 1);
            self.fetch(b, th, tile, ahead, write);
            let sums = warpgroup::wait_all(b, &sums, &a);
            let mut out = vec![next(b, read, stages), next(b, write, stages)];
            out.extend(sums);
            out
        });
        // Sums take the place of the stages.
        b.cp_wait(0);
        b.barrier();
        let at = b.shared_at(STAGES_AT);
        warpgroup::store_sums(b, self.p, at, (th.warp, th.lane), &out[2..]);
        let room = Room { sums: b.shared_at(STAGES_AT), spare: b.shared_at(self.map.spare), flag: b.shared_at(0) };
        work::finish(b, self.args, self.plan, self.p, (&self.block, th.share, &room), tile, 1)
    }

    /// The warp's A operands of a turn: four words for each step.
    fn weights(&self, b: &mut Builder, th: &Thread<'_>, stage: V) -> Vec<V> {
        let skip = b.mulc(stage, slot_bytes(self.p) as i64);
        let slot = b.at(th.ring, skip);
        let mut out = vec![];
        for u in 0..UNITS {
            let slot = b.atc(slot, (u * schedule::unit_bytes(self.p.formats[0])) as i64);
            out.extend(th.weights.read(b, slot, 0).0);
        }
        out
    }

    /// Starts the products of a turn.
    fn multiply(&self, b: &mut Builder, stage: V, a: &[V], sums: &[V]) -> Vec<V> {
        let base = b.shared_at(STAGES_AT);
        let skip = b.mulc(stage, (self.rows() * LINE) as i64);
        let input = b.at(base, skip);
        warpgroup::start(b, &Step { shape: "k32.f32.e4m3.e4m3", order: "" }, input, a, sums)
    }
}
