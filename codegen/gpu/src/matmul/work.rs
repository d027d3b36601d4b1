//! Which block computes which units, and how the sums of an output tile become its result.
//!
//! Blocks take contiguous shares of the units of a phase. An output tile that lies in one share is
//! finished by its block. One that is cut is finished by whichever block comes last: each stores
//! its partial sums in the workspace and counts itself; the last adds the partial sums in the order
//! of the blocks, so that results do not depend on who was last, and sets the counter back to 0.

use super::{PhaseCx, Plan};
use crate::cx::{Args, share_out};
use crate::epilogue::{self, Tile};
use crate::expr::{InputScales, RowScales, SharedTile};
use crate::mlir::{Builder, Cmp, F32, I32, Memory, V, WARP};
use crate::{COUNTER_BYTES, Source, blocks, per_rows};
use llmcc_ir::gpu::schedule::{self, Variant, sums_stride};

/// A block's place.
#[derive(Clone, Copy)]
pub struct Block {
    /// Its first row in the step.
    pub row0: V,
    /// Its rows inside the step, at least 1.
    pub rows: V,
    /// Number among the blocks that share the units.
    pub x: V,
    /// Which tile of rows.
    pub y: V,
}

/// A block's units of a phase: `lo..hi`.
#[derive(Clone, Copy)]
pub struct Share {
    pub lo: V,
    pub hi: V,
}

/// Which rows a block copies in the place of those beyond the step: all of its own alike. If it
/// were the last one only, all multiprocessors would ask one slice of the second-level cache for it
/// at once: 96 rows in a tile of 128 took longer than 128.
#[derive(Clone, Copy)]
pub struct Repeated {
    rows: V,
    /// The largest power of two that is not more than `rows`, less one.
    mask: V,
}

impl Repeated {
    /// For a block that has `rows` rows inside the step, at least 1 and at most `most`.
    pub fn new(b: &mut Builder, rows: V, most: usize) -> Repeated {
        let mut mask = b.i32(0);
        for power in (1..=most.ilog2()).map(|i| 1 << i) {
            let (enough, larger) = (b.cmpc(Cmp::Sge, rows, power), b.i32(power - 1));
            mask = b.select(enough, larger, mask);
        }
        Repeated { rows, mask }
    }

    /// The row that is copied to `row` of the block.
    pub fn source(self, b: &mut Builder, row: V) -> V {
        let (inside, other) = (b.cmp(Cmp::Slt, row, self.rows), b.and(row, self.mask));
        b.select(inside, row, other)
    }
}

/// Shared memory for finishing tiles.
#[derive(Clone, Copy)]
pub struct Room {
    /// Partial sums: `[parts][rows][columns + 4]` f32.
    pub sums: V,
    /// Shared memory that the epilogue may use.
    pub spare: V,
    /// A word that tells all threads something.
    pub flag: V,
}

/// The most of something that any phase needs: phases follow each other in the same shared memory.
pub fn most(phases: &[PhaseCx<'_>], f: impl Fn(&PhaseCx<'_>) -> usize) -> usize {
    phases.iter().map(f).max().unwrap_or(0)
}

/// Bytes of [`Room::spare`].
pub fn spare_bytes(plan: &Plan<'_>, phases: &[PhaseCx<'_>]) -> usize {
    let of = |p: &PhaseCx<'_>| {
        p.segments.iter().map(|s| epilogue::shared_bytes(plan.cx, s, plan.schedule.rows, p.tile_n)).max()
    };
    most(phases, |p| of(p).unwrap_or(0))
}

/// Name of the rings of weights of a phase.
pub fn ring_name(p: &PhaseCx<'_>) -> String {
    format!("rings of segment {}", p.phase.first)
}

/// Declares the rings of weights of all warps at byte `at`, phase by phase in the same place.
pub fn declare_rings(b: &mut Builder, plan: &Plan<'_>, phases: &[PhaseCx<'_>], at: usize) {
    let names: Vec<String> = phases.iter().map(ring_name).collect();
    for (i, p) in phases.iter().enumerate() {
        let over: Vec<&str> = names[..i].iter().map(|n| &n[..]).collect();
        let stages = plan.schedule.warps * p.phase.stages;
        b.buffer(Memory { name: &names[i], at, bytes: p.unit_bytes(), stages, conflict_free: false, over: &over });
    }
}

/// Bytes of a slot for partial sums in the workspace.
pub fn slot_bytes(plan: &Plan<'_>) -> usize {
    let columns = plan.schedule.phases.iter().filter(|p| p.cut).map(|p| {
        let s = &plan.body.segments[p.first];
        s.tile_n * s.weights.len()
    });
    columns.max().unwrap_or(0) * plan.schedule.rows * 4
}

