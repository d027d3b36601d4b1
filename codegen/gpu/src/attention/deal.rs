//! Which team takes which chunks: see [`split`](super::split).
//!
//! All chunks of the step are numbered, token by token, in each unit by unit. Every team has as many
//! adjacent ones as any other, but for the last teams, whatever the lengths of the sequences are. To
//! find its own, each warp counts the chunks of all tokens, [`WIDE`] per lane at a time: a lane needs
//! a token's position, and divides twice.

use super::shape::{Range, Shape};
use super::share::{Item, MIN_PAGES, Split, Team};
use crate::cx::Args;
use crate::mlir::{Builder, Cmp, V, V4I32, WARP};
use crate::tokens::is_lone;
use llmcc_abi::PAGE_TOKENS;

/// Tokens of a lane that are looked at together, at least.
const WIDE: usize = 2;

/// Which tokens are taken.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Served {
    /// All of the step.
    All,
    /// Those that are alone of their sequence.
    Lone,
}

/// A team's view of the step.
pub(super) struct Deal<'a> {
    pub(super) split: &'a Split,
    pub(super) shape: &'a Shape,
    pub(super) args: Args<'a>,
    pub(super) team: Team,
    pub(super) served: Served,
    /// Tokens of the step.
    pub(super) m: V,
    /// Four words of shared memory for the share's limits at each item: registers are short beside
    /// the pages.
    pub(super) words: V,
}

/// The positions that a token sees, or all tokens of an item, and how they are cut.
#[derive(Clone, Copy)]
struct Sight {
    range: Range,
    /// Pages `page..end`, in chunks of `run`.
    page: V,
    end: V,
    run: V,
    chunks: V,
    /// The same, at least 1, if the token is taken, and the first of its item; else 0.
    dealt: V,
    /// Tokens of the item.
    tokens: V,
}

impl Sight {
    /// This or another one.
    fn or(self, b: &mut Builder, this: V, other: Sight) -> Sight {
        let mut pick = |x: V, y: V| b.select(this, x, y);
        Sight {
            range: Range {
                first: pick(self.range.first, other.range.first),
                count: pick(self.range.count, other.range.count),
            },
            page: pick(self.page, other.page),
            end: pick(self.end, other.end),
            run: pick(self.run, other.run),
            chunks: pick(self.chunks, other.chunks),
            dealt: pick(self.dealt, other.dealt),
            tokens: pick(self.tokens, other.tokens),
        }
    }
}

/// A team's chunks.
struct Portion {
    /// Whether there are any.
    some: V,
    /// Tokens that have the first and the last of them, and the chunks before the first token.
    token: V,
    last: V,
    before: V,
}

