//! The walks of a block: which pages of which sequences its tokens see. Usually it is one. Found by the first of the warps that bring.

use super::{Attend, PAGES, TILE, WARPS};
use crate::mlir::{Builder, Cmp, I32, V, V4I32};
use llmcc_abi::PAGE_TOKENS;

/// Bytes of an entry: sequence, first position, position after the last.
const ENTRY: usize = 16;
const LANES: usize = 32;
const NONE: i64 = i32::MAX as i64;

/// Shared memory of the list: the number of walks, then their entries.
pub(super) fn bytes(tokens: usize) -> usize {
    ENTRY * (1 + tokens)
}

/// A walk over the pages of one sequence.
pub(super) struct Walk {
    pub(super) seq: V,
    /// First position that some row sees, and the number of positions.
    pub(super) first: V,
    pub(super) count: V,
    /// Page where the first tile begins: tiles are the same ones wherever a window begins, else a row's bits would depend on the other tokens.
    pub(super) page: V,
    /// First page that is there, and the page after the last.
    pub(super) there: V,
    pub(super) end: V,
    /// Tiles, at least 1.
    pub(super) tiles: V,
}

/// A token of a lane.
struct Token {
    /// In the block.
    number: V,
    seq: V,
    first: V,
    end: V,
}

impl Attend<'_> {
    fn entry(&self, b: &mut Builder, number: V) -> V {
        let base = b.shared_at(self.plan.list_at() + ENTRY);
        let offset = b.mulc(number, ENTRY as i64);
        b.at(base, offset)
    }

    /// Writes the list. A barrier must follow.
    pub(super) fn list(&self, b: &mut Builder) {
        let first = b.cmpc(Cmp::Slt, self.tid, (WARPS * LANES + LANES) as i64);
        b.if_(first, |b| {
            let tokens: Vec<Token> = (0..self.plan.tokens.div_ceil(LANES)).map(|i| self.token(b, i)).collect();
            let left: Vec<V> = tokens
                .iter()
                .map(|t| {
                    let inside = b.cmp(Cmp::Slt, t.number, self.block.count);
                    b.zext(inside, I32)
                })
                .collect();
            let (none, one) = (b.i32(0), b.i32(1));
            let left = self.note(b, none, &tokens, &left);
            // Tokens of other sequences: as many turns as there may be of them, most of which find nothing left.
            let others = any(b, &left);
            let turns = b.select(others, self.block.count, one);
            let mut carried = vec![one];
            carried.extend(left);
            let types = vec![I32; carried.len()];
            let done = b.for_((one, turns, one), &carried, |b, _, carried| {
                let (number, left) = (carried[0], &carried[1..]);
                let more = any(b, left);
                b.if_else(
                    more,
                    &types,
                    |b| {
                        let left = self.note(b, number, &tokens, left);
                        [vec![b.addc(number, 1)], left].concat()
                    },
                    |_| carried.to_vec(),
                )
            });
            let chosen = b.cmpc(Cmp::Eq, self.lane, 0);
            b.if_(chosen, |b| {
                let at = b.shared_at(self.plan.list_at());
                b.store(done[0], at);
            });
        });
    }

    fn token(&self, b: &mut Builder, i: usize) -> Token {
        let number = b.addc(self.lane, (i * LANES) as i64);
        let last = b.addc(self.block.count, -1);
        let inside = b.min(number, last);
        let token = b.add(self.block.token0, inside);
        let range = self.block.range(b, token);
        Token { number, seq: self.block.args.seq(b, token), first: range.first, end: b.add(range.first, range.count) }
    }

    /// Notes, as walk `number`, that of the first token that is left; returns which tokens are left then.
    fn note(&self, b: &mut Builder, number: V, tokens: &[Token], left: &[V]) -> Vec<V> {
        let most = b.i32(NONE);
        let lowest = tokens.iter().zip(left).fold(most, |lowest, (t, left)| {
            let is = b.cmpc(Cmp::Ne, *left, 0);
            let number = b.select(is, t.number, most);
            b.min(lowest, number)
        });
        let lowest = b.redux(lowest, "umin");
        let token = b.add(self.block.token0, lowest);
        let seq = self.block.args.seq(b, token);
        let (mut first, mut end, mut rest) = (most, b.i32(0), vec![]);
        for (t, left) in tokens.iter().zip(left) {
            let (is, same, zero) = (b.cmpc(Cmp::Ne, *left, 0), b.cmp(Cmp::Eq, t.seq, seq), b.i32(0));
            let mine = b.and(is, same);
            let (low, high) = (b.select(mine, t.first, most), b.select(mine, t.end, zero));
            (first, end) = (b.min(first, low), b.max(end, high));
            rest.push(b.select(mine, zero, *left));
        }
        let (first, end) = (b.redux(first, "umin"), b.redux(end, "umax"));
        let chosen = b.cmpc(Cmp::Eq, self.lane, 0);
        b.if_(chosen, |b| {
            let words = b.pack(&[seq, first, end, end]);
            let at = self.entry(b, number);
            b.store(words, at);
        });
        rest
    }

    /// Number of walks.
    pub(super) fn walks(&self, b: &mut Builder) -> V {
        let at = b.shared_at(self.plan.list_at());
        b.load(at, I32)
    }

    /// Walk `number`.
    pub(super) fn walk(&self, b: &mut Builder, number: V) -> Walk {
        let at = self.entry(b, number);
        let words = b.load(at, V4I32);
        let words = b.unpack(words);
        let (seq, first, end) = (words[0], words[1], words[2]);
        let (there, count) = (b.divc(first, PAGE_TOKENS as i64), b.sub(end, first));
        let page = b.andc(there, -(PAGES as i64));
        let up = b.addc(end, PAGE_TOKENS as i64 - 1);
        let end = b.divc(up, PAGE_TOKENS as i64);
        let pages = b.sub(end, page);
        let up = b.addc(pages, PAGES as i64 - 1);
        Walk { seq, first, count, page, there, end, tiles: b.divc(up, PAGES as i64) }
    }
}

impl Walk {
    /// Position of the first token of a tile.
    pub(super) fn start(&self, b: &mut Builder, tile: V) -> V {
        let (start, skip) = (b.mulc(self.page, PAGE_TOKENS as i64), b.mulc(tile, TILE as i64));
        b.add(start, skip)
    }
}

/// Whether a flag of any lane is set.
fn any(b: &mut Builder, flags: &[V]) -> V {
    let own = flags[1..].iter().fold(flags[0], |any, f| b.or(any, *f));
    let all = b.redux(own, "umax");
    b.cmpc(Cmp::Ne, all, 0)
}
