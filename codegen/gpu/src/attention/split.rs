//! How decoding is cut into pieces of work.
//!
//! The range that a token sees is cut into **chunks** of pages; their number and length depend on
//! the token alone: as would fill the machine if nothing else were there (at most [`MAX_CHUNKS`]),
//! and no shorter than [`MIN_PAGES`]. Each chunk is reduced to `(maximum, sum, weighted values)`
//! per head, by the warps of one team, and the chunks are added in their order
//! ([`join`](super::join)). The cut determines all bits of a result; the assignment of chunks to
//! teams determines no bit.
//!
//! So the dealing may follow the step ([`deal`](super::deal)). The grid is fixed, and all chunks of
//! the step are shared out equally among its **teams**: blocks, or parts of them. An **item** is a
//! team's part of a token and a unit (the query heads that share a pass over the cache). A team
//! goes through the chunks of an item without a pause: copies of the next one are under way while
//! one is finished. Where it has all of them, it adds them up as it goes; where an item is cut,
//! every team leaves its chunks in the workspace, and the team that counts last adds all.
//!
//! # What it costs
//!
//! 8 KV heads of 128, four query heads each, 16 bits, on 132 multiprocessors: 264 teams, 8 units,
//! at most 33 chunks; a page has 8 KB per unit, the result of a chunk 2 KB.
//!
//! | tokens seen | pages of a chunk | chunks | 1 sequence: teams at work, chunks of each | 8 sequences | 64 sequences |
//! |---|---|---|---|---|---|
//! | 512 | 8 | 4 | 32, 1 | 256, 1 | 256, 8 |
//! | 4096 | 8 | 32 | 256, 1 | 256, 8 | 261, 63 |
//! | 16384 | 32 | 32 | 256, 1 | 256, 8 | 261, 63 |
//!
//! When a token's splits were as many as the step left room for, its results depended on how many
//! others there were. Against that, one sequence of 4096 or more costs the same; one of 512 has 32
//! blocks of 8 pages instead of 64 of 4: each warp two pages instead of one, both on their way at
//! once. Eight sequences of 4096 leave 32 results of each unit instead of 4: 4 MB more are written
//! and read, most of it in the second-level cache, beside 134 MB of pages (3 %), and the last team
//! of a unit reads 66 KB, about a microsecond; of 16384, a quarter of that part. With many
//! sequences, only items cut at the borders of shares are left: one or two per team. A team ends a
//! chunk of 64 KB, which takes its part of the bandwidth 6000 cycles, with two barriers and about
//! 130 instructions of each thread, while two pages of every warp are on their way. The workspace
//! has room for the chunks of one item that is cut of each team: 18 MB here.

use super::deal::{Deal, Served};
use super::join::Join;
use super::results::{Results, joined_bytes, slot_floats};
use super::shape::Shape;
use super::share::{Item, Split, Team};
use crate::cx::{Args, Cx};
use crate::mlir::{Builder, V};
use crate::{COUNTER_BYTES, Source, blocks};

/// The chunks of an item.
pub(super) struct Chunks<'a> {
    item: &'a Item,
    join: Join<'a>,
}

impl Split {
    /// Shared memory of a block: for each team the pages, the results of the warps and their sums,
    /// a word, and its share.
    pub(super) fn shared_bytes(&self, d: usize) -> usize {
        self.teams * (self.shared + joined_bytes(self.parts, self.rows, d))
    }

    /// Bytes of the workspace: a counter for each team, and the chunks of an item that is cut.
    pub(super) fn scratch(&self, d: usize) -> u64 {
        (COUNTER_BYTES + self.all_teams() * self.most * slot_floats(self.rows, d) * 4) as u64
    }

    /// Emits a kernel whose blocks are teams: `attend` goes through the chunks of an item by
    /// [`Chunks::each`].
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
            let block = b.sreg("ctaid.x");
            let team = self.team(b, block);
            self.serve(b, (cx, shape, args), (team, Served::All), |b, item, chunks| attend(b, args, item, chunks));
        });
        Source {
            shared: self.shared_bytes(d) as u32,
            scratch: self.scratch(d),
            generic,
            ..Source::new(cx.entry(), (mlir, program), self.threads(), [blocks(self.blocks), blocks(1), blocks(1)])
        }
    }

    /// Emits a team's work.
    pub(super) fn serve(
        &self,
        b: &mut Builder,
        (cx, shape, args): (&Cx<'_>, &Shape, Args<'_>),
        (team, served): (Team, Served),
        attend: impl FnOnce(&mut Builder, &Item, &Chunks<'_>),
    ) {
        let results = Results::new(b, self, &team, shape.spec.value_dim);
        let m = cx.row_count(b, args);
        Deal { split: self, shape, args, team, served, m, words: results.share }.each_item(b, |b, item| {
            let chunks = Chunks { item, join: Join { split: self, shape, args, item, results } };
            attend(b, item, &chunks);
        });
    }
}

impl Chunks<'_> {
    /// How the work is cut.
    pub(super) fn split(&self) -> &Split {
        self.join.split
    }

    /// Goes through the chunks. `body` gets the pages `first..end` of a chunk and the carried
    /// values, leaves the results of the warps in shared memory, and returns the values to carry
    /// on.
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