impl Deal<'_> {
    fn units(&self) -> i64 {
        self.split.units as i64
    }

    /// The positions that token `token` of the step sees; `inside`: whether it is one.
    fn sight(&self, b: &mut Builder, token: V, inside: Option<V>) -> Sight {
        let position = self.args.position(b, token);
        b.assume(position, &[900, 5, 1000]);
        let range = self.shape.range(b, self.args, token, position);
        let (page, end) = pages_of(b, self.shape, position, range);
        let pages = b.sub(end, page);
        let run = self.run(b, pages);
        let chunks = ceil_div(b, pages, run);
        let (zero, one) = (b.i32(0), b.i32(1));
        let some = if self.shape.may_be_blind() { b.max(chunks, one) } else { chunks };
        let lone = match self.served {
            Served::All => None,
            Served::Lone => Some(is_lone(b, self.args, (token, self.m), true)),
        };
        let dealt = [inside, lone].into_iter().flatten().fold(some, |dealt, taken| b.select(taken, dealt, zero));
        Sight { range, page, end, run, chunks, dealt, tokens: one }
    }

    /// The items of the tokens from `base` on, as many as an item has at most: adjacent tokens of a sequence whose
    /// chunks begin with the same pages are one item, which has the chunks of the last of them. Each is told of by
    /// its first token.
    fn items(&self, b: &mut Builder, base: V) -> Vec<Sight> {
        let (last, zero, no) = (b.addc(self.m, -1), b.i32(0), b.no());
        // Sight, sequence and position of each token, and whether it joins the one before.
        let mut all: Vec<(Sight, [V; 2], V)> = vec![];
        for i in 0..self.split.tokens as i64 {
            let token = b.addc(base, i);
            let inside = b.cmp(Cmp::Slt, token, self.m);
            let token = b.min(token, last);
            let sight = self.sight(b, token, Some(inside));
            let of = [self.args.seq(b, token), self.args.position(b, token)];
            of.into_iter().for_each(|v| b.assume(v, &[900, 5, 1000]));
            let joins = all.last().map_or(no, |(before, [seq, position], _)| {
                let next = b.addc(*position, 1);
                let equal = [(of[0], *seq), (of[1], next), (sight.page, before.page), (sight.run, before.run)];
                equal.into_iter().fold(inside, |all, (x, y)| {
                    let same = b.cmp(Cmp::Eq, x, y);
                    b.and(all, same)
                })
            });
            all.push((sight, of, joins));
        }
        for i in (0..all.len()).rev() {
            if let Some((after, _, joined)) = all.get(i + 1).copied() {
                let own = all[i].0;
                let end = b.add(after.range.first, after.range.count);
                let range = Range { first: own.range.first, count: b.sub(end, own.range.first) };
                let with = Sight { range, page: own.page, tokens: b.addc(after.tokens, 1), ..after };
                all[i].0 = with.or(b, joined, own);
            }
        }
        // Tokens that join others are no items.
        all.iter().map(|(sight, _, joins)| Sight { dealt: b.select(*joins, zero, sight.dealt), ..*sight }).collect()
    }

    /// The item whose first token is `token`.
    fn item(&self, b: &mut Builder, token: V) -> Sight {
        let tokens = self.split.tokens as i64;
        if tokens == 1 {
            return self.sight(b, token, None);
        }
        let base = b.andc(token, -tokens);
        let nth = b.sub(token, base);
        let all = self.items(b, base);
        all[1..].iter().enumerate().fold(all[0], |found, (i, sight)| {
            let this = b.cmpc(Cmp::Eq, nth, i as i64 + 1);
            sight.or(b, this, found)
        })
    }

    /// Tokens of a lane that are looked at together.
    fn wide(&self) -> i64 {
        self.split.tokens.max(WIDE) as i64
    }

    /// Pages of a chunk of a token that sees so many: a multiple of the warps, so that a warp's
    /// pages are equally far apart in all chunks.
    fn run(&self, b: &mut Builder, pages: V) -> V {
        let wide = self.split.most as i64 * i64::from(self.split.warps);
        let up = b.addc(pages, wide - 1);
        let each = b.divc(up, wide);
        let run = b.mulc(each, i64::from(self.split.warps));
        let least = b.i32(MIN_PAGES);
        b.max(run, least)
    }

    /// Chunks of a unit of each of the lane's tokens, of those from `first` on.
    fn of_lane(&self, b: &mut Builder, first: V, lane: V) -> (V, Vec<V>) {
        let skip = b.mulc(lane, self.wide());
        let token = b.add(first, skip);
        if self.split.tokens > 1 {
            return (token, self.items(b, token).into_iter().map(|sight| sight.dealt).collect());
        }
        let last = b.addc(self.m, -1);
        let chunks = (0..self.wide())
            .map(|i| {
                let token = b.addc(token, i);
                let inside = b.cmp(Cmp::Slt, token, self.m);
                let there = b.min(token, last);
                self.sight(b, there, Some(inside)).dealt
            })
            .collect();
        (token, chunks)
    }

    /// All chunks of a unit.
    fn total(&self, b: &mut Builder, lane: V) -> V {
        let (zero, step) = (b.i32(0), b.i32(WARP as i64 * self.wide()));
        let sums = b.for_((zero, self.m, step), &[zero], |b, first, sum| {
            let (_, chunks) = self.of_lane(b, first, lane);
            vec![chunks.into_iter().fold(sum[0], |sum, n| b.add(sum, n))]
        });
        let total = b.redux(sums[0], "add");
        b.assume(total, &[1, 3000, 900]);
        total
    }

    /// The team's share.
    fn share(&self, b: &mut Builder, lane: V) -> Portion {
        let teams = self.split.all_teams() as i64;
        let total = self.total(b, lane);
        let total = b.mulc(total, self.units());
        let up = b.addc(total, teams - 1);
        let each = b.divc(up, teams);
        let lo = b.mul(self.team.in_grid, each);
        let lo = b.min(lo, total);
        let hi = b.add(lo, each);
        let hi = b.min(hi, total);
        let one = b.i32(1);
        let each = b.max(each, one);
        let chosen = b.cmpc(Cmp::Eq, self.team.thread, 0);
        b.if_(chosen, |b| {
            let words = b.pack(&[lo, hi, each, each]);
            b.store(words, self.words);
        });
        let last = b.addc(hi, -1);
        let [token, before, last] = self.find(b, lane, (lo, last));
        b.barrier();
        Portion { some: b.cmp(Cmp::Slt, lo, hi), token, last, before }
    }

    /// The team's chunks, `lo..hi` of all, and the count of chunks per team, at least 1.
    fn limits(&self, b: &mut Builder) -> [V; 3] {
        let words = b.load(self.words, V4I32);
        let words = b.unpack(words);
        // Limits of the first team for the verifier: items that are cut, and whole ones.
        for (word, samples) in words.iter().zip([&[0][..], &[12, 1, 30], &[1, 12, 30]]) {
            b.assume(*word, samples);
        }
        [words[0], words[1], words[2]]
    }

    /// Finds the tokens that have chunks `lo` and `last`: the first token, the number of chunks
    /// before it, and the other token. (Zero, if there is no such chunk.)
    fn find(&self, b: &mut Builder, lane: V, (lo, last): (V, V)) -> [V; 3] {
        let (zero, step, end) = (b.i32(0), b.i32(WARP as i64 * self.wide()), b.i32(WARP as i64 - 1));
        let found = b.for_((zero, self.m, step), &[zero; 4], |b, first, carried| {
            let (token, chunks) = self.of_lane(b, first, lane);
            let chunks: Vec<V> = chunks.into_iter().map(|n| b.mulc(n, self.units())).collect();
            let own = chunks[1..].iter().fold(chunks[0], |sum, n| b.add(sum, *n));
            let up_to = b.sum_up(own, lane);
            let all = b.shuffle_from(up_to, end);
            let start = b.sub(up_to, own);
            let mut start = b.add(carried[0], start);
            let mut next = carried.to_vec();
            for (i, n) in chunks.into_iter().enumerate() {
                let token = b.addc(token, i as i64);
                let stop = b.add(start, n);
                for (wanted, notes) in [(lo, vec![(1, token), (2, start)]), (last, vec![(3, token)])] {
                    let (from, below) = (b.cmp(Cmp::Sge, wanted, start), b.cmp(Cmp::Slt, wanted, stop));
                    let here = b.and(from, below);
                    for (at, what) in notes {
                        next[at] = b.select(here, what, next[at]);
                    }
                }
                start = stop;
            }
            next[0] = b.add(carried[0], all);
            next
        });
        // One lane has found each, all others have nothing.
        [1, 2, 3].map(|i| {
            let one = b.redux(found[i], "add");
            b.assume(one, &[0]);
            one
        })
    }

    /// Runs `body` for the items of the team.
    pub(super) fn each_item(&self, b: &mut Builder, body: impl FnOnce(&mut Builder, &Item)) {
        let lane = b.lane_of(self.team.thread);
        let share = self.share(b, lane);
        let (one, end) = (b.i32(1), b.addc(share.last, 1));
        b.if_(share.some, |b| {
            b.for_((share.token, end, one), &[share.before], |b, token, before| {
                let dealt = self.item(b, token).dealt;
                let body = |b: &mut Builder| self.items_of(b, (token, before[0]), dealt, body);
                // All tokens are taken, if there is no choice, and each is an item.
                match self.served {
                    Served::All if self.split.tokens == 1 => body(b),
                    Served::All | Served::Lone => {
                        let taken = b.cmpc(Cmp::Ne, dealt, 0);
                        b.if_(taken, body);
                    }
                }
                let all = b.mulc(dealt, self.units());
                vec![b.add(before[0], all)]
            });
        });
    }

    /// The team's chunks of a token, `before` whose chunks there are others.
    fn own(&self, b: &mut Builder, before: V, dealt: V) -> (V, V, V) {
        let [lo, hi, each] = self.limits(b);
        let (zero, all) = (b.i32(0), b.mulc(dealt, self.units()));
        let from = b.sub(lo, before);
        let from = b.smax(from, zero);
        let to = b.sub(hi, before);
        (from, b.min(to, all), each)
    }

    /// Runs `body` for the team's items of a token that has `dealt` chunks in each unit.
    fn items_of(&self, b: &mut Builder, (token, before): (V, V), dealt: V, body: impl FnOnce(&mut Builder, &Item)) {
        let (from, to, _) = self.own(b, before, dealt);
        let unit = b.div(from, dealt);
        let end_unit = ceil_div(b, to, dealt);
        b.for_range(unit, end_unit, 1, |b, unit| {
            // All of it is computed anew, not kept beside the pages of another item.
            let token = b.anew(token);
            let team = Team { thread: b.anew(self.team.thread), ..self.team };
            let sight = self.item(b, token);
            let (from, to, each) = self.own(b, before, sight.dealt);
            let (zero, skip) = (b.i32(0), b.mul(unit, sight.dealt));
            let chunk = b.sub(from, skip);
            let chunk = b.smax(chunk, zero);
            let end_chunk = b.sub(to, skip);
            let end_chunk = b.min(end_chunk, sight.chunks);
            let page_of = |b: &mut Builder, chunk: V| {
                let offset = b.mul(chunk, sight.run);
                b.add(sight.page, offset)
            };
            let (page, end_page) = (page_of(b, chunk), page_of(b, end_chunk));
            let end_page = b.min(end_page, sight.end);
            let head = b.mulc(unit, self.split.heads() as i64);
            let first = b.add(before, skip);
            let last = b.add(first, sight.dealt);
            let last = b.addc(last, -1);
            let (owner, last) = (b.div(first, each), b.div(last, each));
            let shares = b.sub(last, owner);
            let item = Item {
                team,
                token,
                tokens: sight.tokens,
                head,
                kv_head: b.divc(head, self.shape.group as i64),
                first: sight.range.first,
                seen: sight.range.count,
                page,
                end_page,
                run: sight.run,
                chunk,
                end_chunk,
                chunks: sight.chunks,
                shares: b.addc(shares, 1),
                owner,
            };
            body(b, &item);
        });
    }
}

/// First page that a token at `position` sees, and the one after the last.
fn pages_of(b: &mut Builder, shape: &Shape, position: V, Range { first, count }: Range) -> (V, V) {
    if shape.may_be_blind() {
        // Without rows there is no last one.
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
