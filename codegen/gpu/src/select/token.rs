//! A block's tokens, and what it has of each.

use super::best::Ranks;
use super::plan::Plan;
use crate::cx::Args;
use crate::mlir::{Builder, Cmp, Elem, V};
use crate::nth::THREADS;
use crate::piece::{col_at, row_at};
use llmcc_ir::kernel::RowElem;

/// Most parts of a token, and the fewest rows of one.
const PARTS: i64 = 128;
const PART_ROWS: i64 = 256;

/// A block's share of the step: a part of each of some tokens.
pub(super) struct Share {
    /// Its first token, and the distance to the next.
    pub(super) first: V,
    pub(super) step: V,
    /// Number of its part, of so many.
    part: V,
    parts: V,
}

impl Share {
    /// With `all` blocks for `m` tokens: where a token has several parts, a block has one of one token, and those
    /// that are left over have none.
    pub(super) fn new(b: &mut Builder, m: V, all: i64) -> Share {
        let (block, all, most, one) = (b.sreg("ctaid.x"), b.i32(all), b.i32(PARTS), b.i32(1));
        let tokens = b.max(m, one);
        let parts = b.div(all, tokens);
        let parts = b.min(parts, most);
        let parts = b.max(parts, one);
        let first = b.div(block, parts);
        let before = b.mul(first, parts);
        Share { first, step: b.div(all, parts), part: b.sub(block, before), parts }
    }
}

/// A block's work on a token.
pub(super) struct Token<'a> {
    pub(super) plan: &'a Plan<'a>,
    pub(super) args: Args<'a>,
    pub(super) ranks: &'a Ranks<'a>,
    pub(super) token: V,
    /// Rows of the cache that it sees.
    pub(super) rows: V,
    /// Address of the token's row of the block table.
    pub(super) table: V,
    /// Where the numbers go.
    pub(super) out: V,
    /// The block's part, and parts that have rows.
    pub(super) part: V,
    pub(super) parts: V,
    /// Number of the first part's result in the workspace.
    pub(super) result: V,
}

impl<'a> Token<'a> {
    pub(super) fn new(
        b: &mut Builder,
        (plan, args): (&'a Plan<'a>, Args<'a>),
        ranks: &'a Ranks<'a>,
        share: &Share,
        token: V,
    ) -> Token<'a> {
        let (every, top) = (plan.spec.every as i64, plan.select.top as i64);
        let position = args.position(b, token);
        // All rows are selected; a few tiles of one part, and of several.
        b.assume(position, &[0, every * (top + 3 * PART_ROWS), every * (top + 70)]);
        let end = b.addc(position, 1);
        let rows = b.divc(end, every);
        let up = b.addc(rows, PART_ROWS - 1);
        let filled = b.divc(up, PART_ROWS);
        let seq = args.seq(b, token);
        let table = args.table(b, seq);
        let out = row_at(b, args.operand(plan.select.out), plan.select.top, RowElem::F32, token);
        let parts = b.min(share.parts, filled);
        Token { plan, args, ranks, token, rows, table, out, part: share.part, parts, result: b.mul(token, share.parts) }
    }

    pub(super) fn top(&self) -> i64 {
        self.plan.select.top as i64
    }

    /// Runs `body` for the columns of the result, shared out.
    pub(super) fn each_column(&self, b: &mut Builder, body: impl FnOnce(&mut Builder, V) -> V) {
        let top = b.i32(self.top());
        b.for_range(self.ranks.tid, top, THREADS as i64, |b, col| {
            let value = body(b, col);
            let p = col_at(b, self.out, Elem::F32, col);
            b.store(value, p);
        });
    }

    /// Runs `body` in the first thread.
    pub(super) fn one_thread(&self, b: &mut Builder, body: impl FnOnce(&mut Builder)) {
        let first = b.cmpc(Cmp::Eq, self.ranks.tid, 0);
        b.if_(first, body);
    }
}
