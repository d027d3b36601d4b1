//! How decoding is dealt to blocks.
//!
//! What a token sees is cut into **chunks** of pages, as many and as long as it alone decides: as
//! would fill the machine if nothing else were there (at most [`MAX_CHUNKS`]), and no shorter than
//! [`MIN_PAGES`]. Each chunk is reduced to `(maximum, sum, weighted values)` per head, by the warps
//! of one block, and the chunks are added in their order ([`join`](super::join)). That makes all
//! the bits of a result; which block takes which chunks makes none of them.
//!
//! So the dealing may follow the step. The grid is fixed; an item is a token, a unit (the query
//! heads that share a pass over the cache) and a **share** of the chunks: as many shares of a token
//! as items fill the grid. A block goes through the chunks of its share without a pause: copies of
//! the next one are under way while one is finished. Where there is one share, it adds them up as
//! it goes; where there are several, it leaves each in the workspace, and the block that counts
//! last adds all.
//!
//! # What it costs
//!
//! 8 KV heads of 128, four query heads each, 16 bits, on 132 multiprocessors: 264 blocks, 8 units,
//! at most 33 chunks; a page has 8 KB per unit, the result of a chunk 2 KB.
//!
//! | tokens seen | pages of a chunk | chunks | 1 sequence: blocks at work, chunks of each | 8 sequences | 64 sequences |
//! |---|---|---|---|---|---|
//! | 512 | 8 | 4 | 32, 1 | 256, 1 | 264 in turns (512 items), 4 |
//! | 4096 | 8 | 32 | 256, 1 | 256, 8 | 264 in turns, 32 |
//! | 16384 | 32 | 32 | 256, 1 | 256, 8 | 264 in turns, 32 |
//!
//! When a token's splits were as many as the step left room for, its results depended on how many
//! others there were. Against that, one sequence of 4096 or more costs the same; one of 512 has 32
//! blocks of 8 pages instead of 64 of 4: each warp two pages instead of one, both on their way at
//! once. Eight sequences of 4096 leave 32 results of each unit instead of 4: 4 MB more are written
//! and read, most of it in the second-level cache, beside 134 MB of pages (3 %), and the last block
//! of a unit reads 66 KB, about a microsecond; of 16384, a quarter of that part. 64 sequences leave
//! nothing in the workspace; they end a chunk of 64 KB, which takes a block's part of the bandwidth
//! 6000 cycles, with two barriers and about 130 instructions of each thread, while two pages of
//! every warp are on their way. The workspace has room for the chunks of as many tokens as have
//! several shares: 9 MB here.

use super::Shape;
use super::join::Join;
use super::results::{Results, joined_bytes, slot_floats};
use super::tiles::Range;
use crate::cx::{Args, Cx};
use crate::mlir::{Builder, Cmp, V};
use crate::{COUNTER_BYTES, Source, blocks};
use llmcc_abi::PAGE_TOKENS;
use llmcc_ir::target::GpuArch;

/// Most chunks of a token.
const MAX_CHUNKS: usize = 64;
/// Fewest pages of a chunk: two for each of four warps.
const MIN_PAGES: i64 = 8;

/// How a kernel's work is dealt.
pub(super) struct Split {
    /// Query heads of an item.
    pub(super) rows: usize,
    /// Items per token and share.
    pub(super) units: usize,
    /// Of a block, a divisor of [`MIN_PAGES`]: each takes every `warps`-th page.
    pub(super) warps: u32,
    /// Blocks of the grid.
    pub(super) blocks: usize,
    /// Shared memory that the warps need for their pages.
    pub(super) shared: usize,
}

/// A block's work.
#[derive(Clone, Copy)]
pub(super) struct Item {
    pub(super) token: V,
    /// First query head.
    pub(super) head: V,
    pub(super) kv_head: V,
    /// First position that the token sees.
    pub(super) first: V,
    /// Positions that it sees.
    pub(super) seen: V,
    /// Pages `page..end_page`, in chunks of `run` (the last may be shorter).
    pub(super) page: V,
    pub(super) end_page: V,
    run: V,
    /// Chunks `chunk..end_chunk` of the token.
    chunk: V,
    end_chunk: V,
    /// All chunks of the token, and the shares of them.
    pub(super) chunks: V,
    pub(super) shares: V,
    /// Number of the token and unit.
    pub(super) number: V,
}

/// The chunks of an item.
pub(super) struct Chunks<'a> {
    item: &'a Item,
    join: Join<'a>,
}

impl Split {
    /// Blocks that fill the machine with so many on a multiprocessor, as far as there are counters
    /// for them.
    pub(super) fn blocks(gpu: &GpuArch, resident: u32) -> usize {
        ((gpu.sms * resident) as usize).min(COUNTER_BYTES / 4)
    }

    /// Threads of a block.
    pub(super) fn threads(&self) -> u32 {
        self.warps * 32
    }

    /// Most chunks of a token: those that fill the grid if it is alone.
    pub(super) fn most(&self) -> usize {
        (self.blocks / self.units.max(1)).clamp(1, MAX_CHUNKS)
    }

    /// Shared memory of the block: the pages, the results of the warps and their sums, and a word.
    fn shared_bytes(&self, d: usize) -> usize {
        self.shared + joined_bytes(self.warps, self.rows, d)
    }