/// Emits a kernel around its phases: a line of blocks for each tile of rows, each with `bytes` of
/// shared memory, which `declare` describes; blocks beyond the step return. `phase` emits a phase,
/// by its number, for a block.
pub fn kernel(
    plan: &Plan<'_>,
    phases: &[PhaseCx<'_>],
    bytes: usize,
    declare: impl FnOnce(&mut Builder),
    mut phase: impl FnMut(&mut Builder, Args<'_>, Block, usize, &PhaseCx<'_>),
) -> Source {
    block_kernel(plan, bytes, |b, args, block| {
        declare(b);
        phases.iter().enumerate().for_each(|(i, p)| phase(b, args, block, i, p));
    })
}

/// The same, with the block as a whole.
pub fn block_kernel(plan: &Plan<'_>, bytes: usize, body: impl FnOnce(&mut Builder, Args<'_>, Block)) -> Source {
    let s = &plan.schedule;
    let threads = (s.warps + s.producers) as u32 * WARP as u32;
    // Streams of weights begin before the kernels before have ended.
    let early = matches!(s.variant, Variant::Gemv | Variant::Fma);
    let (mlir, program) = plan.cx.function_that_waits(threads, s.resident as u32, |b, args| {
        if !early {
            b.wait_for_inputs();
        }
        let m = plan.cx.row_count(b, args);
        b.assume(m, &[1, s.rows as i64]);
        let (x, y) = (b.sreg("ctaid.x"), b.sreg("ctaid.y"));
        let row0 = b.mulc(y, s.rows as i64);
        let inside = b.cmp(Cmp::Slt, row0, m);
        let work = |b: &mut Builder| {
            let (mut x, mut y, mut row0) = (x, y, row0);
            if s.variant.is_wgmma() {
                (x, y) = grouped(b, plan, (x, y), m);
                row0 = b.mulc(y, s.rows as i64);
            }
            let left = b.sub(m, row0);
            let most = b.i32(s.rows as i64);
            let rows = b.min(left, most);
            body(b, args, Block { row0, rows, x, y });
        };
        if !early {
            return b.if_(inside, work);
        }
        // A kernel without work ends after those before, too.
        b.either(inside, work, Builder::wait_for_inputs);
    });
    let (scratch, scratch_per_m) = workspace(plan);
    Source {
        shared: bytes as u32,
        scratch,
        scratch_per_m,
        generic: s.slow,
        ..Source::new(plan.cx.entry(), (mlir, program), threads, [blocks(s.blocks), per_rows(s.rows), blocks(1)])
    }
}

/// Tiles of rows that neighbouring blocks go through before they come to the next columns.
const GROUP: i64 = 8;

/// Another order of the blocks of a step of `m` rows. Blocks start in the order of their numbers,
/// about one for each multiprocessor at a time: taking them in columns of [`GROUP`] tiles of rows,
/// those that run together read about as many rows of weights as of input, which is the least of
/// both; in lines they would read all weights for each tile of rows.
fn grouped(b: &mut Builder, plan: &Plan<'_>, (x, y): (V, V), m: V) -> (V, V) {
    let wide = plan.schedule.blocks as i64;
    let up = b.addc(m, plan.schedule.rows as i64 - 1);
    let tiles = b.divc(up, plan.schedule.rows as i64);
    let line = b.mulc(y, wide);
    let number = b.add(line, x);
    let group = b.divc(number, wide * GROUP);
    let skip = b.mulc(group, wide * GROUP);
    let within = b.sub(number, skip);
    let first = b.mulc(group, GROUP);
    let left = b.sub(tiles, first);
    let most = b.i32(GROUP);
    let height = b.min(left, most);
    let x = b.div(within, height);
    let skip = b.mul(x, height);
    let row = b.sub(within, skip);
    (x, b.add(first, row))
}

/// Workspace: `(bytes, bytes per row)`. Two slots per block of every tile of rows: where a share ends
/// in one tile and begins in another; with `wgmma`, whose blocks have a part of one tile, one.
fn workspace(plan: &Plan<'_>) -> (u64, u64) {
    let slots = if plan.schedule.variant.is_wgmma() { 1 } else { 2 };
    let tile = slots * plan.schedule.blocks as u64 * slot_bytes(plan) as u64;
    if tile == 0 { (0, 0) } else { (COUNTER_BYTES as u64 + tile, tile.div_ceil(plan.schedule.rows as u64)) }
}

/// Equal shares of `n` items: `(share of the first blocks, how many have one item more)`.
fn shares(plan: &Plan<'_>, n: usize) -> (i64, i64) {
    ((n / plan.schedule.blocks) as i64, (n % plan.schedule.blocks) as i64)
}

