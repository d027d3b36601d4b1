//! The query rows of a block of prompt attention: some adjacent tokens with all query heads of one
//! KV head, numbered token by token.

use super::lone::Grid;
use super::shape::{Range, Shape};
use crate::cx::{Args, Cx, when_below};
use crate::mlir::{Builder, Cmp, I32, V};
use crate::tokens::is_lone;

/// Tokens of a block.
#[derive(Clone, Copy)]
pub(super) struct Block<'a> {
    pub(super) shape: &'a Shape,
    pub(super) args: Args<'a>,
    pub(super) kv_head: V,
    /// First token, and number of tokens.
    pub(super) token0: V,
    pub(super) count: V,
    /// Tokens of the step.
    m: V,
    /// Whether other blocks take tokens that are alone of their sequence.
    pub(super) skips: bool,
}

/// A query.
pub(super) struct Row {
    /// Token of the step.
    pub(super) token: V,
    pub(super) head: V,
    pub(super) seq: V,
    /// Nothing, if the row is not used.
    pub(super) range: Range,
    /// False for rows that pad the block; they repeat a token.
    pub(super) used: V,
}

impl<'a> Block<'a> {
    /// Emits a block's work on at most `grid.tokens` tokens. Blocks with the last tokens come first:
    /// they have the longest walks.
    pub(super) fn take(
        b: &mut Builder,
        (cx, shape, args): (&Cx<'_>, &'a Shape, Args<'a>),
        grid: &Grid<'_>,
        body: impl FnOnce(&mut Builder, Block<'a>),
    ) {
        let tokens = grid.tokens as i64;
        let m = cx.row_count(b, args);
        let up = b.addc(m, tokens - 1);
        let tiles = b.divc(up, tokens);
        let (kv_head, number) = grid.place(b, |b, name| b.sreg(name));
        when_below(b, number, tiles, |b| {
            let block = Block::of(b, (shape, args), grid, (m, tiles), (kv_head, number));
            body(b, block);
        });
    }

    /// Block `number` of a KV head, of a step of `m` tokens.
    fn of(
        b: &mut Builder,
        (shape, args): (&'a Shape, Args<'a>),
        grid: &Grid<'_>,
        (m, tiles): (V, V),
        (kv_head, number): (V, V),
    ) -> Block<'a> {
        let last = b.addc(tiles, -1);
        let tile = b.sub(last, number);
        let token0 = b.mulc(tile, grid.tokens as i64);
        let count = b.sub(m, token0);
        let most = b.i32(grid.tokens as i64);
        let count = b.min(count, most);
        Block { shape, args, kv_head, token0, count, m, skips: grid.lone.is_some() }
    }

    /// Runs `body` with the same block, found anew: beside the sums of large heads no register is
    /// free.
    pub(super) fn anew<R>(
        &self,
        b: &mut Builder,
        (cx, grid): (&Cx<'_>, &Grid<'_>),
        body: impl FnOnce(&mut Builder, Block<'_>) -> R,
    ) -> R {
        self.args.anew(b, |b, args| {
            let m = cx.row_count(b, args);
            let up = b.addc(m, grid.tokens as i64 - 1);
            let tiles = b.divc(up, grid.tokens as i64);
            let place = grid.place(b, |b, name| {
                let register = format!("mov.u32 $0, %{name};");
                b.asm_volatile(I32, &register, "=r", &[])
            });
            let block = Block::of(b, (self.shape, args), grid, (m, tiles), place);
            body(b, block)
        })
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
        let used = match self.skipped(b, token) {
            Some(skipped) => {
                let none = b.no();
                b.select(skipped, none, used)
            }
            None => used,
        };
        let first = b.mulc(self.kv_head, group);
        (token, b.add(first, within), used)
    }

    /// Whether other blocks take a token of the step, if there are any.
    pub(super) fn skipped(&self, b: &mut Builder, token: V) -> Option<V> {
        self.skips.then(|| is_lone(b, self.args, (token, self.m), false))
    }

    /// Row number `row`.
    pub(super) fn row(&self, b: &mut Builder, row: V) -> Row {
        let (token, head, used) = self.query(b, row);
        let (range, none) = (self.range(b, token), b.i32(0));
        // A token sees itself, so for unused rows nothing else needs to be kept.
        let count = b.select(used, range.count, none);
        let used = b.cmpc(Cmp::Ne, count, 0);
        Row { token, head, seq: self.args.seq(b, token), range: Range { count, ..range }, used }
    }

    /// First column of a head.
    pub(super) fn column(&self, b: &mut Builder, head: V) -> V {
        b.mulc(head, self.shape.spec.key_dim as i64)
    }
}
