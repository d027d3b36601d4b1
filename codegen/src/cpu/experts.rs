//! Products with the matrices of each token's experts.
//!
//! Every thread first sorts the pairs of a token and a slot by expert, into its own scratch: a
//! count, a sum, a placement, which cost nothing beside the products. Then a column tile of an
//! expert has its rows in one run of that list: it brings `tile_m` of them together, multiplies them
//! as any rows are multiplied, and stores each in its token's slot. An expert without rows is not
//! read.
//!
//! Items are shares of the work, not certain tiles: which experts have rows is known when the
//! kernel runs only. All tiles of one expert stand before the next expert's, so that a thread reads
//! whole stretches of memory, and the weight of a tile is the cost of reading it plus its rows.
//!
//! Without routes, each slot having the expert of its number, the pairs are in that order as they
//! are: token after token of one slot after the other.
//!
//! A pair is a row of a product of its own, so its bits depend on nothing else in the batch.

use super::Lowering;
use super::emit::{Emit, F32, F32X4, I32, I64};
use super::expr::Program;
use super::frame::Frame;
use super::matmul::{Lane, accumulators, panel_args};
use super::panel::Panel;
use super::span::{Slot, Span};
use super::store::Dest;
use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::{InstBuilder, StackSlot, Value};
use llmcc_abi::layout::{self, BLOCK};
use llmcc_ir::kernel::{ExpertMatmul, ParamId, RowElem};
use llmcc_ir::plan::row_bytes;

/// Where the rows of a slot are, and how they are brought together.
struct Input {
    x: ParamId,
    /// Columns of a row, all slots included.
    cols: usize,
    /// Columns of a slot.
    k: usize,
    /// Whether each slot has columns of its own.
    own: bool,
    elem: RowElem,
    /// Bytes from one row to the next where they are brought together, and offset of the first.
    stride: usize,
    at: usize,
}

/// The pairs of a token and a slot, sorted by expert.
struct Pairs {
    routes: Option<ParamId>,
    experts: usize,
    top: usize,
    /// Offset of the ends of the experts' runs, after a 0.
    ends: usize,
    /// Offset of the pairs: token·top + slot.
    list: usize,
}

/// Cost of reading a tile of weights, in rows multiplied with it: about this much for 4 bits at the
/// speed of memory.
const READING: usize = 8;

struct Plan<'k> {
    k: &'k ExpertMatmul,
    input: Input,
    pairs: Pairs,
    lanes: Vec<Lane>,
    /// f32 elements from one row of a tile to the next.
    tile_stride: usize,
    program: Program,
    out: ParamId,
    dest: Dest,
    args: StackSlot,
}

/// Emits the items `lo..hi`; returns scratch bytes per row.
pub(super) fn lower(low: &Lowering, e: &mut Emit, frame: &mut Frame, k: &ExpertMatmul) -> usize {
    let (cols, elem) = low.rows(k.x);
    let s = &k.segment;
    let tile_n = s.tile_n.min(k.rows());
    let tile_stride = layout::tile_row(tile_n);
    let mut lanes: Vec<Lane> = s.weights.iter().map(|w| Lane::new(low, *w)).collect();
    lanes.iter_mut().for_each(|lane| lane.tile = frame.floats(k.tile_m * tile_stride));
    let (out, dest) = Dest::new(low, &s.store);
    let program = dest.program(low, frame, &s.expr, tile_n);
    let inner = lanes.first().map_or(cols, |lane| lane.k);
    let stride = row_bytes(inner, elem).next_multiple_of(16);
    let own = k.own_input(cols, inner);
    let input = Input { x: k.x, cols, k: inner, own, elem, stride, at: frame.bytes(k.tile_m * stride) };
    let sorted = k.routes.is_some();
    let ends = frame.bytes(if sorted { (k.experts + 1).next_multiple_of(4) * 4 } else { 0 });
    let pairs = Pairs { routes: k.routes, experts: k.experts, top: k.top, ends, list: frame.size() };
    let args = panel_args(e);
    let plan = Plan { k, input, pairs, lanes, tile_stride, program, out, dest, args };
    let work = match k.routes {
        Some(routes) => plan.pairs.sort(low, e, low.args.operand(routes)),
        None => e.int(k.experts as i64),
    };
    plan.emit(low, e, work);
    if sorted { (k.top * 4).next_multiple_of(64) } else { 0 }
}

