//! The most probable tokens of each row of logits.
//!
//! A row is cut into slices of [`SLICE`] logits, a block each; the block that finishes last joins
//! the others' results. All work is on *composites*: 64 bits, the logit's bits in an order that
//! integers compare (NaN on top) above the inverted token id, so that composites differ pairwise
//! and one comparison orders by logit, then id. A thread holds its composites of a slice in
//! registers: the logits are read once, `4·vocab` bytes per row, and `8·k` bytes per slice are
//! written and read again (at k = 64 and 128256 tokens 3 % of the logits). The largest one takes a
//! reduction, which is all that greedy rows need.
//!
//! The `k` largest are those above a threshold, which is found by bisection: count the composites
//! above a probe (registers, one warp instruction, one barrier) until there are exactly `k`. The
//! first probe is the maximum less 8, since nearly always the k-th token of a slice is that
//! probable and no more than 2²³ floats lie between; then some ten probes find a gap between two
//! neighbours. At most 65 find it among any composites (equal logits take the longest). So the work
//! does not depend on how the logits are distributed but for this number of probes, and there is no
//! buffer that could overflow. The `k` are then ranked by counting, each against all.

mod found;
mod search;

use crate::cx::{Args, Cx, when_below};
use crate::mlir::{Builder, Cmp, Elem, F32, I32, I64, V, WARP};
use crate::piece::{self, col_at, row_at};
use crate::{Source, blocks};
use found::Row;
use llmcc_abi::{GpuCtx, GpuDim};
use llmcc_ir::kernel::{RowElem, TopK};
use search::Shared;
use std::mem::offset_of;

/// Threads of a block.
const THREADS: usize = 256;
/// Logits of a block.
const SLICE: usize = 4096;
/// Most composites that a thread holds when slices are joined.
const HELD: usize = 32;
/// How far below the maximum the first probe is.
const PROBE: f32 = -8.0;

/// Emits the kernel.
pub fn emit(cx: &Cx<'_>, k: &TopK) -> Source {
    let shape = Shape::new(cx, k);
    let (mlir, program) = cx.function(THREADS as u32, 1, |b, args| {
        let m = cx.row_count(b, args);
        let block = b.sreg("ctaid.x");
        let row = b.divc(block, shape.slices as i64);
        when_below(b, row, m, |b| {
            let wanted = args.array_at(b, offset_of!(GpuCtx, wanted), row);
            let some = b.cmpc(Cmp::Ne, wanted, 0);
            b.if_(some, |b| Block::new(b, &shape, args, block, row, wanted).emit(b));
        });
    });
    Source {
        entry: cx.entry(),
        mlir,
        program,
        threads: THREADS as u32,
        shared: Shared::bytes(shape.k) as u32,
        grid: [GpuDim { fixed: shape.slices as u32, per_m: 1 }, blocks(1), blocks(1)],
        scratch: 0,
        scratch_per_m: if shape.slices > 1 { shape.record() as u64 } else { 0 },
        generic: None,
    }
}

/// Whether a block can join `k` candidates of every slice of `vocab` logits: it has a thread for
/// each candidate of a slice, and for each slice.
pub fn joins(k: usize, vocab: usize) -> bool {
    let slices = vocab.div_ceil(SLICE);
    k <= THREADS && slices <= THREADS && (slices == 1 || joined(slices, k) <= HELD)
}

/// Composites per thread when slices are joined.
fn joined(slices: usize, k: usize) -> usize {
    (slices * k).div_ceil(THREADS)
}

/// Sizes of the kernel.
struct Shape<'k> {
    top: &'k TopK,
    k: usize,
    vocab: usize,
    slices: usize,
    /// Logits loaded at once.
    step: usize,
}

impl<'k> Shape<'k> {
    fn new(cx: &Cx<'_>, top: &'k TopK) -> Shape<'k> {
        let vocab = cx.cols(top.x);
        Shape { top, k: top.k, vocab, slices: vocab.div_ceil(SLICE), step: piece::widest(4, [vocab]) }
    }

    /// Pieces of a slice that a thread loads.
    fn pieces(&self) -> usize {
        self.vocab.min(SLICE).div_ceil(THREADS * self.step)
    }

    /// Logits of the last slice.
    fn last_slice(&self) -> usize {
        self.vocab - (self.slices - 1) * SLICE
    }

    /// Offset, in a row's record in the workspace, of the `(maximum, sum)` of its slices; the
    /// counter lies before them.
    const fn stats() -> usize {
        16
    }

    /// Offset of the composites of its slices, `k` each.
    fn composites(&self) -> usize {
        Shape::stats() + (8 * self.slices).next_multiple_of(16)
    }

    /// Bytes of a row's record.
    fn record(&self) -> usize {
        (self.composites() + 8 * self.k * self.slices).next_multiple_of(16)
    }
}

/// A block's work: one slice of one row.
struct Block<'a> {
    shape: &'a Shape<'a>,
    args: Args<'a>,
    row: V,
    slice: V,
    wanted: V,
    tid: V,
    shared: Shared,
}

