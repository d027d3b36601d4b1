//! The best of a part: left in the workspace, joined by the last block of a token, stored as the token's rows.

use super::best::{self, Kept};
use super::plan::{HEAD, JOINED};
use super::token::Token;
use crate::COUNTER_BYTES;
use crate::last;
use crate::mlir::{Builder, Cmp, F32, I32, I64, V};
use crate::nth::THREADS;

impl Token<'_> {
    /// Emits the work.
    pub(super) fn emit(&self, b: &mut Builder) {
        let top = b.i32(self.top());
        let chooses = b.cmp(Cmp::Slt, top, self.rows);
        b.either(
            chooses,
            |b| {
                let has = b.cmp(Cmp::Slt, self.part, self.parts);
                b.if_(has, |b| self.choose(b));
            },
            |b| {
                let first = b.cmpc(Cmp::Eq, self.part, 0);
                b.if_(first, |b| self.all(b));
            },
        );
    }

    /// Selects all rows.
    fn all(&self, b: &mut Builder) {
        self.each_column(b, |b, col| {
            let (none, there) = (b.i32(-1), b.cmp(Cmp::Slt, col, self.rows));
            let index = b.select(there, col, none);
            b.sitofp(index, F32)
        });
    }

    /// Goes through the block's part, and stores the result if it is the only one, or the last.
    fn choose(&self, b: &mut Builder) {
        let kept = self.scored(b);
        let kept = self.ranks.leave_best(b, kept);
        let alone = b.cmpc(Cmp::Eq, self.parts, 1);
        b.either(
            alone,
            |b| self.store(b, kept),
            |b| {
                self.put(b, kept);
                let last = self.is_last(b);
                b.if_(last, |b| {
                    b.fence();
                    let kept = self.joined(b);
                    let kept = self.ranks.leave_best(b, kept);
                    self.store(b, kept);
                });
            },
        );
        // Shared memory is the next token's.
        b.barrier();
    }

    /// Stores the numbers of the ranks that are kept.
    fn store(&self, b: &mut Builder, kept: Kept) {
        let last = b.addc(kept.count, -1);
        self.each_column(b, |b, col| {
            let (at, there) = (b.min(col, last), b.cmp(Cmp::Slt, col, kept.count));
            let p = self.ranks.at(b, at);
            let rank = b.load(p, I64);
            let index = best::row_of(b, rank);
            let none = b.i32(-1);
            let index = b.select(there, index, none);
            b.sitofp(index, F32)
        });
    }

    /// Where a part's result is in the workspace.
    fn record(&self, b: &mut Builder, part: V) -> V {
        let index = b.add(self.result, part);
        let index = b.zext(index, I64);
        let offset = b.mulc(index, self.plan.record() as i64);
        let base = b.atc(self.args.workspace(), COUNTER_BYTES as i64);
        b.at(base, offset)
    }

    /// Leaves the ranks of the block's part in the workspace.
    fn put(&self, b: &mut Builder, kept: Kept) {
        let record = self.record(b, self.part);
        b.for_range(self.ranks.tid, kept.count, THREADS as i64, |b, i| {
            let p = self.ranks.at(b, i);
            let (rank, offset) = (b.load(p, I64), b.shlc(i, 3));
            let p = b.at(record, offset);
            let p = b.atc(p, HEAD as i64);
            b.store(rank, p);
        });
        self.one_thread(b, |b| b.store(kept.count, record));
    }

    /// Counts this part; whether it is the token's last.
    fn is_last(&self, b: &mut Builder) -> V {
        let words = (self.ranks.tid, self.ranks.flag(b));
        let counter = |b: &mut Builder| {
            let offset = b.shlc(self.token, 2);
            b.at(self.args.workspace(), offset)
        };
        last::is_last(b, words, counter, self.parts)
    }

    /// The best of all parts, in the order of the parts.
    fn joined(&self, b: &mut Builder) -> Kept {
        let (zero, one, step) = (b.i32(0), b.i32(1), b.i32((JOINED * THREADS) as i64));
        let start = Kept::none(b).carried();
        let kept = b.for_((zero, self.parts, one), &start, |b, part, kept| {
            let record = self.record(b, part);
            let count = b.load(record, I32);
            b.assume(count, &[0, 3]);
            b.for_((zero, count, step), kept, |b, first, kept| {
                let kept = self.ranks.room(b, Kept::from_carried(kept), JOINED * THREADS);
                self.take(b, (record, count), first, kept).carried()
            })
        });
        Kept::from_carried(&kept)
    }

    /// Takes some ranks of a part's `count` from `first` on.
    fn take(&self, b: &mut Builder, (record, count): (V, V), first: V, kept: Kept) -> Kept {
        let (last, own) = (b.addc(count, -1), b.mulc(self.ranks.tid, JOINED as i64));
        let first = b.add(first, own);
        let loaded: Vec<(V, V)> = (0..JOINED)
            .map(|i| {
                let i = b.addc(first, i as i64);
                let (there, at) = (b.cmp(Cmp::Slt, i, count), b.min(i, last));
                let offset = b.shlc(at, 3);
                let p = b.at(record, offset);
                let p = b.atc(p, HEAD as i64);
                (b.load(p, I64), there)
            })
            .collect();
        b.barrier();
        self.ranks.append(b, kept, &loaded)
    }
}