impl Pairs {
    /// Calls `f` with each pair and its expert.
    fn each(&self, low: &Lowering, e: &mut Emit, routes: Value, f: impl FnOnce(&mut Emit, Value, Value)) {
        let zero = e.int(0);
        e.each(zero, low.args.m, 1, |e, token| {
            let row = e.index(routes, token, 2 * self.top * 4);
            let first = e.times(token, self.top);
            e.each_fixed(self.top, 1, |e, slot| {
                let p = e.index(row, slot, 4);
                let number = e.load(F32, p, 0);
                let number = e.b.ins().fcvt_to_sint_sat(I32, number);
                let number = e.b.ins().sextend(I64, number);
                // Routes name experts that there are; nothing else is read if they do not.
                let (least, most) = (e.int(0), e.int(self.experts as i64 - 1));
                let number = e.max(number, least);
                let expert = e.min(number, most);
                let pair = e.add(first, slot);
                f(e, pair, expert);
            });
        });
    }

    /// Fills ends and list. Returns the work of a tile of each expert.
    fn sort(&self, low: &Lowering, e: &mut Emit, routes: Value) -> Value {
        let ends = e.offset(low.args.scratch, self.ends);
        let list = e.offset(low.args.scratch, self.list);
        let none = e.floats(0.0);
        e.each_fixed((self.experts + 1).next_multiple_of(4) * 4, 16, |e, at| {
            let p = e.add(ends, at);
            debug_assert_eq!(F32X4.bytes(), 16);
            e.store(none, p, 0);
        });
        let one = e.b.ins().iconst(I32, 1);
        let count = |e: &mut Emit, expert: Value| {
            let p = e.index(ends, expert, 4);
            let p = e.offset(p, 4);
            let at = e.load(I32, p, 0);
            let next = e.add(at, one);
            e.store(next, p, 0);
            at
        };
        self.each(low, e, routes, |e, _, expert| {
            count(e, expert);
        });
        // Counts become starts.
        let zero = e.b.ins().iconst(I32, 0);
        let none = e.int(0);
        let sums = e.fixed(self.experts, 1, &[zero, none], |e, expert, sums| {
            let p = e.index(ends, expert, 4);
            let p = e.offset(p, 4);
            let count = e.load(I32, p, 0);
            e.store(sums[0], p, 0);
            let rows = e.b.ins().uextend(I64, count);
            let work = self.work(e, rows);
            vec![e.add(sums[0], count), e.add(sums[1], work)]
        });
        // Placing them makes ends of the starts.
        self.each(low, e, routes, |e, pair, expert| {
            let at = count(e, expert);
            let at = e.b.ins().uextend(I64, at);
            let p = e.index(list, at, 4);
            let pair = e.b.ins().ireduce(I32, pair);
            e.store(pair, p, 0);
        });
        sums[1]
    }

    /// The work of a tile of an expert with so many rows.
    fn work(&self, e: &mut Emit, rows: Value) -> Value {
        if self.routes.is_none() {
            return e.int(1);
        }
        let none = e.int(0);
        let some = e.compare(IntCC::NotEqual, rows, none);
        let work = e.offset(rows, READING);
        e.b.ins().select(some, work, none)
    }

    /// First pair of an expert, and the one after its last.
    fn of(&self, low: &Lowering, e: &mut Emit, expert: Value) -> (Value, Value) {
        if self.routes.is_none() {
            let first = e.b.ins().imul(expert, low.args.m);
            return (first, e.add(first, low.args.m));
        }
        let ends = e.offset(low.args.scratch, self.ends);
        let p = e.index(ends, expert, 4);
        (e.load_index(p, 0), e.load_index(p, 4))
    }

