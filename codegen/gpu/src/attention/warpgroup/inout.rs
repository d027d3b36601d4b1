//! Queries in, results out, in pieces of 16 bytes of a row: lanes that follow each other take
//! adjacent pieces, so that global memory is accessed in whole lines.

use super::softmax::{Rows, column, row};
use super::{Attend, LINE, QUERIES_AT};
use crate::mlir::{Builder, Elem, Ty, V, V4I32, WARP};

impl Attend<'_> {
    /// Takes the queries of the warp's rows to shared memory, in pieces of 16 bytes. Rows that pad
    /// the block repeat a token. A barrier must follow.
    pub(super) fn take(&self, b: &mut Builder) {
        let (shape, each) = (self.block.shape, self.plan.d as i64 / 8);
        let warp = b.own_warp(self.tid);
        for i in 0..self.plan.d as i64 / 16 {
            let number = b.addc(self.lane, WARP as i64 * i);
            let (line, piece) = (b.divc(number, each), b.remc(number, each));
            let first = b.shlc(warp, 4);
            let row = b.add(first, line);
            let (token, head, _) = self.block.query(b, row);
            let column = self.block.column(b, head);
            let within = b.shlc(piece, 3);
            let column = b.add(column, within);
            let p = shape.element(b, self.block.args, shape.q, token, column);
            let words = self.query(b, p);
            let to = self.query_place(b, row, piece);
            b.store(words, to);
        }
        b.fence_proxy_async();
    }

    /// Eight elements of a query at `p`, as four words.
    fn query(&self, b: &mut Builder, p: V) -> V {
        let stored = self.block.shape.q.storage();
        if stored == self.plan.elem {
            return b.load(p, V4I32);
        }
        let words: Vec<V> = (0..2)
            .flat_map(|half| {
                let p = b.atc(p, half * 4 * stored.bytes() as i64);
                let x = b.load(p, Ty::Vec(4, stored));
                let x = if stored == Elem::F32 { x } else { b.fext(x, Ty::Vec(4, Elem::F32)) };
                let x = b.ftrunc(x, Ty::Vec(4, self.plan.elem));
                let x = b.bitcast(x, Ty::Vec(2, Elem::I32));
                b.unpack(x)
            })
            .collect();
        b.pack(&words)
    }

    /// Where piece `piece` of row `row` goes: groups of 64 rows, blocks of 64 columns, lines with
    /// the 128-byte swizzle.
    fn query_place(&self, b: &mut Builder, row: V, piece: V) -> V {
        let (group, line) = (b.shrc(row, 6), b.andc(row, 63));
        let (block, piece) = (b.shrc(piece, 3), b.andc(piece, 7));
        let turn = b.andc(line, 7);
        let piece = b.xor(piece, turn);
        let base = b.shared_at(QUERIES_AT);
        let parts = [
            b.mulc(group, self.plan.query_bytes() as i64),
            b.mulc(block, 64 * LINE as i64),
            b.mulc(line, LINE as i64),
            b.shlc(piece, 4),
        ];
        parts.into_iter().fold(base, |p, part| b.at(p, part))
    }

    fn out_bytes(&self) -> usize {
        self.plan.out_bytes(self.block.shape)
    }

    fn out_stride(&self) -> usize {
        self.plan.out_stride(self.block.shape)
    }

    /// Divides the weighted values by the sums and stores them: first in place of the stages, which
    /// all have read.
    pub(super) fn give(&self, b: &mut Builder, rows: &Rows, values: &[V]) {
        let narrow = self.block.shape.out.storage();
        let warp = b.own_warp(self.tid);
        let first = b.shlc(warp, 4);
        let base = b.shared_in("results", self.plan.keys_at());
        let skip = b.mulc(first, self.out_stride() as i64);
        let base = b.at(base, skip);
        let (g, t) = (b.shrc(self.lane, 2), b.andc(self.lane, 3));
        let (line, skip) = (b.mulc(g, self.out_stride() as i64), b.mulc(t, 2 * self.out_bytes() as i64));
        let mine = b.at(base, line);
        let mine = b.at(mine, skip);
        let sums = rows.total(b);
        let factors = std::array::from_fn::<_, 2, _>(|r| {
            let sum = self.sum(b, first, (r, rows.maxima[r], sums[r]));
            b.rcp(sum)
        });
        b.barrier();
        for i in (0..values.len()).step_by(2) {
            let two = [values[i], values[i + 1]].map(|x| b.fmul(x, factors[row(i)]));
            let two = b.pack(&two);
            let two = if narrow == Elem::F32 { two } else { b.ftrunc(two, Ty::Vec(2, narrow)) };
            let at = b.atc(mine, (row(i) * 8 * self.out_stride() + column(i) * self.out_bytes()) as i64);
            b.store(two, at);
        }
        b.sync_warp();
        self.send(b, base, first);
    }

    /// The sum of the lane's row `r` of the warp's, which begin with `first`, with that of its sink.
    fn sum(&self, b: &mut Builder, first: V, (r, maximum, sum): (usize, V, V)) -> V {
        let shape = self.block.shape;
        if shape.sinks.is_none() {
            return sum;
        }
        let g = b.shrc(self.lane, 2);
        let row = b.add(first, g);
        let row = b.addc(row, 8 * r as i64);
        let (_, head, _) = self.block.query(b, row);
        let factor = b.f32(shape.scores.factor());
        let maximum = b.fmul(maximum, factor);
        shape.with_sink(b, self.block.args, head, (maximum, sum))
    }

    /// Stores the results of the warp's rows, which begin at `base` and with row `first`.
    fn send(&self, b: &mut Builder, base: V, first: V) {
        let (shape, bytes) = (self.block.shape, self.plan.d * self.out_bytes());
        let each = bytes as i64 / 16;
        for i in 0..16 * each / WARP as i64 {
            let number = b.addc(self.lane, WARP as i64 * i);
            let (line, piece) = (b.divc(number, each), b.remc(number, each));
            let row = b.add(first, line);
            let (token, head, used) = self.block.query(b, row);
            b.if_(used, |b| {
                let (skip, within) = (b.mulc(line, self.out_stride() as i64), b.shlc(piece, 4));
                let from = b.at(base, skip);
                let from = b.at(from, within);
                let words = b.load(from, V4I32);
                let start = self.block.column(b, head);
                let p = shape.element(b, self.block.args, shape.out, token, start);
                let p = b.at(p, within);
                b.store(words, p);
            });
        }
    }
}
