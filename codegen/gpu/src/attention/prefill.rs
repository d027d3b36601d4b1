//! Attention of many tokens: products are what counts.
//!
//! A block takes some adjacent tokens with all query heads of one KV head: its rows. They share the pages, which the warps copy together, a few at a time,
//! while they work on those before. Tokens of a step may belong to several sequences, in any order: the block walks the pages of one sequence after the other,
//! and rows of others see nothing of them. Usually there is one.
//!
//! Blocks with the last tokens come first: they have the longest walks.
//!
//! Registers decide how many warps a multiprocessor has: 128 or fewer for 16-bit heads of up to 64, so that two blocks of eight warps fit; about 220 for heads of 128, and 205 to 255
//! for int8 caches, so that one does, where shared memory would hold three and more.

use super::Shape;
use super::pool::Pool;
use super::rows::{Block, Row};
use super::tiles::{Lane, PageAt, Range, State, Tile};
use crate::cx::Cx;
use crate::mlir::{Builder, Cmp, I32, V};
use crate::{Source, blocks, per_rows};
use llmcc_codegen::CodegenError;

/// Most rows of a block.
const MAX_ROWS: usize = 128;
const STAGES: usize = 2;

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
        let (d, gpu) = (shape.spec.head_dim, cx.target.gpu()?);
        let (elem, int8) = shape.multiplied().filter(|_| d <= 256)?;
        let tokens = tile_m.min(MAX_ROWS / shape.group);
        if tile_m < 2 || tokens == 0 {
            return None;
        }
        // Two tiles would halve what is read of shared memory, but even with heads of 64 they fill the registers to the last one, and spill.
        let tiles = 1;
        let warps = (tokens * shape.group).div_ceil(16 * tiles).next_power_of_two();
        // With heads of up to 64 and scores of two pages at a time, the registers of two blocks fit, whose warps do not wait for each other. (Of int8 pages
        // the codes take what is left: four bytes would be spilled.)
        let resident = if d <= 64 && !int8 { 2 } else { 1 };
        let most = if d > 128 || resident > 1 { 2 } else { 4 };
        let tile = Tile { elem, int8, d, tiles, halves: 2, scale: shape.scale };
        let fits = |pages: &usize| STAGES * pages * tile.page_bytes() + 4096 <= gpu.shared_per_block as usize;
        let pages = [4, 2, 1].into_iter().filter(|p| *p <= most.min(warps)).find(fits)?;
        Some(Plan { tile, warps, pages, tokens, resident })
    }

    fn stage_bytes(&self) -> usize {
        self.pages * self.tile.page_bytes()
    }

    fn threads(&self) -> u32 {
        self.warps as u32 * 32
    }
}

/// Words that the block keeps of each token: the first page of its sequence's walk, the page after the last, the first position, the number of positions.
/// Both pages are 0 unless the token is the first of its sequence in the block.
const WORDS: usize = 4;

/// Emits the kernel.
pub(super) fn emit(cx: &Cx<'_>, shape: &Shape, plan: &Plan) -> Result<Source, CodegenError> {
    let mlir = cx.function(plan.threads(), plan.resident, |b, args| {
        Block::take(b, (cx, shape, args), plan.tokens, |b, block| {
            let lane = Lane::new(b, &plan.tile);
            let tid = b.sreg("tid.x");
            let warp = b.shrc(tid, 5);
            let walk = Walk { block, plan, lane: &lane, tid, warp };
            walk.list(b);
            b.barrier();
            let rows = walk.rows(b);
            let state = walk.run(b, &rows);
            walk.store(b, &rows, &state);
        });
    });
    Ok(Source {
        entry: cx.entry(),
        mlir,
        threads: plan.threads(),
        shared: (STAGES * plan.stage_bytes() + plan.tokens * WORDS * 4) as u32,
        grid: [blocks(shape.spec.kv_heads), per_rows(plan.tokens), blocks(1)],
        scratch: 0,
        scratch_per_m: 0,
        generic: None,
    })
}

struct Walk<'a> {
    block: Block<'a>,
    plan: &'a Plan,
    lane: &'a Lane,
    tid: V,
    warp: V,
}