    /// Token and slot of pair `i` of the list.
    fn get(&self, low: &Lowering, e: &mut Emit, i: Value) -> (Value, Value) {
        if self.routes.is_none() {
            let slot = e.b.ins().udiv(i, low.args.m);
            let first = e.b.ins().imul(slot, low.args.m);
            return (e.sub(i, first), slot);
        }
        let list = e.offset(low.args.scratch, self.list);
        let p = e.index(list, i, 4);
        let pair = e.load_index(p, 0);
        e.div_mod(pair, self.top)
    }
}

impl Input {
    /// Whether a slot's columns lie in its token's row as they do where they are brought together.
    fn in_place(&self) -> bool {
        !(self.own && self.elem.group().is_some())
    }

    /// Address of a slot's columns in its token's row.
    fn slot(&self, low: &Lowering, e: &mut Emit, (token, slot): (Value, Value)) -> Value {
        let row = e.index(low.args.operand(self.x), token, row_bytes(self.cols, self.elem));
        if !self.own {
            return row;
        }
        e.index(row, slot, self.k * self.elem.encoding().bits() as usize / 8)
    }

    /// Copies a slot's columns to `to`.
    fn bring(&self, low: &Lowering, e: &mut Emit, pair: (Value, Value), to: Value) {
        let from = self.slot(low, e, pair);
        let Some(group) = self.elem.group() else {
            return copy(e, from, to, self.k * self.elem.encoding().bits() as usize / 8);
        };
        if !self.own {
            return copy(e, from, to, layout::q8_row(self.k, group).bytes);
        }
        copy(e, from, to, self.k);
        let (wide, narrow) = (layout::q8_row(self.cols, group), layout::q8_row(self.k, group));
        let row = e.index(low.args.operand(self.x), pair.0, wide.bytes);
        for (from, at, each) in [(wide.scales, narrow.scales, 4), (wide.sums, narrow.sums, layout::q8_sum_bytes(group))]
        {
            let factors = self.k / group * each;
            let row = e.index(row, pair.1, factors);
            let (from, to) = (e.offset(row, from), e.offset(to, at));
            copy(e, from, to, factors);
        }
    }
}

/// Copies so many bytes, a multiple of 2.
fn copy(e: &mut Emit, from: Value, to: Value, bytes: usize) {
    e.each_fixed(bytes / 16 * 16, 16, |e, at| {
        let (from, to) = (e.add(from, at), e.add(to, at));
        let v = e.load(F32X4, from, 0);
        e.store(v, to, 0);
    });
    for at in (bytes / 16 * 16..bytes / 4 * 4).step_by(4) {
        let v = e.load(I32, from, at);
        e.store(v, to, at);
    }
    if bytes % 4 >= 2 {
        let v = e.load_half(from, bytes / 4 * 4);
        e.store_half(v, to, bytes / 4 * 4);
    }
}

/// The part of an expert to compute, and the pairs of a pass.
struct Tile {
    expert: Value,
    col: Value,
    width: Value,
    /// First pair.
    first: Value,
    rows: Value,
    /// Whether an earlier tile has brought these rows together.
    together: Value,
}

