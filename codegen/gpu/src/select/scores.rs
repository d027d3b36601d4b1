//! Scores of rows, a tile at a time.
//!
//! A tile lies in shared memory column by column: a warp reads a column of all its rows at once, and each query's
//! element once for all lanes. A lane has one row or two, and a warp some heads, whose products are in registers.

use super::best::{Kept, rank};
use super::token::Token;
use crate::mlir::{Builder, Cmp, Elem, F32, I8, I32, I64, V, WARP};
use crate::nth::{THREADS, WARPS};
use crate::piece::{self, col_at, row_at};
use llmcc_abi::PAGE_TOKENS;
use llmcc_ir::kernel::RowElem;

/// Loads of a thread that are under way together.
const LOADS: usize = 8;

/// A piece of a row on its way to the tile.
struct Piece {
    /// Its number in the row, and that of the row in the tile.
    index: V,
    row: V,
    values: Vec<V>,
}

impl Token<'_> {
    /// The ranks of the block's part: the best, and perhaps some others.
    pub(super) fn scored(&self, b: &mut Builder) -> Kept {
        let tile = self.plan.rows as i64;
        let up = b.addc(self.rows, tile - 1);
        let tiles = b.divc(up, tile);
        let up = b.add(tiles, self.parts);
        let up = b.addc(up, -1);
        let each = b.div(up, self.parts);
        let each = b.mulc(each, tile);
        let first = b.mul(each, self.part);
        let end = b.add(first, each);
        let end = b.min(end, self.rows);
        self.load_queries(b);
        let (step, start) = (b.i32(tile), Kept::none(b).carried());
        let kept = b.for_((first, end, step), &start, |b, first, kept| {
            let kept = self.ranks.room(b, Kept::from_carried(kept), self.plan.rows);
            self.load_tile(b, first, end);
            b.barrier();
            self.leave_sums(b);
            b.barrier();
            self.rank(b, kept, (first, end)).carried()
        });
        Kept::from_carried(&kept)
    }

    /// Brings the token's queries and weights to shared memory.
    fn load_queries(&self, b: &mut Builder) {
        let ([queries, weights, ..], select) = (self.plan.places(), self.plan.select);
        let cols = select.heads * self.plan.d;
        for (param, cols, at) in [(select.q, cols, queries), (select.weights, select.heads, weights)] {
            let width = piece::widest(4, [cols]);
            let line = row_at(b, self.args.operand(param), cols, RowElem::F32, self.token);
            // Up to a multiple of four, so that loads may be wide: beyond the last, the last again.
            let (to, end) = (b.shared_at(at), b.i32((cols.next_multiple_of(4) / width) as i64));
            let last = b.i32((cols - width) as i64);
            b.for_range(self.ranks.tid, end, THREADS as i64, |b, i| {
                let first = b.mulc(i, width as i64);
                let there = b.min(first, last);
                let (from, to) = (col_at(b, line, Elem::F32, there), col_at(b, to, Elem::F32, first));
                let values = piece::load(b, from, Elem::F32, width);
                piece::store(b, &values, to, Elem::F32);
            });
        }
    }

    /// Brings the rows from `first` on to the tile, as f32; beyond the last, the last again.
    fn load_tile(&self, b: &mut Builder, first: V, end: V) {
        let pieces = self.plan.d / self.plan.step;
        let all = self.plan.rows * pieces.next_multiple_of(4);
        let whole = pieces.is_multiple_of(4) && all.is_multiple_of(THREADS);
        let turns: Vec<usize> = (0..all.div_ceil(THREADS)).collect();
        for some in turns.chunks(LOADS) {
            let loaded: Vec<Piece> = some.iter().map(|i| self.load_piece(b, *i, (first, end))).collect();
            for piece in loaded {
                if whole {
                    self.store_piece(b, &piece);
                } else {
                    let inside = b.cmpc(Cmp::Ult, piece.index, pieces as i64);
                    b.if_(inside, |b| self.store_piece(b, &piece));
                }
            }
        }
    }

    /// The thread's piece in a turn: four lanes have adjacent pieces of a row, and eight such groups adjacent rows.
    fn load_piece(&self, b: &mut Builder, turn: usize, (first, end): (V, V)) -> Piece {
        let eights = self.plan.rows / 8;
        let n = b.addc(self.ranks.tid, (turn * THREADS) as i64);
        let (low, eight, rest) = (b.andc(n, 3), b.shrc(n, 2), b.shrc(n, 5));
        let eight = b.andc(eight, 7);
        let (high, four) = (b.remc(rest, eights as i64), b.divc(rest, eights as i64));
        let (high, four) = (b.shlc(high, 3), b.shlc(four, 2));
        let (row, index) = (b.or(high, eight), b.or(four, low));
        let (last, at) = (b.addc(end, -1), b.add(first, row));
        let at = b.min(at, last);
        let last = b.i32((self.plan.d / self.plan.step) as i64 - 1);
        let there = b.min(index, last);
        let values = self.load_row(b, at, there);
        Piece { index, row, values }
    }

    fn store_piece(&self, b: &mut Builder, piece: &Piece) {
        let (step, pitch) = (self.plan.step as i64, self.plan.pitch() as i64);
        let tile = b.shared_at(self.plan.places()[2]);
        let line = b.mulc(piece.index, step * pitch);
        let at = b.add(line, piece.row);
        let p = col_at(b, tile, Elem::F32, at);
        for (i, x) in piece.values.iter().enumerate() {
            let p = b.atc(p, i as i64 * pitch * 4);
            b.store(*x, p);
        }
    }

    /// Piece `number` of row `row` of the token's cache.
    fn load_row(&self, b: &mut Builder, row: V, index: V) -> Vec<V> {
        let (page, slot) = (b.divc(row, PAGE_TOKENS as i64), b.remc(row, PAGE_TOKENS as i64));
        let offset = b.shlc(page, 2);
        let p = b.at(self.table, offset);
        let entry = b.load_const(p, I32);
        let entry = b.zext(entry, I64);
        let skip = b.mulc(entry, self.plan.page.bytes as i64);
        let page = b.at(self.args.operand(self.plan.select.kv), skip);
        let values = b.atc(page, self.plan.page.v as i64);
        let (d, dtype) = (self.plan.d as i64, self.plan.spec.dtype);
        if dtype.float().is_some() {
            let (line, first) = (b.mulc(slot, d), b.mulc(index, self.plan.step as i64));
            let at = b.add(line, first);
            let elem = piece::kv_storage(dtype);
            let p = col_at(b, values, elem, at);
            return piece::load(b, p, elem, self.plan.step);
        }
        let code = if dtype.bits() < 8 {
            piece::value_nibble(b, values, (slot, index), self.plan.d)
        } else {
            let line = b.mulc(slot, d);
            let at = b.add(line, index);
            let p = b.at(values, at);
            let code = b.load(p, I8);
            let code = b.sext(code, I32);
            b.sitofp(code, F32)
        };
        let scales = b.atc(page, self.plan.page.v_scales as i64);
        let p = col_at(b, scales, Elem::F32, slot);
        let scale = b.load(p, F32);
        vec![b.fmul(code, scale)]
    }

    /// Rows of a lane.
    fn of_lane(&self) -> usize {
        self.plan.rows / WARP
    }

    /// Leaves the warp's part of the scores of the tile.
    fn leave_sums(&self, b: &mut Builder) {
        let [.., parts, _, _] = self.plan.places();
        let (n, together) = (self.of_lane(), self.plan.together);
        let mine = b.mulc(self.ranks.lane, 4 * n as i64);
        let first = b.mulc(self.ranks.warp, together as i64);
        let (end, step, zero) = (b.i32(self.plan.select.heads as i64), b.i32((WARPS * together) as i64), b.f32(0.0));
        let sums = b.for_((first, end, step), &vec![zero; n], |b, head, sums| {
            let products = self.products(b, head, mine);
            self.weigh(b, head, &products, sums)
        });
        let line = b.mulc(self.ranks.warp, 4 * self.plan.rows as i64);
        let offset = b.add(line, mine);
        let p = b.shared_at(parts);
        let p = b.at(p, offset);
        piece::store(b, &sums, p, Elem::F32);
    }

    /// The `i`-th head from `head` on, or the last.
    fn head(&self, b: &mut Builder, head: V, i: usize) -> V {
        let (head, last) = (b.addc(head, i as i64), b.i32(self.plan.select.heads as i64 - 1));
        b.min(head, last)
    }

    /// Products of the lane's rows, `mine` bytes into a column, with the queries of the heads from `head` on.
    fn products(&self, b: &mut Builder, head: V, mine: V) -> Vec<V> {
        let ([queries, _, tile, ..], n) = (self.plan.places(), self.of_lane());
        let (d, step, column) = (self.plan.d as i64, self.plan.step, 4 * self.plan.pitch() as i64);
        let base = b.shared_at(queries);
        let lines: Vec<V> = (0..self.plan.together)
            .map(|i| {
                let head = self.head(b, head, i);
                let offset = b.mulc(head, 4 * d);
                b.at(base, offset)
            })
            .collect();
        let tile = b.shared_at(tile);
        let tile = b.at(tile, mine);
        let (from, end, by, zero) = (b.i32(0), b.i32(d), b.i32(step as i64), b.f32(0.0));
        b.for_((from, end, by), &vec![zero; n * lines.len()], |b, i, sums| {
            let (skip, offset) = (b.mulc(i, column), b.shlc(i, 2));
            let first = b.at(tile, skip);
            let rows: Vec<Vec<V>> = (0..step)
                .map(|e| {
                    let p = b.atc(first, e as i64 * column);
                    piece::load(b, p, Elem::F32, n)
                })
                .collect();
            let mut next = sums.to_vec();
            for (line, sums) in lines.iter().zip(next.chunks_mut(n)) {
                let p = b.at(*line, offset);
                let query = piece::load(b, p, Elem::F32, step);
                for (q, row) in query.into_iter().zip(&rows) {
                    sums.iter_mut().zip(row).for_each(|(sum, x)| *sum = b.fma(*x, q, *sum));
                }
            }
            next
        })
    }

    /// Adds products of the heads from `head` on, where they are positive, times the heads' weights.
    fn weigh(&self, b: &mut Builder, head: V, products: &[V], sums: &[V]) -> Vec<V> {
        let (heads, zero) = (self.plan.select.heads, b.f32(0.0));
        let weights = b.shared_at(self.plan.places()[1]);
        let mut sums = sums.to_vec();
        for (i, products) in products.chunks(self.of_lane()).enumerate() {
            let there = self.head(b, head, i);
            let p = col_at(b, weights, Elem::F32, there);
            let weight = b.load(p, F32);
            let index = b.addc(head, i as i64);
            let inside = b.cmpc(Cmp::Slt, index, heads as i64);
            for (sum, product) in sums.iter_mut().zip(products) {
                // NaN stays.
                let negative = b.flt(*product, zero);
                let positive = b.select(negative, zero, *product);
                let more = b.fma(positive, weight, *sum);
                *sum = if heads.is_multiple_of(self.plan.together) { more } else { b.select(inside, more, *sum) };
            }
        }
        sums
    }

    /// Keeps the ranks of the tile's rows, which begin at `first`.
    fn rank(&self, b: &mut Builder, kept: Kept, (first, end): (V, V)) -> Kept {
        let [.., parts, _, _] = self.plan.places();
        let (tid, last) = (self.ranks.tid, b.i32(self.plan.rows as i64 - 1));
        let at = b.min(tid, last);
        let offset = b.shlc(at, 2);
        let p = b.shared_at(parts);
        let p = b.at(p, offset);
        let sums: Vec<V> = (0..WARPS)
            .map(|warp| {
                let p = b.atc(p, (4 * warp * self.plan.rows) as i64);
                b.load(p, F32)
            })
            .collect();
        let score = sums[1..].iter().fold(sums[0], |score, sum| b.fadd(score, *sum));
        let row = b.add(first, at);
        let (in_tile, there) = (b.cmpc(Cmp::Slt, tid, self.plan.rows as i64), b.cmp(Cmp::Slt, row, end));
        let (there, rank) = (b.and(in_tile, there), rank(b, score, row));
        self.ranks.append(b, kept, &[(rank, there)])
    }
}
