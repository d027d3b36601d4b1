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

mod composite;
mod found;
mod search;
mod slice;

pub use slice::joins;

use crate::cx::{Cx, when_below};
use crate::mlir::{Builder, Cmp, V};
use crate::nth::THREADS;
use crate::{Source, blocks};
use composite::composite;
use found::Row;
use llmcc_abi::{GpuCtx, GpuDim};
use llmcc_ir::kernel::TopK;
use search::Shared;
use slice::{Block, Shape};
use std::mem::offset_of;

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
        shared: Shared::bytes(shape.k) as u32,
        scratch_per_m: if shape.slices > 1 { shape.record() as u64 } else { 0 },
        ..Source::new(
            cx.entry(),
            (mlir, program),
            THREADS as u32,
            [GpuDim { fixed: shape.slices as u32, per_m: 1 }, blocks(1), blocks(1)],
        )
    }
}

impl Block<'_> {
    fn emit(&self, b: &mut Builder) {
        let logits = self.load(b);
        let held: Vec<V> = logits.iter().map(|(x, id, there)| composite(b, *x, *id, *there)).collect();
        let best = self.shared.max(b, &held);
        let row = Row::new(b, self);
        let greedy = b.cmpc(Cmp::Eq, self.wanted, 1);
        b.either(
            greedy,
            |b| row.put_best(b, best),
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
}