impl Plan<'_> {
    /// The tiles that start within `lo..hi` of as many shares of the work; `each`: the work of a tile
    /// of each expert.
    fn emit(&self, low: &Lowering, e: &mut Emit, each: Value) {
        let experts = self.k.experts;
        let bound = |e: &mut Emit, item: Value| {
            let work = e.b.ins().imul(item, each);
            e.b.ins().udiv_imm_u(work, experts as i64)
        };
        let (lo, hi) = (bound(e, low.args.lo), bound(e, low.args.hi));
        let zero = e.int(0);
        e.fixed(experts, 1, &[zero], |e, expert, before| {
            let (from, to) = self.pairs.of(low, e, expert);
            let count = e.sub(to, from);
            let work = self.pairs.work(e, count);
            let all = e.times(work, self.k.segment.tiles());
            let after = e.add(before[0], all);
            let (first, last) = (e.max(lo, before[0]), e.min(hi, after));
            let any = e.compare(IntCC::SignedLessThan, first, last);
            e.when(any, |e| {
                let tiles = [first, last].map(|at| {
                    let at = e.sub(at, before[0]);
                    let up = e.add(at, work);
                    let up = e.b.ins().iadd_imm_s(up, -1);
                    e.b.ins().udiv(up, work)
                });
                self.tiles(low, e, expert, (from, to), tiles);
            });
            vec![after]
        });
    }

    /// Tiles of an expert, with its pairs.
    fn tiles(&self, low: &Lowering, e: &mut Emit, expert: Value, (from, to): (Value, Value), tiles: [Value; 2]) {
        let s = &self.k.segment;
        let most = e.int(self.k.tile_m as i64);
        let count = e.sub(to, from);
        let one_pass = e.compare(IntCC::SignedLessThanOrEqual, count, most);
        e.each(tiles[0], tiles[1], 1, |e, tile| {
            let col = e.times(tile, s.tile_n);
            let (n, tile_n) = (e.int(s.n as i64), e.int(s.tile_n as i64));
            let rest = e.sub(n, col);
            let width = e.min(rest, tile_n);
            let later = e.compare(IntCC::NotEqual, tile, tiles[0]);
            let together = e.b.ins().band(one_pass, later);
            e.each(from, to, self.k.tile_m, |e, first| {
                let rest = e.sub(to, first);
                let rows = e.min(rest, most);
                self.tile(low, e, &Tile { expert, col, width, first, rows, together });
            });
        });
    }

    fn tile(&self, low: &Lowering, e: &mut Emit, t: &Tile) {
        let a = self.gather(low, e, t);
        for lane in &self.lanes {
            let block = lane.format.block_bytes(self.input.k);
            let first = e.times(t.expert, self.k.rows() / BLOCK);
            let number = e.b.ins().ushr_imm_u(t.col, i64::from(BLOCK.trailing_zeros()));
            let number = e.add(first, number);
            let w = e.index(low.args.operand(lane.weights), number, block);
            let whole = self.k.segment.n.is_multiple_of(BLOCK);
            let width = if whole { t.width } else { e.offset(t.width, BLOCK - 1) };
            let blocks = e.b.ins().ushr_imm_u(width, i64::from(BLOCK.trailing_zeros()));
            let panel = Panel {
                format: lane.format,
                rows_elem: self.input.elem,
                k: self.input.k,
                w,
                w_stride: block,
                blocks,
                a,
                a_stride: self.input.stride,
                rows: t.rows,
                c: e.offset(low.args.scratch, lane.tile),
                c_stride: self.tile_stride,
            };
            lane.multiply(low, e, self.args, &panel);
        }
        self.dest.tile(low, e, &self.program, t.rows, low.args.operand(self.out), |e, i, f| self.row(low, e, t, i, f));
    }

    /// Where the rows of a pass are: brought together, unless it is a single one.
    fn gather(&self, low: &Lowering, e: &mut Emit, t: &Tile) -> Value {
        let together = e.offset(low.args.scratch, self.input.at);
        let (mut a, mut count) = (together, t.rows);
        if self.input.in_place() {
            let one = e.int(1);
            let single = e.compare(IntCC::Equal, t.rows, one);
            let pair = self.pairs.get(low, e, t.first);
            let direct = self.input.slot(low, e, pair);
            a = e.b.ins().select(single, direct, together);
            let zero = e.int(0);
            count = e.b.ins().select(single, zero, t.rows);
        }
        let zero = e.int(0);
        let count = e.b.ins().select(t.together, zero, count);
        e.each(zero, count, 1, |e, i| {
            let at = e.add(t.first, i);
            let pair = self.pairs.get(low, e, at);
            let to = e.index(together, i, self.input.stride);
            self.input.bring(low, e, pair, to);
        });
        a
    }

    /// Calls `f` with the number of row `i` of a pass, and its columns.
    fn row(&self, low: &Lowering, e: &mut Emit, t: &Tile, i: Value, f: &mut dyn FnMut(&mut Emit, &Span, Value)) {
        let acc = accumulators(low, e, &self.lanes, i, self.tile_stride);
        let at = e.add(t.first, i);
        let (row, slot) = self.pairs.get(low, e, at);
        let n = self.k.segment.n;
        let slot = Some(Slot { start: e.times(slot, n), expert: t.expert });
        f(e, &Span { row, col: t.col, width: t.width, n, acc: &acc, slot }, row);
    }
}
