//! How decoding is dealt to blocks, and how their results are joined.
//!
//! The grid is fixed, whatever the step. An item is a token, a unit (the query heads that share a pass over the cache) and a split of the pages the token sees;
//! there are as many splits as fit the grid. A token with few pages uses fewer splits. Each block reduces its split to `(maximum, sum, weighted
//! values)` per head; where there are several, it leaves them in the workspace, and the block that counts last joins them, in the order of the splits, and leaves
//! the counter at zero.

use super::Shape;
use crate::cx::{Args, Cx, share_out};
use crate::mlir::{Builder, Cmp, Elem, F32, I32, I64, Ty, V};
use crate::{COUNTER_BYTES, Source, blocks};
use llmcc_codegen::CodegenError;

/// Most splits of a token.
const MAX_SPLITS: usize = 64;
/// Fewest pages worth a split of their own.
const MIN_PAGES: i64 = 4;
/// Splits whose loads are under way together when they are joined.
const JOIN: usize = 8;

/// How a kernel's work is dealt.
pub(super) struct Split {
    /// Query heads of an item.
    pub(super) rows: usize,
    /// Items per token and split.
    pub(super) units: usize,
    pub(super) warps: u32,
    /// Blocks of the grid.
    pub(super) blocks: usize,
    /// Shared memory that the warps' main loop needs.
    pub(super) shared: usize,
}

/// A block's work.
#[derive(Clone, Copy)]
pub(super) struct Item {
    pub(super) token: V,
    /// First query head.
    pub(super) head: V,
    pub(super) kv_head: V,
    /// First position that the token sees.
    pub(super) first: V,
    /// Positions that it sees.
    pub(super) seen: V,
    /// Pages `page..end_page`.
    pub(super) page: V,
    pub(super) end_page: V,
    split: V,
    /// Splits of this token.
    splits: V,
    /// Number of the token and unit.
    number: V,
    /// Where its result goes in the workspace: results of a token and unit are adjacent.
    slot: V,
}

/// Results of the warps of a block, in shared memory: per warp and row the weighted values (f32, unnormalized), and the maximum and the sum.
pub(super) struct Results {
    values: V,
    stats: V,
    stride: usize,
    rows: usize,
}

impl Split {
    fn threads(&self) -> u32 {
        self.warps * 32
    }

    /// Floats per row of [`Results`]: padded so that the eight rows of a tensor-core tile fall into different banks.
    fn stride(&self, d: usize) -> usize {
        d.next_multiple_of(4) + 8
    }

    fn results_bytes(&self, d: usize) -> usize {
        self.warps as usize * self.rows * (self.stride(d) + 2) * 4
    }

    /// Shared memory of the block: the main loop's, then (when it is over) the results and the weights of the splits, and a word.
    fn shared_bytes(&self, d: usize) -> usize {
        let joining = self.results_bytes(d).max(MAX_SPLITS * self.rows * 4);
        self.shared.max(joining).next_multiple_of(16) + 16
    }

    /// Floats of a split's result: values, then maximum and sum of each row.
    fn slot_floats(&self, d: usize) -> usize {
        (self.rows * (d + 2)).next_multiple_of(4)
    }

    /// The results of the warps.
    pub(super) fn results(&self, b: &mut Builder, d: usize) -> Results {
        let stride = self.stride(d);
        let values = b.shared();
        let stats = b.atc(values, (self.warps as usize * self.rows * stride * 4) as i64);
        Results { values, stats, stride, rows: self.rows }
    }

