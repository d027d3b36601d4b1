//! Attention of many tokens: bound by products.
//!
//! A block takes some adjacent tokens with all query heads of one KV head: its rows. They share the
//! pages, which the warps copy together, a few at a time, while they work on those before. Tokens
//! of a step may belong to several sequences, in any order: the block walks the pages of one
//! sequence after the other, as the first warp has listed them ([`list`](super::list)), and rows of
//! others see nothing of them. Usually there is one.
//!
//! Blocks with the last tokens come first: they have the longest walks.
//!
//! Registers decide how many warps a multiprocessor has: 128 or fewer for 16-bit heads of up to 64,
//! so that two blocks of eight warps fit; about 220 for heads of 128, and 205 to 255 for int8
//! caches, so that one does, where shared memory would hold three and more. Queries of heads above
//! 128 are read again for every stage, from the first-level cache: beside 128 sums they would be
//! spilled. They take 255 all the same: reading ahead is limited by hand, and rows and blocks are
//! found anew when results are stored. Heads of 224 of int8 caches spill some words on sm90.

use super::list::{List, Walk};
use super::lone::{Grid, Lone};
use super::pool::Pool;
use super::rows::{Block, Row};
use super::shape::{Range, Shape};
use super::tiles::{Lane, PageAt, Queries, State, Tile};
use crate::Source;
use crate::cx::{Args, Cx};
use crate::mlir::{Builder, Cmp, Memory, V, WARP};

/// Most rows of a block.
const MAX_ROWS: usize = 128;
const STAGES: usize = 2;
/// Most shared memory of a block whose queries are read anew for every stage.
const CROWDED: usize = 136 << 10;

/// How it is done.
pub(super) struct Plan {
    tile: Tile,
    warps: usize,
    /// Pages that are copied together.
    pages: usize,
    /// Tokens of a block.
    tokens: usize,
    /// Blocks on a multiprocessor.
    resident: u32,
}

impl Plan {
    /// `None` if a kernel for fewer tokens will do, or must.
    pub(super) fn new(cx: &Cx<'_>, shape: &Shape, tile_m: usize) -> Option<Plan> {
        let d = shape.spec.key_dim;
        let (elem, int8) = shape.multiplied().filter(|_| d <= 256)?;
        let tokens = tile_m.min(MAX_ROWS / shape.group);
        if tile_m < 2 || tokens == 0 {
            return None;
        }
        // Two tiles would halve the reads of shared memory, but even with heads of 64 they fill the
        // registers to the last one, and spill.
        let tiles = 1;
        let warps = (tokens * shape.group).div_ceil(16 * tiles).next_power_of_two();
        // With heads of up to 64 and scores of two pages at a time, the registers of two blocks
        // fit, whose warps do not wait for each other. (For int8 pages the codes take the remaining
        // registers: four bytes would be spilled.)
        let resident = if d <= 64 && !int8 { 2 } else { 1 };
        let most = if d > 128 || resident > 1 { 2 } else { 4 };
        let tile = Tile { elem, int8, d, tiles, halves: 2, scores: shape.scores };
        let fits = |pages: &usize| STAGES * pages * tile.page_bytes() + 4096 <= cx.shared_limit();
        let pages = [4, 2, 1].into_iter().filter(|p| *p <= most.min(warps)).find(fits)?;
        Some(Plan { tile, warps, pages, tokens, resident })
    }

    fn stage_bytes(&self) -> usize {
        self.pages * self.tile.page_bytes()
    }

    fn list(&self) -> List {
        List { at: STAGES * self.stage_bytes(), tokens: self.tokens }
    }

    fn threads(&self) -> u32 {
        self.warps as u32 * WARP as u32
    }

    /// Most shared memory of a block that leaves room for as many blocks on a multiprocessor; and,
    /// where queries are read again and again, for these in the first-level cache.
    fn most_shared(&self, cx: &Cx<'_>) -> usize {
        let each = cx.gpu.shared_per_sm as usize / self.resident as usize - 1024;
        let most = if self.tile.crowded() { CROWDED } else { usize::MAX };
        each.min(cx.shared_limit()).min(most)
    }
}

