//! Results of blocks: left in the workspace, joined by the last block of a row, stored as the row's
//! candidates.

use super::composite::{finite_logit, logit, token};
use super::slice::{Block, Shape, joined};
use crate::mlir::{Builder, Cmp, F32, I32, I64, V, WARP};
use crate::nth::THREADS;
use crate::piece::row_at;
use llmcc_abi::layout::candidate_cols;
use llmcc_ir::kernel::RowElem;

/// A row's candidates, and its record in the workspace, if the row has several slices.
pub(super) struct Row<'a> {
    block: &'a Block<'a>,
    /// Where the results go.
    out: V,
    record: V,
}

impl<'a> Row<'a> {
    pub(super) fn new(b: &mut Builder, block: &'a Block<'a>) -> Row<'a> {
        let out =
            row_at(b, block.args.operand(block.shape.top.out), candidate_cols(block.shape.k), RowElem::F32, block.row);
        let row = b.zext(block.row, I64);
        let start = b.mulc(row, block.shape.record() as i64);
        let record = b.at(block.args.workspace(), start);
        Row { block, out, record }
    }

    fn shape(&self) -> &Shape<'a> {
        self.block.shape
    }

    fn alone(&self) -> bool {
        self.shape().slices == 1
    }

    /// Composite `index` of a slice.
    fn composite(&self, b: &mut Builder, slice: V, index: V) -> V {
        let first = b.mulc(slice, self.shape().k as i64);
        let index = b.add(first, index);
        self.any_composite(b, index)
    }

    /// Composite `index` of the row.
    fn any_composite(&self, b: &mut Builder, index: V) -> V {
        let offset = b.shlc(index, 3);
        let p = b.at(self.record, offset);
        b.atc(p, self.shape().composites() as i64)
    }

    /// Maximum (and, 4 bytes on, the sum) of a slice.
    fn stat(&self, b: &mut Builder, slice: V) -> V {
        let offset = b.shlc(slice, 3);
        let p = b.at(self.record, offset);
        b.atc(p, Shape::stats() as i64)
    }

    fn one_thread(&self, b: &mut Builder, body: impl FnOnce(&mut Builder)) {
        let first = b.cmpc(Cmp::Eq, self.block.tid, 0);
        b.if_(first, body);
    }

    /// The largest of a slice of a row that needs no more.
    pub(super) fn put_best(&self, b: &mut Builder, best: V) {
        self.one_thread(b, |b| {
            if self.alone() {
                return self.store_best(b, best);
            }
            let zero = b.i32(0);
            let p = self.composite(b, self.block.slice, zero);
            b.store(best, p);
        });
    }

    /// Maximum and sum of a slice.
    pub(super) fn put_sum(&self, b: &mut Builder, maximum: V, sum: V) {
        self.one_thread(b, |b| {
            if self.alone() {
                return self.store_sum(b, sum);
            }
            let p = self.stat(b, self.block.slice);
            b.store(maximum, p);
            let p = b.atc(p, 4);
            b.store(sum, p);
        });
    }

    /// The composites of a slice from `threshold` up, in any order. The unused room of a short
    /// slice stays 0.
    pub(super) fn put_slice(&self, b: &mut Builder, held: &[V], threshold: V) {
        self.collect(b, held, threshold, |b, index, c| {
            let p = if self.alone() {
                self.block.shared.entry(b, index)
            } else {
                self.composite(b, self.block.slice, index)
            };
            b.store(c, p);
        });
    }

    /// Gives each composite from `threshold` up a number of its own.
    fn collect(&self, b: &mut Builder, held: &[V], threshold: V, put: impl Fn(&mut Builder, V, V)) {
        let (length, one) = (self.block.shared.length(b), b.i32(1));
        for c in held {
            let counts = b.cmp(Cmp::Uge, *c, threshold);
            b.if_(counts, |b| {
                let index = b.atomic_add_shared(length, one);
                put(b, index, *c);
            });
        }
    }

    /// Stores the row's candidates, in the block that finishes last.
    pub(super) fn finish(&self, b: &mut Builder, greedy: V) {
        if self.alone() {
            let all = b.cmpc(Cmp::Ne, self.block.wanted, 1);
            b.if_(all, |b| {
                b.barrier();
                self.rank(b);
            });
            return;
        }
        let last = self.is_last(b);
        b.if_(last, |b| {
            b.fence();
            b.either(greedy, |b| self.join_best(b), |b| self.join(b));
        });
    }

    /// Counts this slice; whether it is the row's last.
    fn is_last(&self, b: &mut Builder) -> V {
        b.fence();
        b.barrier();
        let flag = self.block.shared.flag(b);
        self.one_thread(b, |b| {
            let one = b.i32(1);
            let before = b.atomic_add(self.record, one);
            let last = b.cmpc(Cmp::Eq, before, self.shape().slices as i64 - 1);
            b.if_(last, |b| {
                let zero = b.i32(0);
                b.store(zero, self.record);
            });
            let word = b.zext(last, I32);
            b.store(word, flag);
        });
        b.barrier();
        let last = b.load(flag, I32);
        b.cmpc(Cmp::Ne, last, 0)
    }

    fn join_best(&self, b: &mut Builder) {
        let none = b.i64(0);
        let there = b.cmpc(Cmp::Ult, self.block.tid, self.shape().slices as i64);
        let mine = b.if_else(
            there,
            &[I64],
            |b| {
                let zero = b.i32(0);
                let p = self.composite(b, self.block.tid, zero);
                vec![b.load(p, I64)]
            },
            |_| vec![none],
        );
        let best = self.block.shared.max(b, &mine);
        self.one_thread(b, |b| self.store_best(b, best));
    }

    fn join(&self, b: &mut Builder) {
        let n = self.shape().slices * self.shape().k;
        let none = b.i64(0);
        let held: Vec<V> = (0..joined(self.shape().slices, self.shape().k))
            .map(|i| {
                let index = b.addc(self.block.tid, (i * THREADS) as i64);
                let last = b.i32(n as i64 - 1);
                let from = b.min(index, last);
                let p = self.any_composite(b, from);
                let c = b.load(p, I64);
                if (i + 1) * THREADS <= n {
                    return c;
                }
                let there = b.cmpc(Cmp::Ult, index, n as i64);
                b.select(there, c, none)
            })
            .collect();
        let best = self.block.shared.max(b, &held);
        let sum = self.join_sums(b, best);
        self.one_thread(b, |b| self.store_sum(b, sum));
        let need = b.i32(self.shape().k as i64);
        let threshold = self.block.shared.threshold(b, &held, best, need);
        self.collect(b, &held, threshold, |b, index, c| {
            let p = self.block.shared.entry(b, index);
            b.store(c, p);
        });
        b.barrier();
        self.rank(b);
    }

    fn join_sums(&self, b: &mut Builder, best: V) -> V {
        let (maximum, scale, zero) = (finite_logit(b, best), self.block.scale(b), b.f32(0.0));
        let there = b.cmpc(Cmp::Ult, self.block.tid, self.shape().slices as i64);
        let mine = b.if_else(
            there,
            &[F32],
            |b| {
                let p = self.stat(b, self.block.tid);
                let m = b.load(p, F32);
                let p = b.atc(p, 4);
                let sum = b.load(p, F32);
                let y = b.fsub(m, maximum);
                let y = b.fmul(y, scale);
                let weight = b.exp2(y);
                vec![b.fmul(sum, weight)]
            },
            |_| vec![zero],
        );
        self.block.shared.sum(b, mine[0])
    }

    /// Stores the candidates of the list in their order: several threads count for each how many
    /// are larger.
    fn rank(&self, b: &mut Builder) {
        let k = self.shape().k;
        let team = (THREADS / k.next_power_of_two()).min(WARP);
        let (shared, tid) = (&self.block.shared, self.block.tid);
        let (index, lane) = (b.divc(tid, team as i64), b.andc(tid, team as i64 - 1));
        let last = b.i32(k as i64 - 1);
        let from = b.min(index, last);
        let p = shared.entry(b, from);
        let mine = b.load(p, I64);
        let (n, step, zero) = (b.i32(k as i64), b.i32(team as i64), b.i32(0));
        let rank = b.for_((lane, n, step), &[zero], |b, i, rank| {
            let p = shared.entry(b, i);
            let other = b.load(p, I64);
            let larger = b.cmp(Cmp::Ult, mine, other);
            let one = b.zext(larger, I32);
            vec![b.add(rank[0], one)]
        });
        let masks: Vec<i64> = (0..team.trailing_zeros()).rev().map(|i| 1 << i).collect();
        let rank = b.reduce(rank[0], &masks, |b, x, y| b.add(x, y));
        let (there, first) = (b.cmpc(Cmp::Ult, index, k as i64), b.cmpc(Cmp::Eq, lane, 0));
        let stores = b.and(there, first);
        b.if_(stores, |b| self.store(b, rank, mine));
    }

    fn store(&self, b: &mut Builder, rank: V, composite: V) {
        let offset = b.shlc(rank, 2);
        let p = b.at(self.out, offset);
        let x = logit(b, composite);
        b.store(x, p);
        let p = b.atc(p, 4 * self.shape().k as i64);
        let id = token(b, composite);
        b.store(id, p);
    }

    fn store_best(&self, b: &mut Builder, best: V) {
        let zero = b.i32(0);
        self.store(b, zero, best);
    }

    fn store_sum(&self, b: &mut Builder, sum: V) {
        let p = b.atc(self.out, 8 * self.shape().k as i64);
        b.store(sum, p);
    }
}