    /// Emits the kernel: `attend` leaves the results of the warps in shared memory, each thread being past its own use of the main loop's memory.
    pub(super) fn emit(
        &self,
        cx: &Cx<'_>,
        shape: &Shape,
        generic: Option<&'static str>,
        min_blocks: u32,
        attend: impl FnOnce(&mut Builder, Args<'_>, &Item, &Results),
    ) -> Result<Source, CodegenError> {
        let d = shape.spec.head_dim;
        let shared = self.shared_bytes(d);
        if shared > crate::shared_limit(cx) {
            return Err(cx.error(format!("heads of {d} need {shared} bytes of shared memory")));
        }
        if self.blocks * 4 > COUNTER_BYTES {
            return Err(cx.error(format!("{} blocks need more counters than there are", self.blocks)));
        }
        let mlir = cx.function(self.threads(), min_blocks, |b, args| {
            let results = self.results(b, d);
            self.each_item(cx, b, args, shape, |b, item| {
                attend(b, args, item, &results);
                b.barrier();
                let join = Join { split: self, shape, args, item, results: &results };
                join.emit(b);
                b.barrier();
            });
        });
        Ok(Source {
            entry: cx.entry(),
            mlir,
            threads: self.threads(),
            shared: shared as u32,
            grid: [blocks(self.blocks), blocks(1), blocks(1)],
            scratch: (COUNTER_BYTES + self.blocks * self.slot_floats(d) * 4) as u64,
            scratch_per_m: 0,
            generic,
        })
    }

    /// Runs `body` for the items of this block.
    fn each_item(&self, cx: &Cx<'_>, b: &mut Builder, args: Args<'_>, shape: &Shape, body: impl FnOnce(&mut Builder, &Item)) {
        let tokens = cx.row_count(b, args);
        let numbers = b.mulc(tokens, self.units as i64);
        let (one, most, grid) = (b.i32(1), b.i32(MAX_SPLITS as i64), b.i32(self.blocks as i64));
        let some = b.max(numbers, one);
        let splits = b.div(grid, some);
        let splits = b.max(splits, one);
        let splits = b.min(splits, most);
        let items = b.mul(numbers, splits);
        let block = b.sreg("ctaid.x");
        b.for_range(block, items, self.blocks as i64, |b, i| {
            let number = b.div(i, splits);
            let start = b.mul(number, splits);
            let split = b.sub(i, start);
            let token = b.divc(number, self.units as i64);
            let start = b.mulc(token, self.units as i64);
            let unit = b.sub(number, start);
            let head = b.mulc(unit, self.rows as i64);
            let kv_head = b.divc(head, shape.group as i64);
            let position = args.position(b, token);
            let first = shape.first_seen(b, position);
            let seen = b.sub(position, first);
            let seen = b.addc(seen, 1);
            let (first_page, last_page) = (b.shrc(first, 4), b.shrc(position, 4));
            let end = b.addc(last_page, 1);
            let pages = b.sub(end, first_page);
            // Pages per split, and splits that have any.
            let run = ceil_div(b, pages, splits);
            let least = b.i32(MIN_PAGES);
            let run = b.max(run, least);
            let used = ceil_div(b, pages, run);
            let offset = b.mul(split, run);
            let page = b.add(first_page, offset);
            let end_page = b.add(page, run);
            let end_page = b.min(end_page, end);
            let has_work = b.cmp(Cmp::Ult, split, used);
            let item = Item { token, head, kv_head, first, seen, page, end_page, split, splits: used, number, slot: i };
            b.if_(has_work, |b| body(b, &item));
        });
    }
}

fn ceil_div(b: &mut Builder, x: V, y: V) -> V {
    let up = b.add(x, y);
    let up = b.addc(up, -1);
    b.div(up, y)
}

impl Results {
    /// Address of element `col` of a row of a warp.
    pub(super) fn value(&self, b: &mut Builder, warp: V, row: V, col: V) -> V {
        let line = self.line(b, warp, row);
        let index = b.mulc(line, self.stride as i64);
        let index = b.add(index, col);
        let offset = b.shlc(index, 2);
        b.at(self.values, offset)
    }

    /// Address of the maximum (and, 4 bytes on, the sum) of a row of a warp.
    pub(super) fn stat(&self, b: &mut Builder, warp: V, row: V) -> V {
        let line = self.line(b, warp, row);
        let offset = b.shlc(line, 3);
        b.at(self.stats, offset)
    }

    fn line(&self, b: &mut Builder, warp: V, row: V) -> V {
        let line = b.mulc(warp, self.rows as i64);
        b.add(line, row)
    }
}

/// What follows a block's main loop.
struct Join<'a> {
    split: &'a Split,
    shape: &'a Shape,
    args: Args<'a>,
    item: &'a Item,
    results: &'a Results,
}

