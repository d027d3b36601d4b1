//! Joins the results of warps into a chunk's, and the results of chunks into the output.
//!
//! A result is, per row, the maximum score, the sum of the weights and the weighted values (f32,
//! unnormalized). Results of a chunk's warps are added in their order at once, to the largest of
//! their maxima. Chunks are added one after the other, whether by the team that made them all, in
//! shared memory, or by the last of several teams, from the workspace: by the same operations, so
//! that it makes no difference.

use super::results::{Results, slot_floats, width};
use super::shape::Shape;
use super::share::{Item, ItemRow, Split};
use crate::COUNTER_BYTES;
use crate::cx::Args;
use crate::last::is_last;
use crate::mlir::{Builder, Cmp, Elem, F32, I64, Ty, V};

/// Loads of a thread that are under way together when chunks are added from the workspace, and the
/// most pieces that they are of.
const LOADS: usize = 16;
const TOGETHER: usize = 4;
/// Most chunks whose loads of a piece are.
const JOIN: usize = 8;

/// A piece of a result: maximum, sum, and values of some columns.
#[derive(Clone, Copy)]
struct Part {
    maximum: V,
    sum: V,
    values: V,
}

/// Destination of an item's chunks.
pub(super) struct Join<'a> {
    pub(super) split: &'a Split,
    pub(super) shape: &'a Shape,
    pub(super) args: Args<'a>,
    pub(super) item: &'a Item,
    pub(super) results: Results,
}

