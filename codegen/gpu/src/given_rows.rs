//! Rows that come with the tokens: a row of blocks per token.

use crate::cx::{Args, Cx, when_below};
use crate::mlir::{Builder, Cmp, Elem, F32, Ty, V};
use crate::piece::{col_at, row_at};
use crate::{Source, blocks, per_rows};
use llmcc_abi::GpuCtx;
use llmcc_ir::kernel::{GivenRows, ParamId, RowElem};
use std::mem::offset_of;

/// Threads of a block, a column each.
const THREADS: usize = 128;

/// Emits the kernel.
pub fn emit(cx: &Cx<'_>, k: &GivenRows) -> Source {
    copies(cx, k.out, Builder::load_const, |b, args, _| args.array(b, offset_of!(GpuCtx, arrays.given)))
}

/// Emits a kernel that copies a row for each token, of those that begin at `base(b, args, token)`.
pub fn copies(
    cx: &Cx<'_>,
    out: ParamId,
    load: fn(&mut Builder, V, Ty) -> V,
    base: impl Fn(&mut Builder, Args<'_>, V) -> V,
) -> Source {
    let cols = cx.cols(out);
    let (mlir, program) = cx.function(THREADS as u32, 1, |b, args| {
        let m = cx.row_count(b, args);
        let (tid, token, block) = (b.sreg("tid.x"), b.sreg("ctaid.x"), b.sreg("ctaid.y"));
        let first = b.mulc(block, THREADS as i64);
        let col = b.add(first, tid);
        let inside = b.cmpc(Cmp::Slt, col, cols as i64);
        when_below(b, token, m, |b| {
            b.if_(inside, |b| {
                let base = base(b, args, token);
                let from = row_at(b, base, cols, RowElem::F32, token);
                let from = col_at(b, from, Elem::F32, col);
                let x = load(b, from, F32);
                let to = row_at(b, args.operand(out), cols, RowElem::F32, token);
                let to = col_at(b, to, Elem::F32, col);
                b.store(x, to);
            });
        });
    });
    Source::new(cx.entry(), (mlir, program), THREADS as u32, [per_rows(1), blocks(cols.div_ceil(THREADS)), blocks(1)])
}
