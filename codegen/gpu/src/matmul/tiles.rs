//! Products of many rows by `mma.sync`: tiles of input in shared memory, weights in rings of their
//! warps.
//!
//! A block of 8 warps computes 128 columns (of all lanes) for 16 to 128 rows of input. Warps divide
//! columns and rows: a warp holds up to four strips of 16 columns and up to 64 rows. Up to 32 rows
//! those with the same strips divide the columns of the input instead: a step is then of as many
//! column tiles, each warp takes one with all rows, and their sums are added at the end. So each
//! strip is fetched and decoded once, not once for every part of the rows; with 4-bit weights that
//! was half of the instructions a scheduler can issue while they arrive. Every step of 64 columns
//! of input is copied by all threads into one of several stages, with a barrier per step; the
//! weights come in fragment order through rings, as in [`stream`](super::stream), and need no
//! barrier of their own.
//!
//! Rows of a stage are 128 bytes; lane (g, t) reads two pieces of 16 bytes, `2t` and `2t + 1`, of
//! row `g`: eight lanes that read at once have two rows and four pieces. Exchanging the pieces of a
//! pair in odd rows puts them in eight different groups of banks.
//!
//! Rows of fp8 are 64 bytes, and stored in the order of the operands: lane t of a quad has the
//! words of four columns each at `4t` of all four pieces, which are exchanged between pairs of
//! rows.
//!
//! Up to 64 rows the kernel is bound by weights: copies go on into the next output tile while one
//! is finished, and tiles may be cut between blocks. More rows are bound by arithmetic: the sums
//! then take the place of the stages, and the next output tile starts afresh; so they do where
//! shared memory is short.

use super::decode::{self, Scaling};
use super::weights::Weights;
use super::work::{self, Block, Repeated, Room, Share};
use super::{PhaseCx, Plan, input};
use crate::Source;
use crate::cx::Args;
use crate::mlir::{Builder, Cache, Cmp, Elem, I32, Memory, V, V4I32, WARP};
use llmcc_abi::layout::round_up;
use llmcc_ir::gpu::schedule::{self, TILE_K};

/// Bytes of a row of 16-bit input in a stage.
pub(super) const ROW: usize = TILE_K * 2;

/// Bytes of a row in a stage.
pub(super) fn line(plan: &Plan<'_>) -> usize {
    TILE_K * input::elem_bytes(plan)
}

/// Whether fp8 rows are multiplied as they are; else both operands become f16, which holds their
/// products' factors exactly.
pub(super) fn multiplies_bytes(plan: &Plan<'_>) -> bool {
    plan.is_fp8() && plan.cx.gpu.has_fp8_mma()
}

/// Offsets in shared memory.
struct Map {
    x: usize,
    rings: usize,
    sums: usize,
    spare: usize,
    bytes: usize,
}

impl Map {
    fn new(plan: &Plan<'_>, phases: &[PhaseCx<'_>]) -> Map {
        let s = &plan.schedule;
        let most = |f: &dyn Fn(&PhaseCx<'_>) -> usize| work::most(phases, f);
        let stages = most(&|p| p.phase.stages);
        // Before the stages, a word that tells all threads something.
        let x = 128;
        let rings = x + stages * s.depth * s.rows * line(plan);
        let end = rings + most(&|p| s.warps * p.phase.stages * p.unit_bytes());
        let sums = if s.apart { round_up(end, 16) } else { x };
        let spare_at = round_up(sums + most(&|p| schedule::sums_bytes(s.depth, s.rows, &p.segments[0])), 16);
        Map { x, rings, sums, spare: spare_at, bytes: end.max(spare_at + work::spare_bytes(plan, phases)) }
    }

    /// Declares the layout of shared memory.
    fn declare(&self, b: &mut Builder, plan: &Plan<'_>, phases: &[PhaseCx<'_>]) {
        let of = |name, at, bytes, stages| Memory { name, at, bytes, stages, conflict_free: false, over: &[] };
        let stage = plan.schedule.depth * plan.schedule.rows * line(plan);
        b.buffer(of("flag", 0, self.x, 1));
        b.buffer(Memory { conflict_free: true, ..of("input", self.x, stage, (self.rings - self.x) / stage) });
        work::declare_rings(b, plan, phases, self.rings);
        let names: Vec<String> = phases.iter().map(work::ring_name).chain(["input".into()]).collect();
        let all: Vec<&str> = names.iter().map(|n| &n[..]).collect();
        let over = if plan.schedule.apart { &[][..] } else { &all };
        b.buffer(Memory { over, ..of("sums", self.sums, self.spare - self.sums, 1) });
        b.buffer(Memory { over, ..of("spare", self.spare, work::spare_bytes(plan, phases), 1) });
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
        Tiles { plan, p, args, block, map: &map }.emit(b, i == 0);
    })
}