/// Tiles of rows for whose output tiles there are counters; those of further ones are not cut.
pub fn counted(plan: &Plan<'_>) -> i64 {
    let most = COUNTER_BYTES / 4 / plan.schedule.blocks;
    plan.cx.target.wish.counted.map_or(most, |wished| wished.min(most)) as i64
}

/// The units of a block.
pub fn share(b: &mut Builder, plan: &Plan<'_>, p: &PhaseCx<'_>, block: &Block) -> Share {
    let kt = plan.kt() as i64;
    let items = if p.phase.cut { p.phase.tiles * plan.kt() } else { p.phase.tiles };
    let (each, more) = shares(plan, items);
    let bound = |b: &mut Builder, x: V| {
        let more = b.i32(more);
        let extra = b.min(x, more);
        let start = b.mulc(x, each);
        b.add(start, extra)
    };
    let lo = bound(b, block.x);
    let next = b.addc(block.x, 1);
    let hi = bound(b, next);
    if !p.phase.cut {
        return Share { lo: b.mulc(lo, kt), hi: b.mulc(hi, kt) };
    }
    let beyond = b.cmpc(Cmp::Uge, block.y, counted(plan));
    let whole = |b: &mut Builder, q: V| {
        let up = b.addc(q, kt - 1);
        let tile = b.divc(up, kt);
        let rounded = b.mulc(tile, kt);
        b.select(beyond, rounded, q)
    };
    Share { lo: whole(b, lo), hi: whole(b, hi) }
}

/// The block that has unit `q`.
fn owner(b: &mut Builder, plan: &Plan<'_>, p: &PhaseCx<'_>, q: V) -> V {
    let (each, more) = shares(plan, p.phase.tiles * plan.kt());
    let border = more * (each + 1);
    let early = b.divc(q, each + 1);
    let past = b.addc(q, -border);
    let late = b.divc(past, each.max(1));
    let late = b.addc(late, more);
    let first = b.cmpc(Cmp::Slt, q, border);
    b.select(first, early, late)
}

/// Finishes output tile `t` of a phase, whose units `share` this block has; partial sums of all
/// parts are in shared memory, not yet visible to all.
pub fn finish(
    b: &mut Builder,
    args: Args<'_>,
    plan: &Plan<'_>,
    p: &PhaseCx<'_>,
    (block, share, room): (&Block, Share, &Room),
    t: V,
    parts: usize,
) {
    b.barrier();
    let first_unit = b.mulc(t, plan.kt() as i64);
    let end_unit = b.addc(first_unit, plan.kt() as i64);
    if parts > 1 {
        add_parts(b, plan, p, block, room, parts);
    }
    if !p.phase.cut {
        return result(b, args, plan, p, block, room, t);
    }
    let starts = b.cmp(Cmp::Sge, first_unit, share.lo);
    let before = b.cmp(Cmp::Slt, share.hi, end_unit);
    let yes = b.yes();
    let ends = b.xor(before, yes);
    let whole = b.and(starts, ends);
    let mine = b.if_else(
        whole,
        &[crate::mlir::I1],
        |_| vec![yes],
        |b| {
            let tail = b.zext(starts, I32);
            vec![join(b, args, plan, p, (block, room), (first_unit, end_unit), tail)]
        },
    );
    b.if_(mine[0], |b| result(b, args, plan, p, block, room, t));
}

/// Runs `body(address of the sum, row, column)` for the elements of a tile of sums.
fn each_sum(
    b: &mut Builder,
    plan: &Plan<'_>,
    p: &PhaseCx<'_>,
    block: &Block,
    room: &Room,
    body: impl FnOnce(&mut Builder, V, V),
) {
    let columns = p.columns();
    let n = b.mulc(block.rows, columns as i64);
    share_out(b, n, plan.threads(), |b, i| {
        let row = b.divc(i, columns as i64);
        // Rows are padded by 4.
        let skip = b.shlc(row, 2);
        let index = b.add(i, skip);
        let offset = b.shlc(index, 2);
        let at = b.at(room.sums, offset);
        b.apart(|b| body(b, at, i));
    });
}

/// Adds the sums of all parts to the first part's, in order.
fn add_parts(b: &mut Builder, plan: &Plan<'_>, p: &PhaseCx<'_>, block: &Block, room: &Room, parts: usize) {
    let stride = (plan.schedule.rows.max(8) * sums_stride(&p.segments[0]) * 4) as i64;
    each_sum(b, plan, p, block, room, |b, at, _| {
        let values: Vec<V> = (0..parts as i64)
            .map(|part| {
                let from = b.atc(at, part * stride);
                b.load(from, F32)
            })
            .collect();
        let sum = values[1..].iter().fold(values[0], |acc, v| b.fadd(acc, *v));
        b.store(sum, at);
    });
    b.barrier();
}