impl Join<'_> {
    fn d(&self) -> usize {
        self.shape.spec.head_dim
    }

    /// Columns that a thread treats at once, and their type.
    fn piece(&self) -> (usize, Ty) {
        if self.d().is_multiple_of(4) { (4, Ty::Vec(4, Elem::F32)) } else { (1, F32) }
    }

    /// Runs `body(row, first column)` for the pieces of the result, shared out.
    fn each_piece(&self, b: &mut Builder, body: impl FnOnce(&mut Builder, V, V)) {
        let (width, _) = self.piece();
        let per_row = (self.d() / width) as i64;
        let n = b.i32(self.split.rows as i64 * per_row);
        share_out(b, n, self.split.threads(), |b, i| {
            let row = b.divc(i, per_row);
            let start = b.mulc(row, per_row);
            let piece = b.sub(i, start);
            let col = b.mulc(piece, width as i64);
            body(b, row, col);
        });
    }

    /// A number for every column of a piece.
    fn all(&self, b: &mut Builder, x: V) -> V {
        match self.piece() {
            (1, _) => x,
            (n, _) => b.splat(x, n as u8),
        }
    }

    fn emit(&self, b: &mut Builder) {
        let alone = b.cmpc(Cmp::Eq, self.item.splits, 1);
        b.if_else(
            alone,
            &[],
            |b| {
                self.each_piece(b, |b, row, col| {
                    let (_, sum, values) = self.join_warps(b, row, col);
                    let factor = b.rcp(sum);
                    let factor = self.all(b, factor);
                    let values = b.fmul(values, factor);
                    self.store_out(b, row, col, values);
                });
                vec![]
            },
            |b| {
                let mine = self.slot(b, self.item.slot);
                self.each_piece(b, |b, row, col| {
                    let (maximum, sum, values) = self.join_warps(b, row, col);
                    let p = self.slot_value(b, mine, row, col);
                    b.store(values, p);
                    let first = b.cmpc(Cmp::Eq, col, 0);
                    b.if_(first, |b| {
                        let p = self.slot_stat(b, mine, row);
                        b.store(maximum, p);
                        let p = b.atc(p, 4);
                        b.store(sum, p);
                    });
                });
                self.join_splits(b);
                vec![]
            },
        );
    }

    fn store_out(&self, b: &mut Builder, row: V, col: V, values: V) {
        let head = b.add(self.item.head, row);
        let start = b.mulc(head, self.d() as i64);
        let col = b.add(start, col);
        self.shape.store(b, self.args, self.item.token, col, values);
    }

    /// Maximum, sum and weighted values of a piece over the warps.
    fn join_warps(&self, b: &mut Builder, row: V, col: V) -> (V, V, V) {
        let (_, ty) = self.piece();
        let warps: Vec<V> = (0..self.split.warps).map(|w| b.i32(i64::from(w))).collect();
        let stats: Vec<(V, V)> = warps
            .iter()
            .map(|w| {
                let p = self.results.stat(b, *w, row);
                let maximum = b.load(p, F32);
                let p = b.atc(p, 4);
                (maximum, b.load(p, F32))
            })
            .collect();
        // At least one warp had a page, so the maximum is a number; a warp without one has −∞ and weighs nothing.
        let maximum = stats[1..].iter().fold(stats[0].0, |m, (x, _)| b.fmax(m, *x));
        let (mut sum, zero) = (b.f32(0.0), b.f32(0.0));
        let mut values = self.all(b, zero);
        for (w, (m, s)) in warps.iter().zip(stats) {
            let x = b.fsub(m, maximum);
            let weight = b.exp2(x);
            sum = b.fma(weight, s, sum);
            let p = self.results.value(b, *w, row, col);
            let v = b.load(p, ty);
            let weight = self.all(b, weight);
            values = b.fma(weight, v, values);
        }
        (maximum, sum, values)
    }

    /// Address of a split's result in the workspace.
    fn slot(&self, b: &mut Builder, slot: V) -> V {
        let slot = b.zext(slot, I64);
        let offset = b.mulc(slot, (self.split.slot_floats(self.d()) * 4) as i64);
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

    /// Counts this split; the last one joins all.
    fn join_splits(&self, b: &mut Builder) {
        b.fence();
        b.barrier();
        let flag = b.shared();
        let flag = b.atc(flag, self.split.shared_bytes(self.d()) as i64 - 16);
        let tid = b.sreg("tid.x");
        let one_thread = b.cmpc(Cmp::Eq, tid, 0);
        b.if_(one_thread, |b| {
            let offset = b.shlc(self.item.number, 2);
            let counter = b.at(self.args.workspace(), offset);
            let one = b.i32(1);
            let before = b.atomic_add(counter, one);
            let after = b.addc(before, 1);
            let last = b.cmp(Cmp::Eq, after, self.item.splits);
            b.if_(last, |b| {
                let zero = b.i32(0);
                b.store(zero, counter);
            });
            let word = b.zext(last, I32);
            b.store(word, flag);
        });
        b.barrier();
        let last = b.load(flag, I32);
        let last = b.cmpc(Cmp::Ne, last, 0);
        b.if_(last, |b| {
            b.fence();
            self.weigh_splits(b);
            b.barrier();
            self.each_piece(b, |b, row, col| self.add_splits(b, row, col));
        });
    }

    /// Result number `split` of this token and unit in the workspace.
    fn sibling(&self, b: &mut Builder, split: V) -> V {
        let first = b.sub(self.item.slot, self.item.split);
        let slot = b.add(first, split);
        self.slot(b, slot)
    }

    /// Address of the weight of a split in a row.
    fn weight(&self, b: &mut Builder, split: V, row: V) -> V {
        let line = b.mulc(split, self.split.rows as i64);
        let index = b.add(line, row);
        let offset = b.shlc(index, 2);
        let base = b.shared();
        b.at(base, offset)
    }

    /// What each split's values are multiplied with: `2^(m − max) / sum`, 0 beyond the last split. A warp per row, a lane for every 32nd split.
    fn weigh_splits(&self, b: &mut Builder) {
        let tid = b.sreg("tid.x");
        let (warp, lane) = (b.shrc(tid, 5), b.andc(tid, 31));
        let rows = b.i32(self.split.rows as i64);
        b.for_range(warp, rows, i64::from(self.split.warps), |b, row| {
            let (none, zero) = (b.f32(f32::NEG_INFINITY), b.f32(0.0));
            let lanes: Vec<(V, V, V)> = (0..MAX_SPLITS as i64 / 32)
                .map(|i| {
                    let split = b.addc(lane, i * 32);
                    let used = b.cmp(Cmp::Ult, split, self.item.splits);
                    let there = b.select(used, split, self.item.split);
                    let slot = self.sibling(b, there);
                    let p = self.slot_stat(b, slot, row);
                    let m = b.load(p, F32);
                    let p = b.atc(p, 4);
                    let s = b.load(p, F32);
                    (split, b.select(used, m, none), b.select(used, s, zero))
                })
                .collect();
            let maximum = lanes[1..].iter().fold(lanes[0].1, |m, (_, x, _)| b.fmax(m, *x));
            let maximum = b.reduce(maximum, &[16, 8, 4, 2, 1], |b, x, y| b.fmax(x, y));
            let mut sum = zero;
            let weights: Vec<(V, V)> = lanes
                .iter()
                .map(|(split, m, s)| {
                    let x = b.fsub(*m, maximum);
                    let weight = b.exp2(x);
                    sum = b.fma(weight, *s, sum);
                    (*split, weight)
                })
                .collect();
            let sum = b.reduce(sum, &[16, 8, 4, 2, 1], |b, x, y| b.fadd(x, y));
            let factor = b.rcp(sum);
            for (split, weight) in weights {
                let weight = b.fmul(weight, factor);
                let p = self.weight(b, split, row);
                b.store(weight, p);
            }
        });
    }

    /// Adds a piece over the splits and stores it.
    fn add_splits(&self, b: &mut Builder, row: V, col: V) {
        let (_, ty) = self.piece();
        let zero = b.f32(0.0);
        let zero = self.all(b, zero);
        let (first, step) = (b.i32(0), b.i32(JOIN as i64));
        let last = b.addc(self.item.splits, -1);
        let sum = b.for_((first, self.item.splits, step), &[zero], |b, i, acc| {
            // All loads first; splits beyond the last have weight 0 and read the last one.
            let loaded: Vec<(V, V)> = (0..JOIN as i64)
                .map(|j| {
                    let split = b.addc(i, j);
                    let there = b.min(split, last);
                    let slot = self.sibling(b, there);
                    let p = self.slot_value(b, slot, row, col);
                    (split, b.load(p, ty))
                })
                .collect();
            let mut acc = acc[0];
            for (split, v) in loaded {
                let p = self.weight(b, split, row);
                let weight = b.load(p, F32);
                let weight = self.all(b, weight);
                acc = b.fma(weight, v, acc);
            }
            vec![acc]
        });
        self.store_out(b, row, col, sum[0]);
    }
}