impl Join<'_> {
    fn d(&self) -> usize {
        self.shape.spec.value_dim
    }

    /// The type of a piece's values.
    fn ty(&self) -> Ty {
        if width(self.d()) == 4 { Ty::Vec(4, Elem::F32) } else { F32 }
    }

    /// Runs `body(row, first column, number)` for the pieces of the result, shared out: a thread
    /// has the same ones every time.
    fn each_piece(&self, b: &mut Builder, body: impl FnOnce(&mut Builder, V, V, V)) {
        let per_row = (self.d() / width(self.d())) as i64;
        let n = b.i32(self.split.rows as i64 * per_row);
        b.for_range(self.item.team.thread, n, i64::from(self.split.threads()), |b, i| {
            let row = b.divc(i, per_row);
            let start = b.mulc(row, per_row);
            let piece = b.sub(i, start);
            let col = b.mulc(piece, width(self.d()) as i64);
            body(b, row, col, i);
        });
    }

    /// A number for every column of a piece.
    fn all(&self, b: &mut Builder, x: V) -> V {
        if width(self.d()) == 4 { b.splat(x, 4) } else { x }
    }

    /// Nothing seen.
    fn nothing(&self, b: &mut Builder) -> Part {
        let (none, zero) = (b.f32(f32::NEG_INFINITY), b.f32(0.0));
        Part { maximum: none, sum: zero, values: self.all(b, zero) }
    }

    /// Before the first chunk, of a row of the item: its head's sink, whose value is zero.
    fn start(&self, b: &mut Builder, row: V) -> Part {
        let nothing = self.nothing(b);
        let head = self.item.row(b, self.split, row).head;
        match self.shape.sink(b, self.args, head) {
            Some(maximum) => Part { maximum, sum: b.f32(1.0), ..nothing },
            None => nothing,
        }
    }

    /// A result and that of the next chunk.
    fn add(&self, b: &mut Builder, sums: Part, next: Part) -> Part {
        let maximum = b.fmax(sums.maximum, next.maximum);
        let weight = |b: &mut Builder, of: Part| {
            let x = b.fsub(of.maximum, maximum);
            b.exp2(x)
        };
        let (old, new) = (weight(b, sums), weight(b, next));
        let sum = b.fmul(next.sum, new);
        let sum = b.fma(sums.sum, old, sum);
        let (old, new) = (self.all(b, old), self.all(b, new));
        let values = b.fmul(next.values, new);
        let values = b.fma(sums.values, old, values);
        if self.split.tokens == 1 {
            return Part { maximum, sum, values };
        }
        // Nothing changes where nothing is seen, not even the sign of a zero.
        let none = b.f32(f32::NEG_INFINITY);
        let seen = b.flt(none, next.maximum);
        Part { maximum, sum: b.select(seen, sum, sums.sum), values: b.select(seen, values, sums.values) }
    }

    /// Where the sums of the chunks so far are, of a piece: values, and maximum and sum.
    fn sums(&self, b: &mut Builder, number: V) -> (V, V) {
        let (values, stats) = self.results.sums;
        let (value, stat) = (b.mulc(number, width(self.d()) as i64 * 4), b.shlc(number, 3));
        (b.at(values, value), b.at(stats, stat))
    }

    /// The sums of a piece, which is one thread's own.
    fn load_sums(&self, b: &mut Builder, number: V) -> Part {
        let (values, stats) = self.sums(b, number);
        b.apart(|b| {
            let maximum = b.load(stats, F32);
            let second = b.atc(stats, 4);
            Part { maximum, sum: b.load(second, F32), values: b.load(values, self.ty()) }
        })
    }

    fn store_sums(&self, b: &mut Builder, number: V, part: Part) {
        let (values, stats) = self.sums(b, number);
        b.apart(|b| {
            b.store(part.values, values);
            b.store(part.maximum, stats);
            let second = b.atc(stats, 4);
            b.store(part.sum, second);
        });
    }

    /// Whether the team has all chunks of its item.
    fn alone(&self, b: &mut Builder) -> V {
        b.cmpc(Cmp::Eq, self.item.shares, 1)
    }

    /// Before the first chunk.
    pub(super) fn clear(&self, b: &mut Builder) {
        self.each_piece(b, |b, row, _, number| {
            let start = self.start(b, row);
            self.store_sums(b, number, start);
        });
    }

    /// Takes the results of the warps for a chunk: to the sums, or to the workspace.
    pub(super) fn take(&self, b: &mut Builder, chunk: V) {
        let alone = self.alone(b);
        let slot = self.slot(b, chunk);
        self.each_piece(b, |b, row, col, number| {
            let part = self.join_warps(b, row, col);
            b.either(
                alone,
                |b| {
                    let sums = self.load_sums(b, number);
                    let sums = self.add(b, sums, part);
                    self.store_sums(b, number, sums);
                },
                |b| {
                    let p = self.slot_value(b, slot, row, col);
                    b.store(part.values, p);
                    let first = b.cmpc(Cmp::Eq, col, 0);
                    b.if_(first, |b| {
                        let p = self.slot_stat(b, slot, row);
                        b.store(part.maximum, p);
                        let p = b.atc(p, 4);
                        b.store(part.sum, p);
                    });
                },
            );
        });
    }

    /// After the last chunk: stores the output, if this team has all chunks or counts last.
    pub(super) fn finish(&self, b: &mut Builder) {
        let alone = self.alone(b);
        b.either(
            alone,
            |b| {
                self.each_piece(b, |b, row, col, number| {
                    let sums = self.load_sums(b, number);
                    self.store_out(b, (row, col), sums);
                });
            },
            |b| self.join_shares(b),
        );
    }

    fn store_out(&self, b: &mut Builder, (row, col): (V, V), sums: Part) {
        if self.split.tokens == 1 {
            return self.store_row(b, (row, col), sums);
        }
        // Rows of tokens that are not there are others' rows again.
        let nth = b.divc(row, self.split.heads() as i64);
        let there = b.cmp(Cmp::Slt, nth, self.item.tokens);
        b.if_(there, |b| self.store_row(b, (row, col), sums));
    }

    fn store_row(&self, b: &mut Builder, (row, col): (V, V), sums: Part) {
        let factor = b.rcp(sums.sum);
        let factor = if self.shape.may_be_blind() {
            let (zero, some) = (b.f32(0.0), self.some(b, sums));
            b.select(some, factor, zero)
        } else {
            factor
        };
        let factor = self.all(b, factor);
        let values = b.fmul(sums.values, factor);
        let ItemRow { token, head } = self.item.row(b, self.split, row);
        let start = b.mulc(head, self.d() as i64);
        let at = b.add(start, col);
        self.shape.store(b, self.args, token, at, values);
        if let Some(heads) = self.shape.sums {
            let first = b.cmpc(Cmp::Eq, col, 0);
            b.if_(first, |b| self.store_sums_of(b, (head, heads), sums));
        }
    }

    /// Whether anything was seen.
    fn some(&self, b: &mut Builder, sums: Part) -> V {
        let zero = b.f32(0.0);
        b.flt(zero, sums.sum)
    }

    /// Stores the largest score of a head, no longer in base 2, and the sum of the weights: after the values
    /// of all heads.
    fn store_sums_of(&self, b: &mut Builder, (head, heads): (V, usize), sums: Part) {
        let (some, base, none) = (self.some(b, sums), b.f32(std::f32::consts::LN_2), b.f32(f32::MIN));
        let maximum = b.fmul(sums.maximum, base);
        let maximum = b.select(some, maximum, none);
        let at = b.addc(head, (heads * self.d()) as i64);
        self.shape.store(b, self.args, self.item.token, at, maximum);
        let at = b.addc(at, heads as i64);
        self.shape.store(b, self.args, self.item.token, at, sums.sum);
    }

    /// A piece of a chunk's result, over the warps.
    fn join_warps(&self, b: &mut Builder, row: V, col: V) -> Part {
        let warps: Vec<V> = (0..self.split.parts).map(|w| b.i32(i64::from(w))).collect();
        let stats: Vec<(V, V)> = warps
            .iter()
            .map(|w| {
                let p = self.results.stat(b, *w, row);
                let maximum = b.load(p, F32);
                let p = b.atc(p, 4);
                (maximum, b.load(p, F32))
            })
            .collect();
        // At least one warp had a page, so the maximum is a number; a warp without one has −∞ and
        // weighs nothing. The last chunk of some tokens may be nothing to the first of them.
        let maximum = stats[1..].iter().fold(stats[0].0, |m, (x, _)| b.fmax(m, *x));
        let largest = maximum;
        let maximum = if self.split.tokens == 1 {
            maximum
        } else {
            let (none, zero) = (b.f32(f32::NEG_INFINITY), b.f32(0.0));
            let seen = b.flt(none, maximum);
            b.select(seen, maximum, zero)
        };
        let Part { mut sum, mut values, .. } = self.nothing(b);
        for (w, (m, s)) in warps.iter().zip(stats) {
            let x = b.fsub(m, maximum);
            let weight = b.exp2(x);
            sum = b.fma(weight, s, sum);
            let p = self.results.value(b, *w, row, col);
            let v = b.load(p, self.ty());
            let weight = self.all(b, weight);
            values = b.fma(weight, v, values);
        }
        Part { maximum: largest, sum, values }
    }

    /// Address of the result of a chunk in the workspace.
    fn slot(&self, b: &mut Builder, chunk: V) -> V {
        let first = b.mulc(self.item.owner, self.split.most as i64);
        let slot = b.add(first, chunk);
        let slot = b.zext(slot, I64);
        let offset = b.mulc(slot, (slot_floats(self.split.rows, self.d()) * 4) as i64);
        let base = b.atc(self.args.workspace(), COUNTER_BYTES as i64);
        b.at(base, offset)
    }

    fn slot_value(&self, b: &mut Builder, slot: V, row: V, col: V) -> V {
        let start = b.mulc(row, self.d() as i64);
        let index = b.add(start, col);
        let offset = b.shlc(index, 2);
        b.at(slot, offset)
    }

    fn slot_stat(&self, b: &mut Builder, slot: V, row: V) -> V {
        let stats = b.atc(slot, (self.split.rows * self.d() * 4) as i64);
        let offset = b.shlc(row, 3);
        b.at(stats, offset)
    }

    /// Counts this share; the last one adds all chunks. (Before the word is written again, the chunks
    /// of another item have barriers.)
    fn join_shares(&self, b: &mut Builder) {
        let words = (self.item.team.thread, self.results.flag);
        let counter = |b: &mut Builder| {
            let offset = b.shlc(self.item.owner, 2);
            b.at(self.args.workspace(), offset)
        };
        let last = is_last(b, words, counter, self.item.shares);
        b.if_(last, |b| {
            b.fence();
            self.add_all(b);
        });
    }

    /// Adds all chunks of the token from the workspace, and stores the output: of each thread a few
    /// pieces at a time, so that enough loads are under way.
    fn add_all(&self, b: &mut Builder) {
        let (threads, per_row) = (self.split.threads() as usize, self.d() / width(self.d()));
        let all = self.split.rows * per_row;
        let together = all.div_ceil(threads).clamp(1, TOGETHER);
        let n = b.i32(all as i64);
        b.for_range(self.item.team.thread, n, (threads * together) as i64, |b, i| {
            // Beyond the last piece, the last again, which is not stored.
            let pieces: Vec<(V, V, V)> = (0..together)
                .map(|j| {
                    let (i, last) = (b.addc(i, (j * threads) as i64), b.i32(all as i64 - 1));
                    let there = b.min(i, last);
                    let row = b.divc(there, per_row as i64);
                    let start = b.mulc(row, per_row as i64);
                    let piece = b.sub(there, start);
                    (i, row, b.mulc(piece, width(self.d()) as i64))
                })
                .collect();
            let places: Vec<(V, V)> = pieces.iter().map(|(_, row, col)| (*row, *col)).collect();
            let sums = self.add_chunks(b, &places);
            for ((i, row, col), sums) in pieces.into_iter().zip(sums) {
                let inside = b.cmp(Cmp::Slt, i, n);
                b.if_(inside, |b| self.store_out(b, (row, col), sums));
            }
        });
    }

    /// Some pieces over all chunks of the token, from the workspace.
    fn add_chunks(&self, b: &mut Builder, places: &[(V, V)]) -> Vec<Part> {
        let join = (LOADS / places.len()).min(JOIN);
        let start: Vec<V> = places
            .iter()
            .flat_map(|(row, _)| {
                let Part { maximum, sum, values } = self.start(b, *row);
                [maximum, sum, values]
            })
            .collect();
        let (first, step) = (b.i32(0), b.i32(join as i64));
        let last = b.addc(self.item.chunks, -1);
        let out = b.for_((first, self.item.chunks, step), &start, |b, i, sums| {
            // All loads first; beyond the last chunk, the last again, which is not added.
            let loaded: Vec<(V, Vec<Part>)> = (0..join as i64)
                .map(|j| {
                    let chunk = b.addc(i, j);
                    let there = b.min(chunk, last);
                    let slot = self.slot(b, there);
                    (chunk, places.iter().map(|place| self.load_slot(b, slot, *place)).collect())
                })
                .collect();
            let mut sums: Vec<Part> = parts(sums);
            for (chunk, of_chunk) in loaded {
                let there = b.cmp(Cmp::Slt, chunk, self.item.chunks);
                for (sums, part) in sums.iter_mut().zip(of_chunk) {
                    let more = self.add(b, *sums, part);
                    *sums = Part {
                        maximum: b.select(there, more.maximum, sums.maximum),
                        sum: b.select(there, more.sum, sums.sum),
                        values: b.select(there, more.values, sums.values),
                    };
                }
            }
            sums.into_iter().flat_map(|s| [s.maximum, s.sum, s.values]).collect()
        });
        parts(&out)
    }

    /// A piece of a chunk, from the workspace.
    fn load_slot(&self, b: &mut Builder, slot: V, (row, col): (V, V)) -> Part {
        let p = self.slot_stat(b, slot, row);
        let maximum = b.load(p, F32);
        let p = b.atc(p, 4);
        let sum = b.load(p, F32);
        let p = self.slot_value(b, slot, row, col);
        Part { maximum, sum, values: b.load(p, self.ty()) }
    }
}

/// Three values each.
fn parts(all: &[V]) -> Vec<Part> {
    all.chunks(3).map(|p| Part { maximum: p[0], sum: p[1], values: p[2] }).collect()
}
