//! Attention of few tokens over long contexts: bound by bytes.
//!
//! Every warp has its own ring of pages in shared memory, filled by asynchronous copies several
//! pages ahead, also beyond the end of a chunk, and waits for other warps only there. Values of
//! slots that the token does not see are filled with zeros by the copy: whatever their memory holds
//! is never multiplied.

use super::pool::Pool;
use super::results::{Results, joined_bytes};
use super::shape::{Range, Shape};
use super::share::{Item, Split};
use super::split::Chunks;
use super::tiles::{Lane, PageAt, Queries, State, Tile};
use crate::Source;
use crate::cx::{Args, Cx};
use crate::mlir::{Builder, Cmp, Memory, V};
use crate::ring;

/// Largest head served.
const MAX_D: usize = 256;

/// How it is done.
#[derive(Clone, Copy)]
pub(super) struct Plan {
    tile: Tile,
    /// Warps of a team.
    pub(super) warps: u32,
    /// Pages in a warp's ring.
    stages: usize,
    /// Blocks on a multiprocessor, of one team each.
    resident: u32,
    /// Query rows of an item, and tokens.
    rows: usize,
    tokens: usize,
    /// Most chunks of a token.
    most: usize,
}

impl Plan {
    /// `None` if only the plain kernel will do.
    pub(super) fn new(cx: &Cx<'_>, shape: &Shape) -> Option<Plan> {
        let (d, gpu) = (shape.spec.key_dim, cx.gpu);
        let (elem, int8) = shape.multiplied().filter(|_| d <= MAX_D)?;
        let rows = (1..=most_rows(d).min(shape.group)).rev().find(|r| shape.group.is_multiple_of(*r))?;
        let tile = Tile { elem, int8, d, tiles: 1, halves: if rows > 8 { 2 } else { 1 }, scores: shape.scores };
        let plan = |warps, stages, resident| Plan { tile, warps, stages, resident, rows, tokens: 1, most: 1 };
        let bytes = |warps, stages| plan(warps, stages, 1).bytes();
        // Codes take registers on their way to f16: with large heads, the registers of three blocks
        // are too few.
        let most = if int8 && d > 64 { 2 } else { 3 };
        let fitting = |(warps, stages): (u32, usize)| {
            let resident = gpu.shared_per_sm as usize / (bytes(warps, stages) + 1024);
            (bytes(warps, stages) <= cx.shared_limit()).then_some((warps, stages, resident.min(most) as u32))
        };
        // Pages of codes are half as large: more of them are on their way.
        let deep = int8.then_some((4, 5));
        let mut choices = deep.into_iter().chain([(4, 3), (4, 2), (2, 3), (2, 2), (1, 2)]).filter_map(fitting);
        let first = choices.next()?;
        let (warps, stages, resident) = if first.2 >= 2 { first } else { choices.find(|c| c.2 >= 2).unwrap_or(first) };
        let plan = plan(warps, stages, resident.max(1));
        Some(Plan { most: plan.split(cx, shape).most, ..plan })
    }

    /// The same for items of up to `wanted` tokens, as far as their rows fit a tile. Chunks are cut as those of
    /// single tokens, and shared out among as many warps, so that the bits are the same.
    pub(super) fn with_tokens(self, cx: &Cx<'_>, wanted: usize) -> Plan {
        let tokens = wanted.min(most_rows(self.tile.d) / self.rows).max(1);
        let tokens = 1 << tokens.ilog2();
        let rows = self.rows * tokens;
        let tile = Tile { halves: if rows > 8 { 2 } else { 1 }, ..self.tile };
        let plan = |stages| {
            let plan = Plan { tile, stages, rows, tokens, ..self };
            let resident = (cx.gpu.shared_per_sm as usize / (plan.bytes() + 1024)).clamp(1, 2) as u32;
            (plan.bytes() <= cx.shared_limit()).then_some(Plan { resident, ..plan })
        };
        let mut choices = (2..=self.stages).rev().filter_map(plan);
        if tokens == 1 { self } else { choices.find(|p| p.resident > 1).or_else(|| plan(2)).unwrap_or(self) }
    }

    /// The same with so many pages in a warp's ring, which makes no difference to results.
    pub(super) fn with_stages(self, stages: usize) -> Plan {
        Plan { stages, ..self }
    }

    /// Shared memory of a team.
    pub(super) fn bytes(&self) -> usize {
        self.ring_bytes() + joined_bytes(self.warps, self.rows, self.tile.d)
    }

    fn ring_bytes(&self) -> usize {
        self.warps as usize * self.stages * self.tile.page_bytes()
    }