/// Emits the kernel.
pub(super) fn emit(cx: &Cx<'_>, shape: &Shape, plan: &Plan) -> Source {
    let lone = Lone::new(cx, shape, (plan.warps, plan.resident), plan.most_shared(cx));
    let grid = Grid { kv_heads: shape.spec.kv_heads, tokens: plan.tokens, lone: lone.as_ref() };
    let (mlir, program) = cx.function(plan.threads(), plan.resident, |b, args| {
        grid.layers(b, |b| prompts(b, (cx, shape, args), &grid, plan), |b, lone| lone.serve(b, cx, shape, args));
    });
    let (shared, scratch) = grid.bytes(shape, plan.list().at + plan.list().bytes());
    Source { shared, scratch, ..Source::new(cx.entry(), (mlir, program), plan.threads(), grid.dims()) }
}

/// Emits a block's work on its tokens.
fn prompts(b: &mut Builder, (cx, shape, args): (&Cx<'_>, &Shape, Args<'_>), grid: &Grid<'_>, plan: &Plan) {
    Block::take(b, (cx, shape, args), grid, |b, block| {
        b.buffer(Memory {
            name: "pages",
            at: 0,
            bytes: plan.stage_bytes(),
            stages: STAGES,
            conflict_free: false,
            over: &[],
        });
        plan.list().declare(b);
        let lane = Lane::new(b, &plan.tile);
        let tid = b.sreg("tid.x");
        let warp = b.own_warp(tid);
        let first = b.cmpc(Cmp::Eq, warp, 0);
        b.if_(first, |b| plan.list().write(b, &block, lane.lane));
        b.barrier();
        let attend = Attend { block, plan, lane: &lane, tid, warp };
        let rows = attend.rows(b);
        let state = attend.run(b, &rows);
        attend.block.anew(b, (cx, grid), |b, block| {
            let attend = Attend { block, ..attend };
            let rows = attend.rows(b);
            attend.store(b, &rows, &state);
        });
    });
}

/// A block while it is emitted.
struct Attend<'a> {
    block: Block<'a>,
    plan: &'a Plan,
    lane: &'a Lane,
    tid: V,
    warp: V,
}

impl Attend<'_> {
    /// The rows of this lane.
    fn rows(&self, b: &mut Builder) -> Vec<Row> {
        let start = b.mulc(self.warp, 16 * self.plan.tile.tiles as i64);
        (0..self.plan.tile.parts())
            .map(|part| {
                let row = self.lane.row(b, &self.plan.tile, part);
                let row = b.add(start, row);
                self.block.row(b, row)
            })
            .collect()
    }

    fn run(&self, b: &mut Builder, rows: &[Row]) -> State {
        let q = self.plan.tile.queries(b, self.lane, self.block.shape.q.storage(), |b, part| {
            let col = self.block.column(b, rows[part].head);
            self.block.shape.element(b, self.block.args, self.block.shape.q, rows[part].token, col)
        });
        let start = self.plan.tile.start(b);
        let (zero, one) = (b.i32(0), b.i32(1));
        let list = self.plan.list();
        let walks = list.count(b);
        let done = b.for_((zero, walks, one), start.carried(), |b, number, state| {
            let walk = list.walk(b, number, self.plan.pages);
            let state = State::from_carried(state);
            let pool = Pool::new(b, (self.block.shape, &self.plan.tile), self.block.args, self.block.kv_head, walk.seq);
            let ranges: Vec<Range> = rows
                .iter()
                .map(|row| {
                    let here = b.cmp(Cmp::Eq, row.seq, walk.seq);
                    let none = b.i32(0);
                    Range { first: row.range.first, count: b.select(here, row.range.count, none) }
                })
                .collect();
            Pass { attend: self, pool, walk }.run(b, &q, &ranges, &state).carried().to_vec()
        });
        State::from_carried(&done)
    }

    fn store(&self, b: &mut Builder, rows: &[Row], state: &State) {
        let sums = self.plan.tile.sums(b, state);
        for (part, (row, sum)) in rows.iter().zip(sums).enumerate() {
            b.if_(row.used, |b| {
                let seen = (state.maximum(part), sum);
                let sum = self.block.shape.with_sink(b, self.block.args, row.head, seen);
                let factor = b.rcp(sum);
                let col = self.block.column(b, row.head);
                let col = b.add(col, self.lane.first);
                let (runs, columns) = state.values(&self.plan.tile, part);
                for (i, run) in runs.into_iter().enumerate() {
                    let run: Vec<V> = run.into_iter().map(|x| b.fmul(x, factor)).collect();
                    let run = b.pack(&run);
                    let col = b.addc(col, (i * columns) as i64);
                    self.block.shape.store(b, self.block.args, row.token, col, run);
                }
            });
        }
    }
}