/// A phase while it is emitted.
struct Tiles<'a> {
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
    column: V,
    /// Which part of the rows, or which column tile of a unit, the warp has; whether there is such
    /// a part.
    part: V,
    active: V,
    ring: V,
    share: Share,
    /// Its copies of a stage: addresses of the pieces in the input's first columns, and in the
    /// stage.
    copies: Vec<(V, V)>,
    /// Where it reads in a stage: the two pieces of its row that have its 16 columns; the words of
    /// four columns each, of fp8 rows.
    x: Vec<V>,
}

impl<'a> Tiles<'a> {
    /// Groups of 8 rows that a warp multiplies.
    fn groups(&self) -> usize {
        let warps = if self.is_deep() { 1 } else { self.p.phase.parts };
        (self.plan.schedule.rows / 8).div_ceil(warps)
    }

    /// Whether warps with the same strips share out the columns of the input, not its rows.
    fn is_deep(&self) -> bool {
        self.plan.schedule.depth > 1
    }

    /// Whether every warp has a part.
    fn all_active(&self) -> bool {
        self.p.phase.columns * self.p.phase.parts >= self.plan.schedule.warps
    }

    /// Bytes of the input of a column tile in a stage, and of the whole stage.
    fn tile_bytes(&self) -> i64 {
        self.plan.schedule.rows as i64 * self.line()
    }

    fn stage_bytes(&self) -> i64 {
        self.plan.schedule.depth as i64 * self.tile_bytes()
    }

    /// Where a part's own begins: its column tile, of `tile` bytes, or its rows, of `row` bytes
    /// each.
    fn part_at(&self, b: &mut Builder, part: V, tile: i64, row: i64) -> V {
        b.mulc(part, if self.is_deep() { tile } else { self.groups() as i64 * 8 * row })
    }

    fn stages(&self) -> i64 {
        self.p.phase.stages as i64
    }

    /// Whether copies go on into the next output tile.
    fn goes_on(&self) -> bool {
        self.plan.schedule.apart
    }

    fn emit(&self, b: &mut Builder, first: bool) {
        let share = work::share(b, self.plan, self.p, &self.block);
        let th = self.thread(b, share);
        if !first {
            b.barrier();
        }
        if self.goes_on() {
            self.start(b, &th, share.lo, share.hi);
        }
        self.tiles(b, &th);
    }

