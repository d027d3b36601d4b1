//! The warps that bring pages: each two of the eight pages of a tile, tile by tile first their
//! keys, then, of the tile before, their values: the order in which they are multiplied.

use super::{Attend, Event, LINE, PAGES, PRODUCERS, TILE, Walk};
use crate::mlir::{Builder, Cache, Cmp, I32, I64, V, WARP};
use llmcc_abi::PAGE_TOKENS;
use llmcc_ir::gpu::layout::Swizzle;

/// Pages of a tile that a warp brings.
const MINE: usize = PAGES / PRODUCERS;

/// A thread's place.
struct Thread {
    /// Number in its tile of the first page that the warp brings.
    page: V,
    /// The head's keys in page 0 of the pool, at the lane's first piece of 16 bytes; and where
    /// those pieces of the warp's pages go in a stage.
    keys: V,
    key_places: Vec<V>,
    /// The head's values in page 0 of the pool.
    values: V,
}

/// A tile's pages: entries of the pool.
type Entries = Vec<V>;

impl Attend<'_> {
    pub(super) fn produce(&self, b: &mut Builder) {
        let th = self.producer(b);
        let (zero, one) = (b.i32(0), b.i32(1));
        let walks = self.plan.list().count(b);
        b.for_((zero, walks, one), &[zero], |b, number, carried| {
            let walk = self.walk(b, number);
            self.bring(b, &th, &walk, carried[0]);
            vec![b.add(carried[0], walk.tiles)]
        });
    }

    fn producer(&self, b: &mut Builder) -> Thread {
        let (shape, args) = (self.block.shape, self.block.args);
        let warp = b.own_warp(self.tid);
        // Groups of warps are aligned to their size.
        let warp = b.andc(warp, PRODUCERS as i64 - 1);
        let page = b.mulc(warp, MINE as i64);
        let skip = b.mulc(self.block.kv_head, (self.plan.d * PAGE_TOKENS * 2) as i64);
        let base = b.at(args.operand(shape.kv), skip);
        let values = b.atc(base, shape.page.v as i64);
        // Eight lanes take eight lines of a stage, so that the swizzle spreads their pieces over
        // all banks.
        let (low, half, high) = (b.andc(self.lane, 7), b.shrc(self.lane, 3), b.shrc(self.lane, 4));
        let half = b.andc(half, 1);
        let high = b.shlc(high, 3);
        let row = b.or(low, high);
        let (line, piece) = (b.shlc(row, 5), b.shlc(half, 4));
        let from = b.or(line, piece);
        let keys = b.at(base, from);
        let key_places = (0..MINE).map(|i| self.key_place(b, (page, i), (row, half, low))).collect();
        Thread { page, keys, key_places, values }
    }

    /// Where a lane's first piece of its warp's page `i` goes: half `half` of row `row`, whose
    /// number in its eight is `low`.
    fn key_place(&self, b: &mut Builder, (page, i): (V, usize), (row, half, low): (V, V, V)) -> V {
        let page = b.addc(page, i as i64);
        // Lines have 64 tokens, four pages; two of them follow each other.
        let (group, within) = (b.shrc(page, 2), b.andc(page, 3));
        let group = b.mulc(group, (self.plan.d * LINE) as i64);
        let piece = b.shlc(within, 1);
        let piece = b.or(piece, half);
        let piece = b.xor(piece, low);
        let (line, piece) = (b.mulc(row, LINE as i64), b.shlc(piece, 4));
        let place = b.add(group, line);
        b.add(place, piece)
    }

    /// Brings all tiles of a walk, whose first is number `before` of the kernel.
    fn bring(&self, b: &mut Builder, th: &Thread, walk: &Walk, before: V) {
        let late = self.plan.late() as i64;
        let table = self.block.args.table(b, walk.pages.seq);
        let (zero, one) = (b.i32(0), b.i32(1));
        let first = self.entries(b, th, walk, table, zero);
        let turns = b.addc(walk.tiles, 1 + late);
        b.for_((zero, turns, one), &[first.clone(), first].concat(), |b, i, carried| {
            let (mine, previous) = carried.split_at(MINE);
            let ahead = b.addc(i, 1);
            let next = self.entries(b, th, walk, table, ahead);
            let number = b.add(before, i);
            // Arrived copies are announced first: the wait for room may be long.
            self.announce(b, walk, Event::Keys, (i, number, late));
            let inside = b.cmp(Cmp::Slt, i, walk.tiles);
            b.if_(inside, |b| {
                let stage = self.wait(b, Event::KeysFree, number);
                self.copy_keys(b, th, mine, stage);
            });
            b.cp_commit();
            self.announce(b, walk, Event::Values, (i, number, late + 1));
            let (tile, number) = (b.addc(i, -1), b.addc(number, -1));
            let inside = b.cmp(Cmp::Ult, tile, walk.tiles);
            b.if_(inside, |b| {
                let stage = self.wait(b, Event::ValuesFree, number);
                self.copy_values(b, th, walk, (tile, previous), stage);
            });
            b.cp_commit();
            [next, mine.to_vec()].concat()
        });
    }

    /// Pages of the pool for the warp's part of a tile. Outside of the walk, any page will do:
    /// scores of its keys are replaced, and its values become zero.
    fn entries(&self, b: &mut Builder, th: &Thread, walk: &Walk, table: V, tile: V) -> Entries {
        let last = b.addc(walk.pages.end, -1);
        let first = self.page(b, th, walk, tile);
        (0..MINE)
            .map(|i| {
                let number = b.addc(first, i as i64);
                let number = b.min(number, last);
                let number = b.max(number, walk.pages.there);
                let offset = b.shlc(number, 2);
                let p = b.at(table, offset);
                b.load_const(p, I32)
            })
            .collect()
    }

    /// Number in its sequence of the warp's first page of a tile.
    fn page(&self, b: &mut Builder, th: &Thread, walk: &Walk, tile: V) -> V {
        let skip = b.mulc(tile, PAGES as i64);
        let first = b.add(walk.pages.page, skip);
        b.add(first, th.page)
    }

    /// Says that the warp's part of a tile, that of `late` turns ago, is there, once it is. There
    /// are two groups of copies in a turn.
    fn announce(&self, b: &mut Builder, walk: &Walk, event: Event, (turn, number, late): (V, V, i64)) {
        let tile = b.addc(turn, -late);
        let inside = b.cmp(Cmp::Ult, tile, walk.tiles);
        b.if_(inside, |b| {
            b.cp_wait(2 * self.plan.late() - 1);
            b.fence_proxy_async();
            b.sync_warp();
            let number = b.addc(number, -late);
            let (stage, _) = self.turn(b, number);
            self.arrive(b, event, stage);
        });
    }

    fn from(&self, b: &mut Builder, base: V, entry: V) -> V {
        let wide = b.zext(entry, I64);
        let offset = b.mulc(wide, self.block.shape.page.bytes as i64);
        b.at(base, offset)
    }

    /// Starts copying the warp's pages of keys: of each 16 rows of 32 bytes a piece per lane.
    fn copy_keys(&self, b: &mut Builder, th: &Thread, entries: &[V], stage: V) {
        let to = self.stage(b, self.plan.keys_at(), stage);
        for (entry, place) in entries.iter().zip(&th.key_places) {
            let (from, to) = (self.from(b, th.keys, *entry), b.at(to, *place));
            for rows in 0..self.plan.d as i64 / 16 {
                let (from, to) = (b.atc(from, rows * 512), b.atc(to, rows * 16 * LINE as i64));
                b.cp_async(to, from, Cache::L2);
            }
        }
    }

    /// Starts copying the warp's pages of values of a tile. Values of slots that no row sees become
    /// zero.
    fn copy_values(&self, b: &mut Builder, th: &Thread, walk: &Walk, (tile, entries): (V, &[V]), stage: V) {
        let to = self.stage(b, self.plan.values_at(), stage);
        let skip = b.mulc(th.page, self.plan.page_bytes() as i64);
        let to = b.at(to, skip);
        let first = self.page(b, th, walk, tile);
        let start = b.mulc(first, PAGE_TOKENS as i64);
        let start = b.sub(start, walk.pages.range.first);
        for (i, entry) in entries.iter().enumerate() {
            let from = self.from(b, th.values, *entry);
            let (to, start) = (b.atc(to, (i * self.plan.page_bytes()) as i64), b.addc(start, (i * PAGE_TOKENS) as i64));
            for pieces in 0..self.plan.d as i64 / 16 {
                let piece = b.addc(self.lane, pieces * WARP as i64);
                let offset = b.shlc(piece, 4);
                let from = b.at(from, offset);
                let (token, place) = self.value_place(b, piece);
                let slot = b.add(start, token);
                let seen = b.cmp(Cmp::Ult, slot, walk.pages.range.count);
                let (all, none) = (b.i32(16), b.i32(0));
                let bytes = b.select(seen, all, none);
                let to = b.at(to, place);
                b.cp_async_some(to, from, bytes);
            }
        }
    }

    /// Token of piece `piece` of a page of values, and where it goes: blocks of columns as wide as
    /// the swizzle, in each a line per token.
    fn value_place(&self, b: &mut Builder, piece: V) -> (V, V) {
        let each = self.plan.d as i64 / 8;
        let token = b.divc(piece, each);
        let column = b.remc(piece, each);
        let line = i64::from(self.plan.values().row_bytes());
        let (block, column) = (b.divc(column, line / 16), b.andc(column, line / 16 - 1));
        let lines = b.mulc(token, line);
        let turn = b.shrc(lines, 7);
        let turn = b.andc(turn, line / 16 - 1);
        let column = b.xor(column, turn);
        let (block, column) = (b.mulc(block, PAGE_TOKENS as i64 * line), b.shlc(column, 4));
        let place = b.add(block, lines);
        (token, b.add(place, column))
    }
}

const _: () = assert!(PAGES * PAGE_TOKENS == TILE && PAGES == 8 && Swizzle::B128.row_bytes() == LINE as u32);