/// The walk over the pages of one sequence.
struct Pass<'a> {
    attend: &'a Attend<'a>,
    pool: Pool<'a>,
    walk: Walk,
}

impl Pass<'_> {
    fn stage(&self, b: &mut Builder, stage: V) -> Vec<PageAt> {
        let plan = self.attend.plan;
        let offset = b.mulc(stage, plan.stage_bytes() as i64);
        let base = b.shared();
        let base = b.at(base, offset);
        (0..plan.pages)
            .map(|i| {
                let base = b.atc(base, (i * plan.tile.page_bytes()) as i64);
                plan.tile.page_at(b, base)
            })
            .collect()
    }

    /// Starts copying the pages from `page` on into a stage: some warps per page. Outside of the
    /// range, any page will do, its values being zero.
    fn copy(&self, b: &mut Builder, page: V, stage: V) {
        let plan = self.attend.plan;
        let inside = b.cmp(Cmp::Slt, page, self.walk.end);
        b.if_(inside, |b| {
            let warps = plan.warps / plan.pages;
            let which = b.divc(self.attend.warp, warps as i64);
            let number = b.add(page, which);
            let last = b.addc(self.walk.end, -1);
            let there = b.min(number, last);
            let there = b.max(there, self.walk.there);
            let entry = self.pool.entry(b, there);
            let offset = b.mulc(stage, plan.stage_bytes() as i64);
            let base = b.shared();
            let base = b.at(base, offset);
            let offset = b.mulc(which, plan.tile.page_bytes() as i64);
            let base = b.at(base, offset);
            let to = plan.tile.page_at(b, base);
            let skip = b.mulc(which, warps as i64 * WARP as i64);
            let piece = b.sub(self.attend.tid, skip);
            self.pool.copy(b, (number, entry), to, self.walk.range, (piece, warps));
        });
        b.cp_commit();
    }

    fn run(&self, b: &mut Builder, q: &Queries, ranges: &[Range], state: &State) -> State {
        let plan = self.attend.plan;
        let (zero, step) = (b.i32(0), b.i32(plan.pages as i64));
        self.copy(b, self.walk.page, zero);
        let mut carried = vec![zero];
        carried.extend_from_slice(state.carried());
        let done = b.for_((self.walk.page, self.walk.end, step), &carried, |b, page, carried| {
            let stage = carried[0];
            let other = b.xorc(stage, 1);
            b.cp_wait(0);
            // All pages have come, and all warps are done with the other stage.
            b.barrier();
            let next = b.addc(page, plan.pages as i64);
            self.copy(b, next, other);
            let pages = self.stage(b, stage);
            let start = b.shlc(page, 4);
            let state = State::from_carried(&carried[1..]);
            let state = plan.tile.attend(b, self.attend.lane, (start, &pages), q, ranges, &state);
            let mut next = vec![other];
            next.extend_from_slice(state.carried());
            next
        });
        // The next sequence begins with the first stage.
        b.barrier();
        State::from_carried(&done[1..])
    }
}
