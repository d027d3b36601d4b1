//! Attention of any number of tokens over wide heads, on tensor cores: latent caches (keys that end
//! with the values), keys and values of different width, heads above 256, selected rows.
//!
//! One warp has no registers for weighted values of 16 rows of 512 columns. So the warps of a team,
//! eight or four, share the *columns*, not the pages: of every page, each warp multiplies its part of
//! the queries' columns with its part of the keys, and weighs its part of the values. Partial scores
//! of a tile (one page or two) go through shared memory, every warp adds them up in the order of the
//! warps, and all have the same probabilities then, in the registers where `P·V` wants them. That is
//! one barrier per tile.
//!
//! In a latent cache a warp's part of the values is its part of those columns as keys too, so only
//! partial scores in shared memory are read by two warps: every warp copies its own part, through a
//! ring of its own as in [`decode`](super::decode), and pages come from the cache once for all
//! rows.
//!
//! # What it costs
//!
//! Latent, 576/512, tiles of 32 tokens: of its part of the scores a warp has 20 products and of the
//! values 16. Two warps of a scheduler take 1,152 cycles for them on an H200 (16 each), beside which
//! about 300 instructions of each are issued: about 1,300 cycles per tile and multiprocessor, during
//! which 37 KB come: 28 bytes per cycle, where 17.6 are a multiprocessor's part of the bandwidth.
//!
//! 4096 tokens of 16 heads are two units of 33 chunks, four tiles each: 3 µs. The sums of a chunk
//! of eight heads have 16 KB, so that the last block of a unit reads 540 KB: about 6 µs. With 16
//! heads in a unit it would read twice as much, while half as many blocks work. With 128 heads,
//! eight units read the same pages, mostly from the second-level cache. Nothing of this has been
//! measured.
//!
//! # Where things lie
//!
//! A warp's part of a page: its steps of 16 columns of the part stored as keys (lines of 16 tokens,
//! 32 bytes, whose halves change places in every other four lines), then its columns of the values,
//! a line per token, an odd number of 16-byte pieces apart. Steps of keys are dealt to the warps in
//! turns; a warp that has one less than others multiplies the last one by zeros.
//!
//! A selection's pages are of 16 selected rows, which come from anywhere: values line by line, keys
//! element by element, through registers, while a tile is multiplied.

use super::results::{Results, joined_bytes, slot_floats};
use super::selected::{Chosen, page_and_line};
use super::shape::{Range, Rows, Shape};
use super::share::{Item, Split};
use super::split::Chunks;
use super::tiles::{Lane, State, Tile};
use crate::Source;
use crate::cx::{Args, Cx};
use crate::mlir::{Builder, Cache, Cmp, Elem, I16, I32, I64, Memory, Ty, V, WARP};
use crate::ring;
use llmcc_abi::PAGE_TOKENS;

/// Most columns of a value: an eighth of 16 rows takes 32 registers.
const MAX_VALUES: usize = 512;
/// Units of a token from which on a unit has 16 query heads. Below, it has eight: of few, the chunks
/// of a lone long context would be added up by too few blocks.
const MANY_UNITS: usize = 4;
/// Most steps of 16 columns that a warp multiplies for scores; their queries take four registers
/// each.
const MAX_STEPS: usize = 12;
/// Most bytes of chunks in the workspace.
const MAX_SCRATCH: usize = 160 << 20;
/// Pages of a tile, and tiles of a warp's ring: the first that fits.
const CHOICES: [(usize, usize); 4] = [(2, 3), (2, 2), (1, 3), (1, 2)];

/// How it is done.
#[derive(Clone, Copy)]
pub(super) struct WidePlan {
    /// Warps of a team: each has an equal part of the columns.
    warps: usize,
    /// The shape of a warp's products; `d`: its columns of the values.
    tile: Tile,
    /// Steps of 16 columns that are stored as keys, of all warps and of each.
    own: usize,
    steps: usize,
    /// Whether the values are keys too.
    latent: bool,
    rows: usize,
    pages: usize,
    stages: usize,
}