impl<'a> Block<'a> {
    fn new(b: &mut Builder, shape: &'a Shape<'a>, args: Args<'a>, block: V, row: V, wanted: V) -> Block<'a> {
        let first = b.mulc(row, shape.slices as i64);
        let slice = b.sub(block, first);
        let tid = b.sreg("tid.x");
        Block { shape, args, row, slice, wanted, tid, shared: Shared::new(b, tid, shape.k) }
    }

    fn emit(&self, b: &mut Builder) {
        let logits = self.load(b);
        let held: Vec<V> = logits.iter().map(|(x, id, there)| composite(b, *x, *id, *there)).collect();
        let best = self.shared.max(b, &held);
        let row = Row::new(b, self);
        let greedy = b.cmpc(Cmp::Eq, self.wanted, 1);
        b.either(
            greedy,
            |b| {
                row.put_best(b, best);
            },
            |b| {
                let (sum, maximum) = self.sum(b, best, &logits);
                row.put_sum(b, maximum, sum);
                let need = self.need(b);
                let threshold = self.shared.threshold(b, &held, best, need);
                row.put_slice(b, &held, threshold);
            },
        );
        row.finish(b, greedy);
    }

    /// This thread's logits of the slice, −0 as 0, with their token ids and whether they are in the
    /// vocabulary; −∞ where not.
    fn load(&self, b: &mut Builder) -> Vec<(V, V, V)> {
        let Shape { vocab, step, .. } = *self.shape;
        let line = row_at(b, self.args.operand(self.shape.top.x), vocab, RowElem::F32, self.row);
        let first = b.mulc(self.slice, SLICE as i64);
        let own = b.mulc(self.tid, step as i64);
        let first = b.add(first, own);
        let (last, none, zero) = (b.i32((vocab - step) as i64), b.f32(f32::NEG_INFINITY), b.f32(0.0));
        // Every load is made, some from another place, so that all are under way together.
        let loaded: Vec<(V, V, Vec<V>)> = (0..self.shape.pieces())
            .map(|i| {
                let col = b.addc(first, (i * THREADS * step) as i64);
                let there = b.cmpc(Cmp::Ult, col, vocab as i64);
                let from = b.min(col, last);
                let p = col_at(b, line, Elem::F32, from);
                (col, there, piece::load(b, p, Elem::F32, step))
            })
            .collect();
        let mut out = vec![];
        for (col, there, values) in loaded {
            for (e, x) in values.into_iter().enumerate() {
                let x = b.fadd(x, zero);
                out.push((b.select(there, x, none), b.addc(col, e as i64), there));
            }
        }
        out
    }

    /// `Σ 2^((x − max)·scale)` of the slice and its maximum, which is finite.
    fn sum(&self, b: &mut Builder, best: V, logits: &[(V, V, V)]) -> (V, V) {
        let maximum = finite_logit(b, best);
        let scale = self.scale(b);
        let zero = b.f32(0.0);
        let sum = logits.iter().fold(zero, |sum, (x, ..)| {
            let y = b.fsub(*x, maximum);
            let y = b.fmul(y, scale);
            let term = b.exp2(y);
            b.fadd(sum, term)
        });
        (self.shared.sum(b, sum), maximum)
    }

    /// Factor of logits in exponents.
    fn scale(&self, b: &mut Builder) -> V {
        let scale = self.args.array_at(b, offset_of!(GpuCtx, scales), self.row);
        b.bitcast(scale, F32)
    }

    /// Candidates that the slice can have: fewer than `k` only in a short last one.
    fn need(&self, b: &mut Builder) -> V {
        let k = b.i32(self.shape.k as i64);
        if self.shape.last_slice() >= self.shape.k {
            return k;
        }
        let last = b.cmpc(Cmp::Eq, self.slice, self.shape.slices as i64 - 1);
        let fewer = b.i32(self.shape.last_slice() as i64);
        b.select(last, fewer, k)
    }
}

/// The bits of a float such that integers compare as the floats do; NaN is the largest.
fn key(b: &mut Builder, x: V) -> V {
    let bits = b.bitcast(x, I32);
    let negative = b.cmpc(Cmp::Slt, bits, 0);
    let (inverted, raised) = (b.xorc(bits, -1), b.orc(bits, 1 << 31));
    let key = b.select(negative, inverted, raised);
    let magnitude = b.andc(bits, 0x7fff_ffff);
    let nan = b.cmpc(Cmp::Uge, magnitude, 0x7f80_0001);
    let most = b.i32(-1);
    b.select(nan, most, key)
}

/// A logit's composite; 0, less than any, for none.
fn composite(b: &mut Builder, x: V, id: V, there: V) -> V {
    let (key, id) = (key(b, x), b.xorc(id, -1));
    let composite = join(b, key, id);
    let none = b.i64(0);
    b.select(there, composite, none)
}

/// `high·2³² + low`.
fn join(b: &mut Builder, high: V, low: V) -> V {
    let (high, low) = (b.zext(high, I64), b.zext(low, I64));
    let high = b.shlc(high, 32);
    b.or(high, low)
}

fn high(b: &mut Builder, composite: V) -> V {
    let high = b.shrc(composite, 32);
    b.trunc(high, I32)
}

fn low(b: &mut Builder, composite: V) -> V {
    b.trunc(composite, I32)
}

/// The logit of a composite.
fn logit(b: &mut Builder, composite: V) -> V {
    let key = high(b, composite);
    let negative = b.cmpc(Cmp::Sge, key, 0);
    let (inverted, lowered) = (b.xorc(key, -1), b.xorc(key, 1 << 31));
    let bits = b.select(negative, inverted, lowered);
    b.bitcast(bits, F32)
}

/// The logit of a composite, no less than the least number.
fn finite_logit(b: &mut Builder, composite: V) -> V {
    let (x, least) = (logit(b, composite), b.f32(f32::MIN));
    b.fmax(x, least)
}

/// The token id of a composite, as f32.
fn token(b: &mut Builder, composite: V) -> V {
    let id = low(b, composite);
    let id = b.xorc(id, -1);
    b.sitofp(id, F32)
}
