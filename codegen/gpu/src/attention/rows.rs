//! The query rows of a block of prompt attention: some adjacent tokens with all query heads of one
//! KV head, numbered token by token.

use super::Shape;
use super::tiles::Range;
use crate::cx::{Args, Cx, when_below};
use crate::mlir::{Builder, Cmp, V};

/// What a block takes.
#[derive(Clone, Copy)]
pub(super) struct Block<'a> {
    pub(super) shape: &'a Shape,
    pub(super) args: Args<'a>,
    pub(super) kv_head: V,
    /// First token, and number of tokens.
    pub(super) token0: V,
    pub(super) count: V,
}

/// A query.
pub(super) struct Row {
    /// Token of the step.
    pub(super) token: V,
    pub(super) head: V,
    pub(super) seq: V,
    pub(super) range: Range,
    /// False for rows that pad the block; they repeat a token.
    pub(super) used: V,
}

impl<'a> Block<'a> {
    /// Emits a block's work on at most `tokens` tokens. Blocks with the last tokens come first:
    /// they have the longest walks.
    pub(super) fn take(
        b: &mut Builder,
        (cx, shape, args): (&Cx<'_>, &'a Shape, Args<'a>),
        tokens: usize,
        body: impl FnOnce(&mut Builder, Block<'a>),
    ) {
        let m = cx.row_count(b, args);
        let up = b.addc(m, tokens as i64 - 1);
        let tiles = b.divc(up, tokens as i64);
        let y = b.sreg("ctaid.y");
        when_below(b, y, tiles, |b| {
            let last = b.addc(tiles, -1);
            let tile = b.sub(last, y);
            let token0 = b.mulc(tile, tokens as i64);
            let count = b.sub(m, token0);
            let most = b.i32(tokens as i64);
            let count = b.min(count, most);
            let kv_head = b.sreg("ctaid.x");
            body(b, Block { shape, args, kv_head, token0, count });
        });
    }

    /// Positions that a token of the step sees.
    pub(super) fn range(&self, b: &mut Builder, token: V) -> Range {
        let position = self.args.position(b, token);
        self.shape.range(b, self.args, token, position)
    }

    /// Token of the step, query head, and whether it is used, of row number `row`.
    pub(super) fn query(&self, b: &mut Builder, row: V) -> (V, V, V) {
        let group = self.shape.group as i64;
        let i = b.divc(row, group);
        let skip = b.mulc(i, group);
        let within = b.sub(row, skip);
        let used = b.cmp(Cmp::Slt, i, self.count);
        let last = b.addc(self.count, -1);
        let i = b.min(i, last);
        let token = b.add(self.token0, i);
        let first = b.mulc(self.kv_head, group);
        (token, b.add(first, within), used)
    }

    /// Row number `row`.
    pub(super) fn row(&self, b: &mut Builder, row: V) -> Row {
        let (token, head, used) = self.query(b, row);
        Row { token, head, seq: self.args.seq(b, token), range: self.range(b, token), used }
    }

    /// First column of a head.
    pub(super) fn column(&self, b: &mut Builder, head: V) -> V {
        b.mulc(head, self.shape.spec.key_dim as i64)
    }
}