impl WidePlan {
    /// `None` if only the plain kernel will do.
    pub(super) fn new(cx: &Cx<'_>, shape: &Shape) -> Option<WidePlan> {
        let (elem, spec) = (shape.in_halves()?, &shape.spec);
        let of_rows = spec.every == 1 || shape.selected.is_some();
        let suits = of_rows && spec.own_dim().is_multiple_of(16) && spec.value_dim <= MAX_VALUES;
        let warps = [8, 4].into_iter().find(|w| spec.value_dim.is_multiple_of(16 * w))?;
        let own = spec.own_dim() / 16;
        let steps = own.div_ceil(warps);
        let of_values = if spec.latent { spec.value_dim / 16 / warps } else { 0 };
        if !suits || steps + of_values > MAX_STEPS {
            return None;
        }
        let plan = |rows: usize, (pages, stages): (usize, usize)| {
            let halves = if rows > 8 { 2 } else { 1 };
            let tile = Tile { elem, int8: false, d: spec.value_dim / warps, tiles: 1, halves, scores: shape.scores };
            WidePlan { warps, tile, own, steps, latent: spec.latent, rows, pages, stages }
        };
        let most = if shape.group >= 16 * MANY_UNITS { 16 } else { 8 };
        let rows = (1..=shape.group.min(most)).rev().filter(|r| shape.group.is_multiple_of(*r));
        rows.flat_map(|rows| CHOICES.map(|c| plan(rows, c))).find(|p| p.bytes(shape) <= cx.shared_limit())
    }

    /// Bytes of a warp's part of a page.
    fn page_bytes(&self) -> usize {
        self.key_bytes() + PAGE_TOKENS * self.tile.v_stride()
    }

    fn key_bytes(&self) -> usize {
        self.steps * 16 * PAGE_TOKENS * 2
    }

    fn stage_bytes(&self) -> usize {
        self.pages * self.page_bytes()
    }

    fn ring_bytes(&self) -> usize {
        self.warps * self.stages * self.stage_bytes()
    }

    /// Bytes of the partial scores of a tile: four of each lane of each warp, for eight tokens each.
    fn score_bytes(&self) -> usize {
        self.warps * self.pages * 2 * WARP * 16
    }

    /// Shared memory beside the results.
    fn shared(&self) -> usize {
        self.ring_bytes() + 2 * self.score_bytes()
    }

    fn bytes(&self, shape: &Shape) -> usize {
        self.shared() + joined_bytes(1, self.rows, shape.spec.value_dim)
    }

    fn split(&self, cx: &Cx<'_>, shape: &Shape) -> (Split, u32) {
        let resident = (cx.gpu.shared_per_sm as usize / (self.bytes(shape) + 1024)).clamp(1, 2) as u32;
        let units = shape.spec.kv_heads * (shape.group / self.rows);
        let split = Split::new(cx.gpu, resident, units, (self.rows, self.warps as u32), self.shared());
        let room = MAX_SCRATCH / (split.blocks * slot_floats(self.rows, shape.spec.value_dim) * 4);
        (Split { parts: 1, most: split.most.min(room.max(1)), ..split }, resident)
    }
}

/// Emits the kernel.
pub(super) fn emit(cx: &Cx<'_>, shape: &Shape, plan: &WidePlan) -> Source {
    let (split, resident) = plan.split(cx, shape);
    split.emit(cx, shape, None, resident, |b, args, item, chunks| attend(b, shape, plan, (args, item, chunks)))
}

/// Emits a team's work on an item.
fn attend(b: &mut Builder, shape: &Shape, plan: &WidePlan, (args, item, chunks): (Args<'_>, &Item, &Chunks<'_>)) {
    let walk = WideWalk::new(b, shape, plan, args, item);
    let q = walk.queries(b);
    let carried = walk.start(b);
    chunks.each(b, &carried, |b, pages, carried, results| {
        let (state, next) = walk.chunk(b, &q, pages, carried);
        walk.leave(b, &state, results);
        next
    });
}

/// Where the values of 16 rows lie.
#[derive(Clone, Copy)]
enum Lines {
    /// In a page, so many bytes from the first one.
    Page(V),
    /// Each in a slot of the pool that two lanes know.
    Own(V),
}

