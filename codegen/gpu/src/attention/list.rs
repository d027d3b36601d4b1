//! The walks of a block of prompt attention: the pages and sequences that its tokens see, in the
//! order of each sequence's first token. Usually it is one.

use super::rows::Block;
use super::shape::Range;
use crate::mlir::{Builder, Cmp, I32, Memory, V, V4I32, WARP};
use llmcc_abi::PAGE_TOKENS;

/// Bytes of an entry: sequence, first position, position after the last.
const ENTRY: usize = 16;
const LANES: usize = WARP;
const NONE: i64 = i32::MAX as i64;

/// The list, in shared memory: the number of walks, then their entries.
#[derive(Clone, Copy)]
pub(super) struct List {
    /// Where it lies, a multiple of 16.
    pub(super) at: usize,
    /// Most tokens of a block.
    pub(super) tokens: usize,
}

/// A walk over the pages of one sequence.
pub(super) struct Walk {
    pub(super) seq: V,
    /// Positions that some row sees.
    pub(super) range: Range,
    /// Page where the first pages that are attended to together begin: they are the same ones
    /// wherever a window begins, else a row's bits would depend on the other tokens.
    pub(super) page: V,
    /// First page that is there, and the page after the last.
    pub(super) there: V,
    pub(super) end: V,
}

/// A token of a lane.
struct Token {
    /// In the block.
    number: V,
    seq: V,
    first: V,
    end: V,
    /// Whether other blocks take it.
    skipped: Option<V>,
}

impl List {
    /// Bytes of shared memory.
    pub(super) fn bytes(&self) -> usize {
        ENTRY * (1 + self.tokens)
    }

    /// Says where it lies.
    pub(super) fn declare(&self, b: &mut Builder) {
        let of = |name, at, bytes| Memory { name, at, bytes, stages: 1, conflict_free: false, over: &[] };
        b.buffer(of("number of walks", self.at, ENTRY));
        b.buffer(of("walks", self.at + ENTRY, ENTRY * self.tokens));
    }

    fn entry(&self, b: &mut Builder, number: V) -> V {
        let base = b.shared_at(self.at + ENTRY);
        let offset = b.mulc(number, ENTRY as i64);
        b.at(base, offset)
    }

    /// Writes the list, as lane `lane` of one warp. A barrier must follow.
    pub(super) fn write(&self, b: &mut Builder, block: &Block<'_>, lane: V) {
        let tokens: Vec<Token> = (0..self.tokens.div_ceil(LANES)).map(|i| Token::new(b, block, lane, i)).collect();
        let left: Vec<V> = tokens
            .iter()
            .map(|t| {
                let inside = b.cmp(Cmp::Slt, t.number, block.count);
                let inside = b.zext(inside, I32);
                let Some(skipped) = t.skipped else { return inside };
                let none = b.i32(0);
                b.select(skipped, none, inside)
            })
            .collect();
        let (none, one) = (b.i32(0), b.i32(1));
        let note = |b: &mut Builder, number, left: &[V]| self.note(b, (block, lane), number, &tokens, left);
        let first = |b: &mut Builder| {
            let rest = note(b, none, &left);
            [vec![one], rest].concat()
        };
        let carried = if block.skips {
            // Others may take them all.
            let some = flags(b, &left);
            b.assume(some, &[1]);
            let some = b.cmpc(Cmp::Ne, some, 0);
            let types = vec![I32; 1 + left.len()];
            b.if_else(some, &types, first, |_| [vec![none], left.clone()].concat())
        } else {
            first(b)
        };
        let left = &carried[1..];
        // Tokens of other sequences: one turn for each possible sequence; most turns find nothing
        // left.
        let others = any(b, left);
        b.assume(others, &[0]);
        let turns = b.select(others, block.count, one);
        let types = vec![I32; carried.len()];
        let done = b.for_((one, turns, one), &carried, |b, _, carried| {
            let (number, left) = (carried[0], &carried[1..]);
            let more = any(b, left);
            b.if_else(
                more,
                &types,
                |b| {
                    let left = note(b, number, left);
                    [vec![b.addc(number, 1)], left].concat()
                },
                |_| carried.to_vec(),
            )
        });
        let chosen = b.cmpc(Cmp::Eq, lane, 0);
        b.if_(chosen, |b| {
            let at = b.shared_at(self.at);
            b.store(done[0], at);
        });
    }