    /// How work is dealt to blocks of one team.
    pub(super) fn split(&self, cx: &Cx<'_>, shape: &Shape) -> Split {
        let units = shape.spec.kv_heads * (shape.group / (self.rows / self.tokens));
        let split = Split::new(cx.gpu, self.resident, units, (self.rows, self.warps), self.ring_bytes());
        if self.tokens == 1 { split } else { Split { tokens: self.tokens, most: self.most, ..split } }
    }
}

/// Query rows of a tile: accumulators of 16 rows of larger heads do not fit the registers.
fn most_rows(d: usize) -> usize {
    if d > 128 { 8 } else { 16 }
}

/// Emits the kernel.
pub(super) fn emit(cx: &Cx<'_>, shape: &Shape, plan: &Plan) -> Source {
    plan.split(cx, shape).emit(cx, shape, None, plan.resident, |b, args, item, chunks| {
        attend(b, shape, plan, (args, item, chunks));
    })
}

/// Emits a team's work on an item.
pub(super) fn attend(
    b: &mut Builder,
    shape: &Shape,
    plan: &Plan,
    (args, item, chunks): (Args<'_>, &Item, &Chunks<'_>),
) {
    let lane = Lane::of_thread(b, &plan.tile, item.team.thread);
    let walk = Walk::new(b, shape, plan, args, item, &lane);
    let (q, carried) = walk.start(b, chunks.split());
    let ranges = walk.ranges(b, chunks.split());
    chunks.each(b, &carried, |b, pages, carried, results| {
        let (state, next) = walk.chunk(b, (&q, &ranges), pages, carried);
        walk.leave(b, &state, results);
        next
    });
}

/// A warp's walk over its pages.
struct Walk<'a> {
    shape: &'a Shape,
    plan: &'a Plan,
    args: Args<'a>,
    item: &'a Item,
    lane: &'a Lane,
    warp: V,
    /// The warp's ring.
    ring: V,
    pool: Pool<'a>,
}

