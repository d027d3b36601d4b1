//! Teams of warps, and what each has of the step: see [`split`](super::split).

use crate::COUNTER_BYTES;
use crate::mlir::{Builder, V, WARP};
use llmcc_ir::target::GpuArch;

/// Most chunks of a token.
const MAX_CHUNKS: usize = 64;

/// Fewest pages of a chunk: two for each of four warps.
pub(super) const MIN_PAGES: i64 = 8;

/// How a kernel's work is cut.
#[derive(Clone, Copy)]
pub(super) struct Split {
    /// Query rows of an item: some heads of each of its tokens.
    pub(super) rows: usize,
    /// Most tokens of an item, a power of two: adjacent ones of a sequence that see the same chunks.
    pub(super) tokens: usize,
    /// Items of a token that is not cut.
    pub(super) units: usize,
    /// Warps of a team, a divisor of [`MIN_PAGES`].
    pub(super) warps: u32,
    /// Results of a chunk: of each warp, which takes every `warps`-th page, or one of all.
    pub(super) parts: u32,
    /// Most chunks of a token: those that fill the machine with blocks of one team if it is alone.
    pub(super) most: usize,
    /// Shared memory that the warps of a team need for their pages.
    pub(super) shared: usize,
    /// Teams of a block.
    pub(super) teams: usize,
    /// Blocks that take items.
    pub(super) blocks: usize,
}

/// Warps that take items together: all warps of a block, or a part of them.
#[derive(Clone, Copy)]
pub(super) struct Team {
    /// Number in its block, and teams of a block.
    pub(super) number: V,
    pub(super) of_block: usize,
    /// Number of the thread in it.
    pub(super) thread: V,
    /// Number among all teams.
    pub(super) in_grid: V,
}

/// A row of an item.
pub(super) struct ItemRow {
    /// Token of the step, and query head.
    pub(super) token: V,
    pub(super) head: V,
}

/// A team's share of a token and a unit, or of a few tokens.
#[derive(Clone, Copy)]
pub(super) struct Item {
    pub(super) team: Team,
    /// First token of the step, and how many.
    pub(super) token: V,
    pub(super) tokens: V,
    /// First query head.
    pub(super) head: V,
    pub(super) kv_head: V,
    /// First position that one of the tokens sees.
    pub(super) first: V,
    /// Positions that they see.
    pub(super) seen: V,
    /// Pages `page..end_page`, in chunks of `run` (the last may be shorter).
    pub(super) page: V,
    pub(super) end_page: V,
    pub(super) run: V,
    /// Chunks `chunk..end_chunk` of the token.
    pub(super) chunk: V,
    pub(super) end_chunk: V,
    /// All chunks of the token, and the teams that have some of them.
    pub(super) chunks: V,
    pub(super) shares: V,
    /// The team that has the first of them: of no two items that are cut it is the same.
    pub(super) owner: V,
}

impl Item {
    /// Row `row` of an item of a split; of tokens that are not there, a row of the last.
    pub(super) fn row(&self, b: &mut Builder, split: &Split, row: V) -> ItemRow {
        if split.tokens == 1 {
            return ItemRow { token: self.token, head: b.add(self.head, row) };
        }
        let heads = split.heads() as i64;
        let (nth, within) = (b.divc(row, heads), b.remc(row, heads));
        let last = b.addc(self.tokens, -1);
        let there = b.min(nth, last);
        ItemRow { token: b.add(self.token, there), head: b.add(self.head, within) }
    }
}

impl Split {
    /// Blocks of one team of `warps` warps, so many on a multiprocessor, as far as there are
    /// counters for them; `units` items of a token, `rows` query heads each.
    pub(super) fn new(gpu: &GpuArch, resident: u32, units: usize, (rows, warps): (usize, u32), shared: usize) -> Split {
        let blocks = ((gpu.sms * resident) as usize).min(COUNTER_BYTES / 4);
        let most = (blocks / units.max(1)).clamp(1, MAX_CHUNKS);
        Split { rows, tokens: 1, units, warps, parts: warps, most, shared, teams: 1, blocks }
    }

    /// Query heads of an item.
    pub(super) fn heads(&self) -> usize {
        self.rows / self.tokens
    }

    /// Threads of a team.
    pub(super) fn threads(&self) -> u32 {
        self.warps * WARP as u32
    }

    /// Teams of all blocks.
    pub(super) fn all_teams(&self) -> usize {
        self.teams * self.blocks
    }

    /// The team that a thread of the block's teams is in; `block`: the block's number among those
    /// that take items.
    pub(super) fn team(&self, b: &mut Builder, block: V) -> Team {
        let (tid, zero) = (b.sreg("tid.x"), b.i32(0));
        if self.teams == 1 {
            return Team { number: zero, of_block: 1, thread: tid, in_grid: block };
        }
        let number = b.divc(tid, i64::from(self.threads()));
        // The same in all lanes, and known to be.
        let number = b.shuffle_from(number, zero);
        let first = b.mulc(block, self.teams as i64);
        Team {
            number,
            of_block: self.teams,
            thread: b.remc(tid, i64::from(self.threads())),
            in_grid: b.add(first, number),
        }
    }
}