impl Walk<'_> {
    fn listed(&self, b: &mut Builder, i: V) -> V {
        let base = b.shared();
        let base = b.atc(base, (STAGES * self.plan.stage_bytes()) as i64);
        let offset = b.mulc(i, WORDS as i64 * 4);
        b.at(base, offset)
    }

    /// Writes the list of walks: see [`WORDS`].
    fn list(&self, b: &mut Builder) {
        let mine = b.cmp(Cmp::Slt, self.tid, self.block.count);
        b.if_(mine, |b| {
            let token = b.add(self.block.token0, self.tid);
            let seq = self.block.args.seq(b, token);
            let (zero, one, most) = (b.i32(0), b.i32(1), b.i32(i64::from(i32::MAX)));
            let all = b.for_((zero, self.block.count, one), &[most, zero, zero], |b, j, c| {
                let token = b.add(self.block.token0, j);
                let other = self.block.args.seq(b, token);
                let range = self.block.range(b, token);
                let end = b.add(range.first, range.count);
                let same = b.cmp(Cmp::Eq, other, seq);
                let earlier = b.cmp(Cmp::Slt, j, self.tid);
                let earlier = b.and(same, earlier);
                let earlier = b.zext(earlier, I32);
                let (first, last) = (b.min(c[0], range.first), b.max(c[1], end));
                vec![b.select(same, first, c[0]), b.select(same, last, c[1]), b.or(c[2], earlier)]
            });
            let (first, end) = (all[0], all[1]);
            // Pages that are attended to together are the same ones wherever a window begins: else a row's bits would depend on the other tokens.
            let page = b.shrc(first, 4);
            let page = b.andc(page, -(self.plan.pages as i64));
            let end_page = b.addc(end, 15);
            let end_page = b.shrc(end_page, 4);
            let fresh = b.cmpc(Cmp::Eq, all[2], 0);
            let (page, end_page) = (b.select(fresh, page, zero), b.select(fresh, end_page, zero));
            let positions = b.sub(end, first);
            let words = b.pack(&[page, end_page, first, positions]);
            let p = self.listed(b, self.tid);
            b.store(words, p);
        });
    }

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
        let q = self.plan.tile.queries(b, self.lane, self.block.shape.q.1, |b, part| {
            let col = self.block.column(b, rows[part].head);
            self.block.shape.element(b, self.block.args, self.block.shape.q, rows[part].token, col)
        });
        let start = self.plan.tile.start(b);
        let (zero, one) = (b.i32(0), b.i32(1));
        let done = b.for_((zero, self.block.count, one), start.carried(), |b, i, state| {
            let p = self.listed(b, i);
            let words = b.load(p, crate::mlir::V4I32);
            let words = b.unpack(words);
            let token = b.add(self.block.token0, i);
            let seq = self.block.args.seq(b, token);
            let state = State::from_carried(state);
            let pass = Pass {
                walk: self,
                pool: Pool::new(b, (self.block.shape, &self.plan.tile), self.block.args, self.block.kv_head, seq),
                page: words[0],
                end_page: words[1],
                range: Range { first: words[2], count: words[3] },
            };
            let ranges: Vec<Range> = rows
                .iter()
                .map(|row| {
                    let here = b.cmp(Cmp::Eq, row.seq, seq);
                    let here = b.and(here, row.used);
                    let none = b.i32(0);
                    Range { first: row.range.first, count: b.select(here, row.range.count, none) }
                })
                .collect();
            pass.run(b, &q, &ranges, &state).carried().to_vec()
        });
        State::from_carried(&done)
    }

    fn store(&self, b: &mut Builder, rows: &[Row], state: &State) {
        let sums = self.plan.tile.sums(b, state);
        for (part, (row, sum)) in rows.iter().zip(sums).enumerate() {
            b.if_(row.used, |b| {
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
    walk: &'a Walk<'a>,
    pool: Pool<'a>,
    page: V,
    end_page: V,
    /// Positions that some row sees.
    range: Range,
}

impl Pass<'_> {
    fn stage(&self, b: &mut Builder, stage: V) -> Vec<PageAt> {
        let plan = self.walk.plan;
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

    /// Starts copying the pages from `page` on into a stage: some warps per page. Outside of the range, any page will do, its values being zero.
    fn copy(&self, b: &mut Builder, page: V, stage: V) {
        let plan = self.walk.plan;
        let inside = b.cmp(Cmp::Slt, page, self.end_page);
        b.if_(inside, |b| {
            let warps = plan.warps / plan.pages;
            let which = b.divc(self.walk.warp, warps as i64);
            let number = b.add(page, which);
            let last = b.addc(self.end_page, -1);
            let there = b.min(number, last);
            let first = b.shrc(self.range.first, 4);
            let there = b.max(there, first);
            let entry = self.pool.entry(b, there);
            let offset = b.mulc(stage, plan.stage_bytes() as i64);
            let base = b.shared();
            let base = b.at(base, offset);
            let offset = b.mulc(which, plan.tile.page_bytes() as i64);
            let base = b.at(base, offset);
            let to = plan.tile.page_at(b, base);
            let skip = b.mulc(which, warps as i64 * 32);
            let piece = b.sub(self.walk.tid, skip);
            self.pool.copy(b, (number, entry), to, self.range, (piece, warps));
        });
        b.cp_commit();
    }

    fn run(&self, b: &mut Builder, q: &[Vec<V>], ranges: &[Range], state: &State) -> State {
        let plan = self.walk.plan;
        let (zero, step) = (b.i32(0), b.i32(plan.pages as i64));
        self.copy(b, self.page, zero);
        let mut carried = vec![zero];
        carried.extend_from_slice(state.carried());
        let done = b.for_((self.page, self.end_page, step), &carried, |b, page, carried| {
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
            let state = plan.tile.attend(b, self.walk.lane, (start, &pages), q, ranges, &state);
            let mut next = vec![other];
            next.extend_from_slice(state.carried());
            next
        });
        // The next sequence begins with the first stage.
        b.barrier();
        State::from_carried(&done[1..])
    }
}