impl<'a> Walk<'a> {
    fn new(
        b: &mut Builder,
        shape: &'a Shape,
        plan: &'a Plan,
        args: Args<'a>,
        item: &'a Item,
        lane: &'a Lane,
    ) -> Walk<'a> {
        let warp = b.warp_of(item.team.thread);
        let before = b.mulc(item.team.number, i64::from(plan.warps));
        let of_block = b.add(before, warp);
        let offset = b.mulc(of_block, (plan.stages * plan.tile.page_bytes()) as i64);
        let stages = item.team.of_block * plan.warps as usize * plan.stages;
        b.buffer(Memory {
            name: "rings of warps",
            at: 0,
            bytes: plan.tile.page_bytes(),
            stages,
            conflict_free: false,
            over: &[],
        });
        let ring = b.shared();
        let ring = b.at(ring, offset);
        let seq = args.seq(b, item.token);
        let pool = Pool::new(b, (shape, &plan.tile), args, item.kv_head, seq);
        Walk { shape, plan, args, item, lane, warp, ring, pool }
    }

    /// Page `number` of the sequence; past the end any that there is.
    fn entry(&self, b: &mut Builder, number: V) -> V {
        let last = b.addc(self.item.end_page, -1);
        let number = b.min(number, last);
        self.pool.entry(b, number)
    }

    /// Address of a stage of the ring.
    fn stage(&self, b: &mut Builder, stage: V) -> PageAt {
        let offset = b.mulc(stage, self.plan.tile.page_bytes() as i64);
        let base = b.at(self.ring, offset);
        self.plan.tile.page_at(b, base)
    }

    /// Positions that the item's tokens see.
    fn range(&self) -> Range {
        Range { first: self.item.first, count: self.item.seen }
    }

    /// Positions that the row of each half sees.
    fn ranges(&self, b: &mut Builder, split: &Split) -> Vec<Range> {
        if split.tokens == 1 {
            return vec![self.range(); self.plan.tile.halves];
        }
        (0..self.plan.tile.halves)
            .map(|part| {
                let row = self.row(b, part);
                let token = self.item.row(b, split, row).token;
                let position = self.args.position(b, token);
                self.shape.range(b, self.args, token, position)
            })
            .collect()
    }

    /// The row of a half; beyond the last, the last, whose results are not stored.
    fn row(&self, b: &mut Builder, part: usize) -> V {
        let (row, last) = (self.lane.row(b, &self.plan.tile, part), b.i32(self.plan.rows as i64 - 1));
        b.min(row, last)
    }

    /// Starts the copy of page `number`, which lies at `entry`, into a stage; nothing if it is not
    /// the warp's.
    fn copy(&self, b: &mut Builder, number: V, entry: V, stage: V) {
        let inside = b.cmp(Cmp::Slt, number, self.item.end_page);
        b.if_(inside, |b| {
            let to = self.stage(b, stage);
            self.pool.copy(b, (number, entry), to, self.range(), (self.lane.lane, 1));
        });
        b.cp_commit();
    }

    fn queries(&self, b: &mut Builder, split: &Split) -> Queries {
        let d = self.shape.spec.key_dim;
        self.plan.tile.queries(b, self.lane, self.shape.q.storage(), |b, part| {
            let row = self.row(b, part);
            let row = self.item.row(b, split, row);
            let col = b.mulc(row.head, d as i64);
            self.shape.element(b, self.args, self.shape.q, row.token, col)
        })
    }

    /// Starts the first copies. The queries, and the values carried from page to page: the stage to
    /// read and the entry of the page that is copied next.
    fn start(&self, b: &mut Builder, split: &Split) -> (Queries, Vec<V>) {
        let (stages, warps) = (self.plan.stages as i64, i64::from(self.plan.warps));
        let ahead = stages - 1;
        let first = b.add(self.item.page, self.warp);
        for i in 0..ahead {
            let number = b.addc(first, i * warps);
            let entry = self.entry(b, number);
            let stage = b.i32(i);
            self.copy(b, number, entry, stage);
        }
        let number = b.addc(first, ahead * warps);
        let entry = self.entry(b, number);
        let zero = b.i32(0);
        (self.queries(b, split), vec![zero, entry])
    }

    /// Attends to the warp's pages of a chunk, from zero; copies go on into the next one.
    fn chunk(
        &self,
        b: &mut Builder,
        (q, ranges): (&Queries, &[Range]),
        (first, end): (V, V),
        carried: &[V],
    ) -> (State, Vec<V>) {
        let (ahead, warps) = (self.plan.stages as i64 - 1, i64::from(self.plan.warps));
        let (first, step) = (b.add(first, self.warp), b.i32(warps));
        let mut carried = carried.to_vec();
        carried.extend_from_slice(self.plan.tile.start(b).carried());
        let done = b.for_((first, end, step), &carried, |b, page, carried| {
            let (stage, entry) = (carried[0], carried[1]);
            // The page has come; and all lanes are done with the one before it, whose place the
            // next copy takes.
            b.cp_wait(ahead as usize - 1);
            b.sync_warp();
            let next = b.addc(page, ahead * warps);
            let before = ring::stage_after(b, stage, ahead, self.plan.stages);
            self.copy(b, next, entry, before);
            let after = b.addc(next, warps);
            let entry = self.entry(b, after);
            let at = self.stage(b, stage);
            let start = b.shlc(page, 4);
            let state = State::from_carried(&carried[2..]);
            let state = self.plan.tile.attend(b, self.lane, (start, &[at]), q, ranges, &state);
            let stage = ring::stage_after(b, stage, 1, self.plan.stages);
            let mut next = vec![stage, entry];
            next.extend_from_slice(state.carried());
            next
        });
        (State::from_carried(&done[2..]), done[..2].to_vec())
    }

    /// Leaves the values of a turned tile.
    fn leave_turned(&self, b: &mut Builder, state: &State, results: &Results) {
        let tile = &self.plan.tile;
        let (first, apart) = self.lane.columns(b, tile);
        for (i, row) in self.lane.rows(b).into_iter().enumerate() {
            let used = b.cmpc(Cmp::Ult, row, self.plan.rows as i64);
            b.if_(used, |b| {
                let p = results.value(b, self.warp, row, first);
                for (block, [x, y]) in state.of_row(tile, i).into_iter().enumerate() {
                    let p = b.atc(p, block as i64 * 64);
                    b.store(x, p);
                    let p = b.atc(p, apart as i64 * 4);
                    b.store(y, p);
                }
            });
        }
    }

    /// Leaves the warp's result of a chunk in shared memory.
    fn leave(&self, b: &mut Builder, state: &State, results: &Results) {
        let tile = &self.plan.tile;
        if tile.turned() {
            self.leave_turned(b, state, results);
        }
        let sums = tile.sums(b, state);
        for (part, sum) in sums.into_iter().enumerate() {
            let row = self.lane.row(b, tile, part);
            let used = b.cmpc(Cmp::Ult, row, self.plan.rows as i64);
            b.if_(used, |b| {
                if !tile.turned() {
                    let p = results.value(b, self.warp, row, self.lane.first);
                    let (runs, columns) = state.values(tile, part);
                    for (i, run) in runs.into_iter().enumerate() {
                        let run = b.pack(&run);
                        let p = b.atc(p, (i * columns * 4) as i64);
                        b.store(run, p);
                    }
                }
                let first = b.cmpc(Cmp::Eq, self.lane.first, 0);
                b.if_(first, |b| {
                    let p = results.stat(b, self.warp, row);
                    b.store(state.maximum(part), p);
                    let p = b.atc(p, 4);
                    b.store(sum, p);
                });
            });
        }
    }
}
