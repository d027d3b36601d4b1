//! Rows given in place of rows of some tokens: a row of blocks per token.

use crate::cx::{Cx, when_below};
use crate::mlir::{Cmp, Elem, F32};
use crate::piece::{col_at, row_at};
use crate::{Source, blocks, per_rows};
use llmcc_abi::GpuCtx;
use llmcc_ir::kernel::{RowElem, Substitute};
use std::mem::offset_of;

/// Threads of a block, a column each.
const THREADS: usize = 128;

/// Emits the kernel. Only tokens that rows are given for read the array of these.
pub fn emit(cx: &Cx<'_>, k: &Substitute) -> Source {
    let cols = cx.cols(k.out);
    let (mlir, program) = cx.function(THREADS as u32, 1, |b, args| {
        let m = cx.row_count(b, args);
        let (tid, token, block) = (b.sreg("tid.x"), b.sreg("ctaid.x"), b.sreg("ctaid.y"));
        let first = b.mulc(block, THREADS as i64);
        let col = b.add(first, tid);
        let inside = b.cmpc(Cmp::Slt, col, cols as i64);
        when_below(b, token, m, |b| {
            b.if_(inside, |b| {
                let id = args.array_at(b, offset_of!(GpuCtx, tokens), token);
                let is = b.cmpc(Cmp::Eq, id, k.token as i64);
                let given = args.array(b, offset_of!(GpuCtx, arrays.given));
                let base = b.select(is, given, args.operand(k.x));
                let from = row_at(b, base, cols, RowElem::F32, token);
                let from = col_at(b, from, Elem::F32, col);
                let x = b.load(from, F32);
                let to = row_at(b, args.operand(k.out), cols, RowElem::F32, token);
                let to = col_at(b, to, Elem::F32, col);
                b.store(x, to);
            });
        });
    });
    Source::new(cx.entry(), (mlir, program), THREADS as u32, [per_rows(1), blocks(cols.div_ceil(THREADS)), blocks(1)])
}