    /// Notes, as walk `number`, that of the first token that is left; returns which tokens are left
    /// then.
    fn note(&self, b: &mut Builder, (block, lane): (&Block<'_>, V), number: V, tokens: &[Token], left: &[V]) -> Vec<V> {
        let most = b.i32(NONE);
        let lowest = tokens.iter().zip(left).fold(most, |lowest, (t, left)| {
            let is = b.cmpc(Cmp::Ne, *left, 0);
            let number = b.select(is, t.number, most);
            b.min(lowest, number)
        });
        let lowest = b.redux(lowest, "umin");
        let token = b.add(block.token0, lowest);
        let seq = block.args.seq(b, token);
        let (mut first, mut end, mut rest) = (most, b.i32(0), vec![]);
        for (t, left) in tokens.iter().zip(left) {
            let (is, same, zero) = (b.cmpc(Cmp::Ne, *left, 0), b.cmp(Cmp::Eq, t.seq, seq), b.i32(0));
            let mine = b.and(is, same);
            let (low, high) = (b.select(mine, t.first, most), b.select(mine, t.end, zero));
            (first, end) = (b.min(first, low), b.max(end, high));
            rest.push(b.select(mine, zero, *left));
        }
        let (first, end) = (b.redux(first, "umin"), b.redux(end, "umax"));
        let chosen = b.cmpc(Cmp::Eq, lane, 0);
        b.if_(chosen, |b| {
            let words = b.pack(&[seq, first, end, end]);
            let at = self.entry(b, number);
            b.store(words, at);
        });
        rest
    }

    /// Number of walks.
    pub(super) fn count(&self, b: &mut Builder) -> V {
        let at = b.shared_at(self.at);
        let count = b.load(at, I32);
        b.assume(count, &[2]);
        count
    }

    /// Walk `number`, `pages` (a power of two) being attended to together.
    pub(super) fn walk(&self, b: &mut Builder, number: V, pages: usize) -> Walk {
        let at = self.entry(b, number);
        let words = b.load(at, V4I32);
        let words = b.unpack(words);
        let (seq, first, end) = (words[0], words[1], words[2]);
        // Some tiles, the last of them partial.
        [(seq, 0), (first, 20), (end, 900)].into_iter().for_each(|(v, x)| b.assume(v, &[x]));
        let (there, count) = (b.divc(first, PAGE_TOKENS as i64), b.sub(end, first));
        let page = b.andc(there, -(pages as i64));
        let up = b.addc(end, PAGE_TOKENS as i64 - 1);
        Walk { seq, range: Range { first, count }, page, there, end: b.divc(up, PAGE_TOKENS as i64) }
    }
}

impl Token {
    fn new(b: &mut Builder, block: &Block<'_>, lane: V, i: usize) -> Token {
        let number = b.addc(lane, (i * LANES) as i64);
        let last = b.addc(block.count, -1);
        let inside = b.min(number, last);
        let token = b.add(block.token0, inside);
        let range = block.range(b, token);
        Token {
            number,
            seq: block.args.seq(b, token),
            first: range.first,
            end: b.add(range.first, range.count),
            skipped: block.skipped(b, token),
        }
    }
}

/// Not 0 if a flag of any lane is set.
fn flags(b: &mut Builder, flags: &[V]) -> V {
    let own = flags[1..].iter().fold(flags[0], |any, f| b.or(any, *f));
    b.redux(own, "umax")
}

/// Whether a flag of any lane is set.
fn any(b: &mut Builder, of_lane: &[V]) -> V {
    let all = flags(b, of_lane);
    b.cmpc(Cmp::Ne, all, 0)
}