/// A warp's walk over the pages of an item.
struct WideWalk<'a> {
    shape: &'a Shape,
    plan: &'a WidePlan,
    args: Args<'a>,
    item: &'a Item,
    lane: Lane,
    warp: V,
    /// The warp's ring.
    ring: V,
    /// The lane's place in partial scores of the first warp; the warp's own come after it.
    scores: V,
    mine: V,
    /// Row of the block table.
    table: V,
    /// The rows of a selection.
    chosen: Option<Chosen>,
    /// The keys and the values of the item's KV head in page 0 of the pool.
    keys: V,
    values: V,
}

impl<'a> WideWalk<'a> {
    fn new(b: &mut Builder, shape: &'a Shape, plan: &'a WidePlan, args: Args<'a>, item: &'a Item) -> WideWalk<'a> {
        let lane = Lane::of_thread(b, &plan.tile, item.team.thread);
        let warp = b.warp_of(item.team.thread);
        let of = |name, at, bytes, stages| Memory { name, at, bytes, stages, conflict_free: false, over: &[] };
        b.buffer(of("rings of warps", 0, plan.stage_bytes(), plan.warps * plan.stages));
        b.buffer(of("partial scores", plan.ring_bytes(), plan.score_bytes(), 2));
        let (ring, offset) = (b.shared(), b.mulc(warp, (plan.stages * plan.stage_bytes()) as i64));
        let ring = b.at(ring, offset);
        let (scores, offset) = (b.shared_at(plan.ring_bytes()), b.shlc(lane.lane, 4));
        let scores = b.at(scores, offset);
        let mine = b.mulc(warp, (plan.score_bytes() / plan.warps) as i64);
        let seq = args.seq(b, item.token);
        let table = args.table(b, seq);
        let chosen = Chosen::new(b, shape.selected, args, (item, table));
        let skip = b.mulc(item.kv_head, (shape.spec.own_dim() * PAGE_TOKENS * 2) as i64);
        let keys = b.at(args.operand(shape.kv), skip);
        let skip = b.mulc(item.kv_head, (shape.spec.value_dim * PAGE_TOKENS * 2) as i64);
        let values = b.atc(args.operand(shape.kv), shape.page.v as i64);
        let values = b.at(values, skip);
        WideWalk { shape, plan, args, item, lane, warp, ring, scores, mine, table, chosen, keys, values }
    }

    fn range(&self) -> Range {
        Range { first: self.item.first, count: self.item.seen }
    }

    /// The warp's step `i` of the part stored as keys; beyond the last, the last.
    fn step(&self, b: &mut Builder, i: usize) -> V {
        let (step, last) = (b.addc(self.warp, (i * self.plan.warps) as i64), b.i32(self.plan.own as i64 - 1));
        b.min(step, last)
    }

    /// The left operands of the warp's steps: of keys, then of values.
    fn queries(&self, b: &mut Builder) -> Vec<Vec<V>> {
        let (plan, shape) = (self.plan, self.shape);
        let heads: Vec<V> = (0..plan.tile.halves)
            .map(|half| {
                // Rows beyond the last repeat it; their results are not stored.
                let (row, last) = (self.lane.row(b, &plan.tile, half), b.i32(plan.rows as i64 - 1));
                let row = b.min(row, last);
                b.add(self.item.head, row)
            })
            .collect();
        let first = |b: &mut Builder, i: usize| {
            let step = self.step(b, i);
            b.shlc(step, 4)
        };
        let mut out = vec![];
        for i in 0..plan.steps {
            let column = first(b, i);
            let words = self.query(b, shape.own.unwrap_or(shape.q), &heads, column);
            out.push(match plan.own < (i + 1) * plan.warps {
                true => {
                    let (number, zero) = (b.addc(self.warp, (i * self.plan.warps) as i64), b.i32(0));
                    let inside = b.cmpc(Cmp::Ult, number, plan.own as i64);
                    words.into_iter().map(|w| b.select(inside, w, zero)).collect()
                }
                false => words,
            });
        }
        let mine = b.mulc(self.warp, plan.tile.d as i64);
        for i in 0..if plan.latent { plan.tile.d / 16 } else { 0 } {
            let column = b.addc(mine, i as i64 * 16);
            out.push(self.query(b, shape.q, &heads, column));
        }
        out
    }

    /// The left operand of 16 columns of the heads' queries in `rows`.
    fn query(&self, b: &mut Builder, rows: Rows, heads: &[V], column: V) -> Vec<V> {
        let lines: Vec<V> = heads
            .iter()
            .map(|head| {
                let col = b.mulc(*head, rows.of_head as i64);
                let col = b.add(col, column);
                let col = b.add(col, self.lane.first);
                self.shape.element(b, self.args, rows, self.item.token, col)
            })
            .collect();
        let stored = rows.storage();
        let words = [(0, 0), (0, 1), (1, 0), (1, 1)].map(|(eight, half)| match lines.get(half) {
            Some(p) => {
                let p = b.atc(*p, (eight * 8 * stored.bytes()) as i64);
                self.plan.tile.query_pair(b, p, stored)
            }
            None => b.i32(0),
        });
        words.to_vec()
    }

    /// Pages of the pool of the tile that begins with page `number`; past the end any that there is. Where
    /// rows are selected, each lane has the slot of the pool of one of 16 rows.
    fn entries(&self, b: &mut Builder, number: V) -> Vec<V> {
        if let Some(chosen) = &self.chosen {
            let (first, slot) = (b.shlc(number, 4), b.andc(self.lane.lane, 15));
            let first = b.add(first, slot);
            let at = |i: usize| (i * PAGE_TOKENS) as i64;
            return (0..self.plan.pages)
                .map(|i| {
                    let nth = b.addc(first, at(i));
                    chosen.place(b, nth)
                })
                .collect();
        }
        (0..self.plan.pages as i64)
            .map(|i| {
                let (number, last) = (b.addc(number, i), b.addc(self.item.end_page, -1));
                let number = b.min(number, last);
                let offset = b.shlc(number, 2);
                let p = b.at(self.table, offset);
                b.load_const(p, I32)
            })
            .collect()
    }

    /// Starts the copy of the warp's part of the tile that begins with page `number` into a stage, but for
    /// the keys of selected rows; nothing if it is past the end.
    fn copy(&self, b: &mut Builder, number: V, entries: &[V], stage: V) {
        let inside = b.cmp(Cmp::Slt, number, self.item.end_page);
        b.if_(inside, |b| {
            for (i, entry) in entries.iter().enumerate() {
                let to = self.page(b, stage, i);
                let lines = if self.chosen.is_none() {
                    let wide = b.zext(*entry, I64);
                    let skip = b.mulc(wide, self.shape.page.bytes as i64);
                    self.copy_keys(b, skip, to);
                    Lines::Page(skip)
                } else {
                    Lines::Own(*entry)
                };
                let start = b.addc(number, i as i64);
                let start = b.shlc(start, 4);
                let start = b.sub(start, self.item.first);
                self.copy_values(b, lines, to, start);
            }
        });
        b.cp_commit();
    }

    /// The warp's part of page `i` of the tile in a stage.
    fn page(&self, b: &mut Builder, stage: V, i: usize) -> V {
        let offset = b.mulc(stage, self.plan.stage_bytes() as i64);
        let base = b.at(self.ring, offset);
        b.atc(base, (i * self.plan.page_bytes()) as i64)
    }

    /// Where the lane's piece of the warp's first step goes.
    fn key_piece(&self, b: &mut Builder, to: V) -> V {
        let turn = b.shrc(self.lane.lane, 3);
        let turn = b.andc(turn, 1);
        let place = b.xor(self.lane.lane, turn);
        let place = b.shlc(place, 4);
        b.at(to, place)
    }

    /// A piece of each lane of each of the warp's steps.
    fn copy_keys(&self, b: &mut Builder, skip: V, to: V) {
        let from = b.at(self.keys, skip);
        let offset = b.shlc(self.lane.lane, 4);
        let from = b.at(from, offset);
        let to = self.key_piece(b, to);
        for i in 0..self.plan.steps {
            let step = self.step(b, i);
            let offset = b.shlc(step, 9);
            let (to, from) = (b.atc(to, i as i64 * 512), b.at(from, offset));
            b.cp_async(to, from, Cache::L2);
        }
    }

    /// The lane's pieces of the keys of a tile of selected rows, whose `entries` it has: of each page and each of
    /// the warp's steps. Nothing where no rows are selected.
    fn gather_keys(&self, b: &mut Builder, entries: &[V]) -> Vec<Vec<V>> {
        let entries: &[V] = if self.chosen.is_some() { entries } else { &[] };
        entries.iter().map(|place| self.gather_page(b, *place)).collect()
    }

    /// Stores them in a stage.
    fn store_keys(&self, b: &mut Builder, stage: V, pieces: &[Vec<V>]) {
        for (i, of_page) in pieces.iter().enumerate() {
            let to = self.page(b, stage, i);
            let to = self.key_piece(b, to);
            for (i, piece) in of_page.iter().enumerate() {
                let to = b.atc(to, i as i64 * 512);
                b.apart(|b| b.store(*piece, to));
            }
        }
    }

    /// The lane's pieces of 16 rows, whose places two lanes know each: the elements of a column in eight rows.
    fn gather_page(&self, b: &mut Builder, place: V) -> Vec<V> {
        let (column, half) = (b.shrc(self.lane.lane, 1), b.andc(self.lane.lane, 1));
        let (column, first) = (b.shlc(column, 5), b.shlc(half, 3));
        let from: Vec<V> = (0..8)
            .map(|i| {
                let row = b.addc(first, i);
                let place = b.shuffle_from(place, row);
                let (skip, slot) = page_and_line(b, self.shape.page.bytes, place);
                let within = b.shlc(slot, 1);
                let offset = b.add(column, within);
                let p = b.at(self.keys, skip);
                b.at(p, offset)
            })
            .collect();
        (0..self.plan.steps)
            .map(|i| {
                let step = self.step(b, i);
                let offset = b.shlc(step, 9);
                let elements: Vec<V> = from
                    .iter()
                    .map(|p| {
                        let p = b.at(*p, offset);
                        b.load(p, I16)
                    })
                    .collect();
                b.pack(&elements)
            })
            .collect()
    }

    /// The warp's columns of the values of a page, whose slot 0 is position `start` of those that are
    /// seen. Values of slots that are not become zero.
    fn copy_values(&self, b: &mut Builder, lines: Lines, to: V, start: V) {
        let (plan, d) = (self.plan, self.plan.tile.d as i64);
        let to = b.atc(to, plan.key_bytes() as i64);
        let mine = b.mulc(self.warp, d * 2);
        let from = match lines {
            Lines::Page(skip) => b.at(self.values, skip),
            Lines::Own(_) => self.values,
        };
        let from = b.at(from, mine);
        let each = d / 8;
        for i in 0..each / 2 {
            let piece = b.addc(self.lane.lane, i * WARP as i64);
            let (token, column) = (b.divc(piece, each), b.remc(piece, each));
            let column = b.shlc(column, 4);
            let (from, slot) = match lines {
                Lines::Page(_) => (from, token),
                Lines::Own(place) => {
                    let place = b.shuffle_from(place, token);
                    let (skip, slot) = page_and_line(b, self.shape.page.bytes, place);
                    (b.at(from, skip), slot)
                }
            };
            let (line, place) =
                (b.mulc(slot, self.shape.spec.value_dim as i64 * 2), b.mulc(token, plan.tile.v_stride() as i64));
            let (line, place) = (b.add(line, column), b.add(place, column));
            let (from, to) = (b.at(from, line), b.at(to, place));
            let slot = b.add(start, token);
            let seen = b.cmp(Cmp::Ult, slot, self.item.seen);
            let (all, none) = (b.i32(16), b.i32(0));
            let bytes = b.select(seen, all, none);
            match lines {
                Lines::Page(_) => b.cp_async_some(to, from, bytes),
                // Keys are stored beside it.
                Lines::Own(_) => b.apart(|b| b.cp_async_some(to, from, bytes)),
            }
        }
    }

    /// Starts the first copies. Values carried from tile to tile: the stage to read, the place of
    /// the partial scores, the entries of the tile that is copied next.
    fn start(&self, b: &mut Builder) -> Vec<V> {
        let (ahead, pages) = (self.plan.stages as i64 - 1, self.plan.pages as i64);
        for i in 0..ahead {
            let number = b.addc(self.item.page, i * pages);
            let entries = self.entries(b, number);
            let stage = b.i32(i);
            self.copy(b, number, &entries, stage);
            if self.chosen.is_some() {
                let inside = b.cmp(Cmp::Slt, number, self.item.end_page);
                b.if_(inside, |b| {
                    let keys = self.gather_keys(b, &entries);
                    self.store_keys(b, stage, &keys);
                });
            }
        }
        let number = b.addc(self.item.page, ahead * pages);
        let (zero, entries) = (b.i32(0), self.entries(b, number));
        [vec![zero, zero], entries].concat()
    }

    /// Attends to a chunk, from zero; copies go on into the next one.
    fn chunk(&self, b: &mut Builder, q: &[Vec<V>], (first, end): (V, V), carried: &[V]) -> (State, Vec<V>) {
        let (plan, kept) = (self.plan, carried.len());
        let (ahead, pages) = (plan.stages as i64 - 1, plan.pages as i64);
        let step = b.i32(pages);
        let start = plan.tile.start(b);
        let done = b.for_((first, end, step), &[carried, start.carried()].concat(), |b, number, carried| {
            let (stage, place, entries) = (carried[0], carried[1], &carried[2..kept]);
            // The tile has come; and all lanes are done with the one before it, whose place the next
            // copy takes.
            b.cp_wait(ahead as usize - 1);
            b.sync_warp();
            let next = b.addc(number, ahead * pages);
            let before = ring::stage_after(b, stage, ahead, self.plan.stages);
            // Beyond the end they are any row's.
            let keys = self.gather_keys(b, entries);
            self.copy(b, next, entries, before);
            let after = b.addc(next, pages);
            let entries = self.entries(b, after);
            let scores = self.partial(b, q, stage);
            let scores = self.exchange(b, scores, place);
            let state = State::from_carried(&carried[kept..]);
            let state = self.weigh(b, number, &scores, stage, &state);
            self.store_keys(b, before, &keys);
            let (stage, place) =
                (ring::stage_after(b, stage, 1, self.plan.stages), b.xorc(place, plan.score_bytes() as i64));
            [vec![stage, place], entries, state.carried().to_vec()].concat()
        });
        (State::from_carried(&done[kept..]), done[..kept].to_vec())
    }

    /// The warp's part of the scores of a tile: of every eight tokens an accumulator.
    fn partial(&self, b: &mut Builder, q: &[Vec<V>], stage: V) -> Vec<Vec<V>> {
        let (plan, zero) = (self.plan, b.f32(0.0));
        let mut out = vec![];
        for page in 0..plan.pages {
            let at = self.page(b, stage, page);
            let (keys, values) = (b.at(at, self.lane.k), b.atc(at, plan.key_bytes() as i64));
            let values = self.as_keys(b, values);
            let mut acc = [vec![zero; 4], vec![zero; 4]];
            for (i, left) in q.iter().enumerate() {
                let words = if i < plan.steps {
                    let p = b.atc(keys, i as i64 * 512);
                    b.ldmatrix(p, true)
                } else {
                    // A token's columns follow each other, as the product wants them.
                    let p = b.atc(values, (i - plan.steps) as i64 * 32);
                    b.ldmatrix(p, false)
                };
                for (acc, right) in acc.iter_mut().zip(words.chunks(2)) {
                    *acc = self.product(b, left, right, acc);
                }
            }
            out.extend(acc);
        }
        out
    }

    /// `acc` and the product of two operands; rows of an unused half stay zero.
    fn product(&self, b: &mut Builder, left: &[V], right: &[V], acc: &[V]) -> Vec<V> {
        let (used, sums) = (2 * self.plan.tile.halves, b.mma(self.plan.tile.elem, left, right, acc));
        [&sums[..used], &acc[used..]].concat()
    }

    /// Where a lane finds its rows of the values as right operands of `Q·Kᵀ`: bit 0 of the matrix
    /// number chooses the eight columns, bit 1 the eight tokens.
    fn as_keys(&self, b: &mut Builder, values: V) -> V {
        let (low, high) = (b.andc(self.lane.lane, 7), b.shrc(self.lane.lane, 4));
        let (high, half) = (b.shlc(high, 3), b.shrc(self.lane.lane, 3));
        let token = b.or(low, high);
        let half = b.andc(half, 1);
        let (line, half) = (b.mulc(token, self.plan.tile.v_stride() as i64), b.shlc(half, 4));
        let offset = b.add(line, half);
        b.at(values, offset)
    }

    /// The scores of a tile: the parts of all warps, added in their order.
    fn exchange(&self, b: &mut Builder, scores: Vec<Vec<V>>, place: V) -> Vec<Vec<V>> {
        let used = 2 * self.plan.tile.halves;
        let ty = Ty::Vec(used as u8, Elem::F32);
        let all = b.at(self.scores, place);
        let mine = b.at(all, self.mine);
        for (i, part) in scores.iter().enumerate() {
            let (words, p) = (b.pack(&part[..used]), b.atc(mine, i as i64 * 512));
            b.store(words, p);
        }
        b.barrier();
        let of_warp = self.plan.score_bytes() / self.plan.warps;
        (0..scores.len())
            .map(|i| {
                let mut parts = (0..self.plan.warps).map(|w| (w * of_warp + i * 512) as i64);
                let load = |b: &mut Builder, at: i64| {
                    let p = b.atc(all, at);
                    let words = b.load(p, ty);
                    b.unpack(words)
                };
                let first = parts.next().map_or(vec![], |at| load(b, at));
                parts.fold(first, |sum, at| {
                    let part = load(b, at);
                    sum.iter().zip(part).map(|(x, y)| b.fadd(*x, y)).collect()
                })
            })
            .collect()
    }

    /// Adds the tile that begins with page `number` to the state.
    fn weigh(&self, b: &mut Builder, number: V, scores: &[Vec<V>], stage: V, state: &State) -> State {
        let (tile, halves) = (&self.plan.tile, self.plan.tile.halves);
        let start = b.shlc(number, 4);
        let old = state.carried();
        let (mut maxima, mut sums, mut values) = (vec![], vec![], old[2 * halves..].to_vec());
        let mut probabilities: Vec<Vec<V>> = vec![];
        for half in 0..halves {
            let mine: Vec<V> = scores.iter().flat_map(|s| s[2 * half..][..2].to_vec()).collect();
            let before = (old[half], old[halves + half]);
            let (p, maximum, sum, change) = tile.softmax(b, &self.lane, start, (&mine, &[]), &self.range(), before);
            for of_eight in values.chunks_mut(2 * halves) {
                of_eight[2 * half..][..2].iter_mut().for_each(|x| *x = b.fmul(*x, change));
            }
            probabilities.push(p.chunks(2).map(|two| tile.narrow(b, two[0], two[1])).collect());
            maxima.push(maximum);
            sums.push(sum);
        }
        for page in 0..self.plan.pages {
            let at = self.page(b, stage, page);
            let at = b.atc(at, self.plan.key_bytes() as i64);
            let two: Vec<[V; 2]> = probabilities.iter().map(|words| [words[2 * page], words[2 * page + 1]]).collect();
            tile.weigh(b, &self.lane, at, &two, &mut values);
        }
        State::from_carried(&[maxima, sums, values].concat())
    }

    /// Leaves the warp's columns of the result of a chunk in shared memory.
    fn leave(&self, b: &mut Builder, state: &State, results: &Results) {
        let (tile, none) = (&self.plan.tile, b.i32(0));
        let sums = tile.sums(b, state);
        let mine = b.mulc(self.warp, tile.d as i64);
        let column = b.add(mine, self.lane.first);
        for (half, sum) in sums.into_iter().enumerate() {
            let row = self.lane.row(b, tile, half);
            let used = b.cmpc(Cmp::Ult, row, self.plan.rows as i64);
            b.if_(used, |b| {
                let p = results.value(b, none, row, column);
                let (runs, columns) = state.values(tile, half);
                for (i, run) in runs.into_iter().enumerate() {
                    let run = b.pack(&run);
                    let p = b.atc(p, (i * columns * 4) as i64);
                    b.store(run, p);
                }
                let first = b.cmpc(Cmp::Eq, self.lane.first, 0);
                let whole = b.cmpc(Cmp::Eq, self.warp, 0);
                let chosen = b.and(first, whole);
                b.if_(chosen, |b| {
                    let p = results.stat(b, none, row);
                    b.store(state.maximum(half), p);
                    let p = b.atc(p, 4);
                    b.store(sum, p);
                });
            });
        }
    }
}

const _: () = assert!(PAGE_TOKENS == 16);