    /// Emits the kernel: `attend` goes through the chunks of an item by [`Chunks::each`].
    pub(super) fn emit(
        &self,
        cx: &Cx<'_>,
        shape: &Shape,
        generic: Option<&'static str>,
        min_blocks: u32,
        attend: impl FnOnce(&mut Builder, Args<'_>, &Item, &Chunks<'_>),
    ) -> Source {
        let d = shape.spec.value_dim;
        let (mlir, program) = cx.function(self.threads(), min_blocks, |b, args| {
            let results = Results::new(b, self, d);
            self.each_item(cx, b, args, shape, |b, item| {
                let chunks = Chunks { item, join: Join { split: self, shape, args, item, results } };
                attend(b, args, item, &chunks);
            });
        });
        // Tokens have several shares while all their units fit the grid twice.
        let slots = self.blocks / 2 * self.most();
        Source {
            entry: cx.entry(),
            mlir,
            program,
            threads: self.threads(),
            shared: self.shared_bytes(d) as u32,
            grid: [blocks(self.blocks), blocks(1), blocks(1)],
            scratch: (COUNTER_BYTES + slots * slot_floats(self.rows, d) * 4) as u64,
            scratch_per_m: 0,
            generic,
        }
    }

    /// Runs `body` for the items of this block.
    fn each_item(
        &self,
        cx: &Cx<'_>,
        b: &mut Builder,
        args: Args<'_>,
        shape: &Shape,
        body: impl FnOnce(&mut Builder, &Item),
    ) {
        let tokens = cx.row_count(b, args);
        let numbers = b.mulc(tokens, self.units as i64);
        let (one, most, grid) = (b.i32(1), b.i32(self.most() as i64), b.i32(self.blocks as i64));
        let some = b.max(numbers, one);
        let shares = b.div(grid, some);
        let shares = b.max(shares, one);
        let shares = b.min(shares, most);
        let items = b.mul(numbers, shares);
        let block = b.sreg("ctaid.x");
        b.for_range(block, items, self.blocks as i64, |b, i| {
            let number = b.div(i, shares);
            let start = b.mul(number, shares);
            let share = b.sub(i, start);
            let token = b.divc(number, self.units as i64);
            let start = b.mulc(token, self.units as i64);
            let unit = b.sub(number, start);
            let head = b.mulc(unit, self.rows as i64);
            let kv_head = b.divc(head, shape.group as i64);
            let position = args.position(b, token);
            b.assume(position, &[5, 1000]);
            let seen = shape.range(b, args, token, position);
            let (first_page, end) = pages_of(b, shape, position, seen);
            let pages = b.sub(end, first_page);
            let run = self.run(b, pages);
            let chunks = ceil_div(b, pages, run);
            // Chunks of a share, and shares that have any: one, where there are no chunks.
            let some = |b: &mut Builder, x| if shape.may_be_blind() { b.max(x, one) } else { x };
            let each = ceil_div(b, chunks, shares);
            let each = some(b, each);
            let used = ceil_div(b, chunks, each);
            let used = some(b, used);
            let chunk = b.mul(share, each);
            let end_chunk = b.add(chunk, each);
            let end_chunk = b.min(end_chunk, chunks);
            let page_of = |b: &mut Builder, chunk: V| {
                let offset = b.mul(chunk, run);
                b.add(first_page, offset)
            };
            let (page, end_page) = (page_of(b, chunk), page_of(b, end_chunk));
            let end_page = b.min(end_page, end);
            let has_work = b.cmp(Cmp::Ult, share, used);
            let item = Item {
                token,
                head,
                kv_head,
                first: seen.first,
                seen: seen.count,
                page,
                end_page,
                run,
                chunk,
                end_chunk,
                chunks,
                shares: used,
                number,
            };
            b.if_(has_work, |b| body(b, &item));
        });
    }

    /// Pages of a chunk of a token that sees so many: a multiple of the warps, so that a warp's
    /// pages are equally far apart in all chunks.
    fn run(&self, b: &mut Builder, pages: V) -> V {
        let wide = self.most() as i64 * i64::from(self.warps);
        let up = b.addc(pages, wide - 1);
        let each = b.divc(up, wide);
        let run = b.mulc(each, i64::from(self.warps));
        let least = b.i32(MIN_PAGES);
        b.max(run, least)
    }
}

impl Chunks<'_> {
    /// Goes through the chunks. `body` gets the pages `first..end` of a chunk and what is carried
    /// round, leaves the results of the warps in shared memory, and returns what is carried on.
    pub(super) fn each(
        &self,
        b: &mut Builder,
        init: &[V],
        body: impl FnOnce(&mut Builder, (V, V), &[V], &Results) -> Vec<V>,
    ) {
        let item = self.item;
        let one = b.i32(1);
        self.join.clear(b);
        b.for_((item.chunk, item.end_chunk, one), init, |b, chunk, carried| {
            let number = b.sub(chunk, item.chunk);
            let offset = b.mul(number, item.run);
            let page = b.add(item.page, offset);
            let end = b.add(page, item.run);
            let end = b.min(end, item.end_page);
            let next = body(b, (page, end), carried, &self.join.results);
            b.barrier();
            self.join.take(b, chunk);
            b.barrier();
            next
        });
        self.join.finish(b);
    }
}

/// First page of what a token at `position` sees, and the one after the last.
fn pages_of(b: &mut Builder, shape: &Shape, position: V, Range { first, count }: Range) -> (V, V) {
    if shape.may_be_blind() {
        // Of no rows there is no last.
        let up = b.addc(count, PAGE_TOKENS as i64 - 1);
        return (first, b.divc(up, PAGE_TOKENS as i64));
    }
    let last = if shape.causal {
        position
    } else {
        let end = b.add(first, count);
        b.addc(end, -1)
    };
    let (first_page, last_page) = (b.shrc(first, 4), b.shrc(last, 4));
    (first_page, b.addc(last_page, 1))
}

fn ceil_div(b: &mut Builder, x: V, y: V) -> V {
    let up = b.add(x, y);
    let up = b.addc(up, -1);
    b.div(up, y)
}