    fn thread(&self, b: &mut Builder, share: Share) -> Thread<'a> {
        let phase = self.p.phase;
        let tid = b.sreg("tid.x");
        let (warp, lane) = b.warp_and_lane(tid);
        let (g, t) = (b.shrc(lane, 2), b.andc(lane, 3));
        let part = b.divc(warp, phase.columns as i64);
        let skip = b.mulc(part, phase.columns as i64);
        let column = b.sub(warp, skip);
        let active = b.cmpc(Cmp::Slt, part, phase.parts as i64);
        // A warp without a part repeats the last warp's work, and throws it away.
        let part = if self.all_active() {
            part
        } else {
            let last = b.i32(phase.parts as i64 - 1);
            b.min(part, last)
        };
        let rings = b.shared_in(&work::ring_name(self.p), self.map.rings);
        let offset = b.mulc(warp, self.stages() * self.p.unit_bytes() as i64);
        let ring = b.at(rings, offset);
        let weights = Weights::new(b, self.plan, self.p, self.args, lane, column);
        let copies = self.copies(b, tid);
        // Row g of the warp's first group of rows.
        let own = self.part_at(b, part, self.tile_bytes(), self.line());
        let line = b.mulc(g, self.line());
        let line = b.add(own, line);
        let x = self.reads(b, line, g, t);
        Thread { weights, g, t, column, part, active, ring, share, copies, x }
    }

    /// Bytes of a row in a stage.
    fn line(&self) -> i64 {
        line(self.plan) as i64
    }

    fn is_fp8(&self) -> bool {
        self.plan.is_fp8()
    }

    /// Where a thread reads in a stage, in its row at `row`.
    fn reads(&self, b: &mut Builder, row: V, g: V, t: V) -> Vec<V> {
        if self.is_fp8() {
            // Piece i has the columns 16t + 4i… of all lanes t of a quad.
            let swizzle = b.shrc(g, 1);
            let swizzle = b.andc(swizzle, 3);
            let word = b.shlc(t, 2);
            let own = b.add(row, word);
            let at = |i| {
                let piece = b.xorc(swizzle, i);
                let piece = b.shlc(piece, 4);
                b.add(own, piece)
            };
            return (0..4).map(at).collect();
        }
        // Pieces 2t and 2t + 1, exchanged in odd rows.
        let odd = b.andc(g, 1);
        let swap = b.shlc(odd, 4);
        let own = b.shlc(t, 5);
        let own = b.add(row, own);
        let flipped = b.xorc(swap, 16);
        vec![b.add(own, swap), b.add(own, flipped)]
    }

    /// The pieces of a stage that a thread copies.
    fn copies(&self, b: &mut Builder, tid: V) -> Vec<(V, V)> {
        let threads = self.plan.schedule.warps * WARP;
        let repeated = Repeated::new(b, self.block.rows, self.plan.schedule.rows);
        let (pieces, of_tile) = (self.line() / 16, self.tile_bytes() / 16);
        (0..self.pieces().div_ceil(threads))
            .map(|i| {
                let n = b.addc(tid, (i * threads) as i64);
                // Column tile, row and piece of 16 bytes.
                let (tile, n) = if self.is_deep() { (b.divc(n, of_tile), b.remc(n, of_tile)) } else { (b.i32(0), n) };
                let (row, piece) = (b.shrc(n, pieces.trailing_zeros().into()), b.andc(n, pieces - 1));
                let source = repeated.source(b, row);
                let source = b.add(self.block.row0, source);
                let from = input::row(b, self.plan, self.args, source);
                let (column, offset) = (b.mulc(tile, self.line()), b.shlc(piece, 4));
                let offset = b.add(column, offset);
                let from = b.at(from, offset);
                let swizzle = if self.is_fp8() {
                    let pair = b.shrc(row, 1);
                    b.andc(pair, 3)
                } else {
                    b.andc(row, 1)
                };
                let place = b.xor(piece, swizzle);
                let (tile, line) = (b.mulc(tile, self.tile_bytes()), b.mulc(row, self.line()));
                let line = b.add(tile, line);
                let place = b.shlc(place, 4);
                (from, b.add(line, place))
            })
            .collect()
    }

    /// Pieces of 16 bytes of the input of a stage.
    fn pieces(&self) -> usize {
        self.stage_bytes() as usize / 16
    }

    /// Starts copying the first units from `q` on.
    fn start(&self, b: &mut Builder, th: &Thread<'_>, q: V, end: V) {
        for i in 0..self.stages() - 1 {
            let q = b.addc(q, i);
            let stage = b.i32(i);
            self.fetch(b, th, q, end, stage);
        }
    }

    /// Starts copying unit `q` to a stage, if it is before `end`: always one group of copies.
    fn fetch(&self, b: &mut Builder, th: &Thread<'_>, q: V, end: V, stage: V) {
        let inside = b.cmp(Cmp::Slt, q, end);
        b.if_(inside, |b| {
            let tile = b.divc(q, self.plan.kt() as i64);
            let skip = b.mulc(tile, self.plan.kt() as i64);
            let kt = b.sub(q, skip);
            let depth = self.plan.schedule.depth as i64;
            let base = b.shared_in("input", self.map.x);
            let to = b.mulc(stage, self.stage_bytes());
            let to = b.at(base, to);
            let column = b.mulc(kt, depth * self.line());
            let pieces = self.pieces();
            let threads = self.plan.schedule.warps * WARP;
            for (i, (from, at)) in th.copies.iter().enumerate() {
                let copy = |b: &mut Builder| {
                    let (from, to) = (b.at(*from, column), b.at(to, *at));
                    b.cp_async(to, from, Cache::L2);
                };
                if (i + 1) * threads <= pieces {
                    copy(b);
                } else {
                    let tid = b.sreg("tid.x");
                    let some = b.cmpc(Cmp::Slt, tid, (pieces - i * threads) as i64);
                    b.if_(some, copy);
                }
            }
            let skip = b.mulc(stage, self.p.unit_bytes() as i64);
            let slot = b.at(th.ring, skip);
            let kt = if self.is_deep() {
                let first = b.mulc(kt, depth);
                b.add(first, th.part)
            } else {
                kt
            };
            th.weights.fetch(b, tile, kt, slot);
        });
        b.cp_commit();
    }

    /// The stage after `stage`.
    fn next(&self, b: &mut Builder, stage: V) -> V {
        let up = b.addc(stage, 1);
        let over = b.cmpc(Cmp::Sge, up, self.stages());
        let zero = b.i32(0);
        b.select(over, zero, up)
    }

    fn tiles(&self, b: &mut Builder, th: &Thread<'_>) {
        let kt = self.plan.kt() as i64;
        let (first, up) = (b.divc(th.share.lo, kt), b.addc(th.share.hi, kt - 1));
        let end = b.divc(up, kt);
        let some = b.cmp(Cmp::Slt, th.share.lo, th.share.hi);
        let end = b.select(some, end, first);
        let (read, write, one) = (b.i32(0), b.i32(self.stages() - 1), b.i32(1));
        b.for_((first, end, one), &[th.share.lo, read, write], |b, tile, carried| {
            let start = b.mulc(tile, kt);
            let tile_end = b.addc(start, kt);
            let end = b.min(tile_end, th.share.hi);
            let (limit, stages) = if self.goes_on() {
                (th.share.hi, [carried[1], carried[2]])
            } else {
                self.start(b, th, carried[0], end);
                (end, [read, write])
            };
            let zero = b.f32(0.0);
            let mut init = stages.to_vec();
            init.extend(vec![zero; th.weights.strips().len() * self.groups() * 4]);
            let out = b.for_((carried[0], end, one), &init, |b, q, carried| {
                let (read, write) = (carried[0], carried[1]);
                b.cp_wait(self.p.phase.stages - 2);
                b.barrier();
                let ahead = b.addc(q, self.stages() - 1);
                self.fetch(b, th, ahead, limit, write);
                let mut next = vec![self.next(b, read), self.next(b, write)];
                next.extend(self.unit(b, th, read, &carried[2..]));
                next
            });
            if !self.goes_on() {
                // Sums take the place of the stages.
                b.cp_wait(0);
                b.barrier();
            }
            b.if_(th.active, |b| self.store_sums(b, th, &out[2..]));
            let room = Room {
                sums: b.shared_in("sums", self.map.sums),
                spare: b.shared_in("spare", self.map.spare),
                flag: b.shared_in("flag", 0),
            };
            let whose = (&self.block, th.share, &room);
            work::finish(b, self.args, self.plan, self.p, whose, tile, self.plan.schedule.depth);
            vec![end, out[0], out[1]]
        });
    }

    /// Adds the unit in a stage to the sums, `[strip][group of rows][4]`.
    fn unit(&self, b: &mut Builder, th: &Thread<'_>, stage: V, sums: &[V]) -> Vec<V> {
        let half: Elem = decode::half(self.plan.elem);
        let bytes = multiplies_bytes(self.plan);
        let skip = b.mulc(stage, self.p.unit_bytes() as i64);
        let slot = b.at(th.ring, skip);
        let strips = th.weights.strips();
        let mut a: Vec<Vec<[V; 4]>> = vec![];
        for (i, (l, _)) in strips.iter().enumerate() {
            let format = self.p.formats[*l];
            let (words, scales) = th.weights.read(b, slot, i);
            if bytes {
                a.push(words.chunks_exact(4).map(|w| [w[0], w[1], w[2], w[3]]).collect());
                continue;
            }
            let mut fragments = decode::fragments(b, format, half, &words);
            if let (Scaling::Weights, Some(s)) = (decode::scaling(format, false), scales) {
                decode::scale_weights(b, format, &mut fragments, s, half);
            }
            a.push(fragments.to_vec());
        }
        let base = b.shared_in("input", self.map.x);
        let skip = b.mulc(stage, self.stage_bytes());
        let base = b.at(base, skip);
        let mut out = sums.to_vec();
        for group in 0..self.groups() {
            let x = self.input(b, th, base, group, bytes);
            for step in 0..a[0].len() {
                for (i, a) in a.iter().enumerate() {
                    let at = (i * self.groups() + group) * 4;
                    let (a, x, c) = (&a[step], &x[2 * step..][..2], &out[at..at + 4]);
                    let c = if bytes { b.mma_e4m3(a, x, c) } else { b.mma(half, a, x, c) };
                    out[at..at + 4].copy_from_slice(&c);
                }
            }
        }
        out
    }

    /// The B operands of a unit of a group of rows, two words for each step.
    fn input(&self, b: &mut Builder, th: &Thread<'_>, base: V, group: usize, bytes: bool) -> Vec<V> {
        let mut out = vec![];
        for at in &th.x {
            let p = b.at(base, *at);
            let p = b.atc(p, group as i64 * 8 * self.line());
            if !self.is_fp8() {
                let v = b.load(p, V4I32);
                out.extend(b.unpack(v));
                continue;
            }
            let word = b.load(p, I32);
            if bytes { out.push(word) } else { out.extend(decode::fp8_word(b, decode::half(self.plan.elem), word)) }
        }
        out
    }

    /// Writes a warp's sums to shared memory, `[row][column]`; where warps have shared out columns
    /// of the input, `[part][row][column]`.
    fn store_sums(&self, b: &mut Builder, th: &Thread<'_>, sums: &[V]) {
        let stride = schedule::sums_stride(&self.p.segments[0]) as i64;
        let base = b.shared_in("sums", self.map.sums);
        let own = self.part_at(b, th.part, self.plan.schedule.rows as i64 * stride, stride);
        let line = b.mulc(th.t, 2 * stride);
        let line = b.add(own, line);
        let within = b.shlc(th.column, 4);
        let within = b.add(within, th.g);
        let index = b.add(line, within);
        let offset = b.shlc(index, 2);
        let at = b.at(base, offset);
        for (i, (l, j)) in th.weights.strips().into_iter().enumerate() {
            let column = (l * self.p.tile_n + j * self.p.phase.columns * 16) as i64;
            for group in 0..self.groups() {
                let sums = &sums[(i * self.groups() + group) * 4..][..4];
                for (k, v) in sums.iter().enumerate() {
                    let row = group as i64 * 8 + (k % 2) as i64;
                    let p = b.atc(at, (row * stride + column + 8 * (k / 2) as i64) * 4);
                    b.store(*v, p);
                }
            }
        }
    }
}
