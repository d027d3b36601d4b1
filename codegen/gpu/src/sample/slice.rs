//! A block's work on one slice of one row.

use super::composite::finite_logit;
use super::search::Shared;
use crate::cx::{Args, Cx};
use crate::mlir::{Builder, Cmp, Elem, F32, V};
use crate::nth::THREADS;
use crate::piece::{self, col_at, row_at};
use llmcc_abi::GpuCtx;
use llmcc_ir::kernel::{RowElem, TopK};
use std::mem::offset_of;

/// Logits of a block.
pub(super) const SLICE: usize = 4096;

/// Most composites that a thread holds when slices are joined.
pub(super) const HELD: usize = 32;

/// Whether a block can join `k` candidates of every slice of `vocab` logits: it has a thread for
/// each candidate of a slice, and for each slice.
pub fn joins(k: usize, vocab: usize) -> bool {
    let slices = vocab.div_ceil(SLICE);
    k <= THREADS && slices <= THREADS && (slices == 1 || joined(slices, k) <= HELD)
}

/// Composites per thread when slices are joined.
pub(super) fn joined(slices: usize, k: usize) -> usize {
    (slices * k).div_ceil(THREADS)
}

/// Sizes of the kernel.
pub(super) struct Shape<'k> {
    pub(super) top: &'k TopK,
    pub(super) k: usize,
    pub(super) vocab: usize,
    pub(super) slices: usize,
    /// Logits loaded at once.
    pub(super) step: usize,
}

impl<'k> Shape<'k> {
    pub(super) fn new(cx: &Cx<'_>, top: &'k TopK) -> Shape<'k> {
        let vocab = cx.cols(top.x);
        Shape { top, k: top.k, vocab, slices: vocab.div_ceil(SLICE), step: piece::widest(4, [vocab]) }
    }

    /// Pieces of a slice that a thread loads.
    pub(super) fn pieces(&self) -> usize {
        self.vocab.min(SLICE).div_ceil(THREADS * self.step)
    }

    /// Logits of the last slice.
    pub(super) fn last_slice(&self) -> usize {
        self.vocab - (self.slices - 1) * SLICE
    }

    /// Offset, in a row's record in the workspace, of the `(maximum, sum)` of its slices; the
    /// counter lies before them.
    pub(super) const fn stats() -> usize {
        16
    }

    /// Offset of the composites of its slices, `k` each.
    pub(super) fn composites(&self) -> usize {
        Shape::stats() + (8 * self.slices).next_multiple_of(16)
    }

    /// Bytes of a row's record.
    pub(super) fn record(&self) -> usize {
        (self.composites() + 8 * self.k * self.slices).next_multiple_of(16)
    }
}

/// A block's work: one slice of one row.
pub(super) struct Block<'a> {
    pub(super) shape: &'a Shape<'a>,
    pub(super) args: Args<'a>,
    pub(super) row: V,
    pub(super) slice: V,
    pub(super) wanted: V,
    pub(super) tid: V,
    pub(super) shared: Shared,
}

impl<'a> Block<'a> {
    pub(super) fn new(b: &mut Builder, shape: &'a Shape<'a>, args: Args<'a>, block: V, row: V, wanted: V) -> Block<'a> {
        let first = b.mulc(row, shape.slices as i64);
        let slice = b.sub(block, first);
        let tid = b.sreg("tid.x");
        Block { shape, args, row, slice, wanted, tid, shared: Shared::new(b, tid, shape.k) }
    }

    /// This thread's logits of the slice, −0 as 0, with their token ids and whether they are in the
    /// vocabulary; −∞ where not.
    pub(super) fn load(&self, b: &mut Builder) -> Vec<(V, V, V)> {
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
    pub(super) fn sum(&self, b: &mut Builder, best: V, logits: &[(V, V, V)]) -> (V, V) {
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
    pub(super) fn scale(&self, b: &mut Builder) -> V {
        let scale = self.args.array_at(b, offset_of!(GpuCtx, scales), self.row);
        b.bitcast(scale, F32)
    }

    /// Candidates that the slice can have: fewer than `k` only in a short last one.
    pub(super) fn need(&self, b: &mut Builder) -> V {
        let k = b.i32(self.shape.k as i64);
        if self.shape.last_slice() >= self.shape.k {
            return k;
        }
        let last = b.cmpc(Cmp::Eq, self.slice, self.shape.slices as i64 - 1);
        let fewer = b.i32(self.shape.last_slice() as i64);
        b.select(last, fewer, k)
    }
}