/// Stores this block's partial sums and counts it; the last block of the tile adds all. Returns
/// whether this is the last (for all threads).
fn join(
    b: &mut Builder,
    args: Args<'_>,
    plan: &Plan<'_>,
    p: &PhaseCx<'_>,
    (block, room): (&Block, &Room),
    (first_unit, end_unit): (V, V),
    tail: V,
) -> V {
    let blocks = plan.schedule.blocks as i64;
    let slot = slot_bytes(plan) as i64;
    let base = b.atc(args.workspace(), COUNTER_BYTES as i64);
    let line = b.mulc(block.y, blocks);
    let slot_of = |b: &mut Builder, x: V, tail: V| {
        let index = b.add(line, x);
        let index = b.shlc(index, 1);
        let index = b.add(index, tail);
        let index = b.zext(index, crate::mlir::I64);
        let offset = b.mulc(index, slot);
        b.at(base, offset)
    };
    let own = slot_of(b, block.x, tail);
    each_sum(b, plan, p, block, room, |b, at, i| {
        let v = b.load(at, F32);
        let offset = b.shlc(i, 2);
        let to = b.at(own, offset);
        b.store(v, to);
    });
    b.barrier();
    let from = owner(b, plan, p, first_unit);
    let last_unit = b.addc(end_unit, -1);
    let to = owner(b, plan, p, last_unit);
    // The counter of the tile is that of the block it starts in: no two cut tiles start in one.
    let index = b.add(line, from);
    let offset = b.shlc(index, 2);
    let counter = b.at(args.workspace(), offset);
    let tid = b.sreg("tid.x");
    let one_thread = b.cmpc(Cmp::Eq, tid, 0);
    b.if_(one_thread, |b| {
        let n = b.asm_volatile(I32, "atom.acq_rel.gpu.global.add.u32 $0, [$1], 1;", "=r,l,~{memory}", &[counter]);
        b.store(n, room.flag);
    });
    b.barrier();
    let before = b.load(room.flag, I32);
    let others = b.sub(to, from);
    let last = b.cmp(Cmp::Eq, before, others);
    b.if_(last, |b| {
        each_sum(b, plan, p, block, room, |b, at, i| {
            let (zero, one, end) = (b.f32(0.0), b.i32(1), b.addc(to, 1));
            let offset = b.shlc(i, 2);
            let sum = b.for_((from, end, one), &[zero], |b, x, acc| {
                // The tile is the last of the block it starts in, the first of the others.
                let start = b.cmp(Cmp::Eq, x, from);
                let tail = b.zext(start, I32);
                let slot = slot_of(b, x, tail);
                let p = b.at(slot, offset);
                let v = b.load(p, F32);
                vec![b.fadd(acc[0], v)]
            });
            b.store(sum[0], at);
        });
        b.if_(one_thread, |b| {
            let zero = b.i32(0);
            b.store(zero, counter);
        });
        b.barrier();
    });
    last
}

/// The epilogue of output tile `t`, by the segment it lies in.
pub fn result(b: &mut Builder, args: Args<'_>, plan: &Plan<'_>, p: &PhaseCx<'_>, block: &Block, room: &Room, t: V) {
    let stride = sums_stride(&p.segments[0]);
    for (i, s) in p.segments.iter().enumerate() {
        let one = |b: &mut Builder| {
            let local = b.addc(t, -(p.starts[i] as i64));
            let col0 = b.mulc(local, p.tile_n as i64);
            let (end, most) = (b.i32(s.n as i64), b.i32(p.tile_n as i64));
            let left = b.sub(end, col0);
            let cols = b.min(left, most);
            let lane = |l: usize| {
                let (format, matrix) = (p.formats[l], args.operand(s.weights[l]));
                let scale =
                    schedule::is_fp8(format).then(|| RowScales { base: matrix, block: format.block_bytes(plan.k) });
                let row_scale = plan.is_fp8().then(|| InputScales { base: args.operand(plan.body.x), cols: plan.k });
                SharedTile { base: b.atc(room.sums, (l * p.tile_n * 4) as i64), stride, scale, row_scale }
            };
            let acc: Vec<SharedTile> = (0..p.lanes()).map(lane).collect();
            let tile = Tile {
                acc: &acc,
                row0: block.row0,
                rows: block.rows,
                max_rows: plan.schedule.rows,
                col0,
                cols,
                max_cols: p.tile_n,
                spare: room.spare,
                threads: plan.threads(),
                slots: None,
            };
            epilogue::run(plan.cx, b, args, s, &tile);
        };
        if p.segments.len() == 1 {
            one(b);
        } else {
            let from = b.cmpc(Cmp::Sge, t, p.starts[i] as i64);
            let to = b.cmpc(Cmp::Slt, t, p.starts[i + 1] as i64);
            let inside = b.and(from, to);
            b.if_(inside, one);
        }
    }
    b.barrier();
}
