//! Ids of the step's tokens as numbers: a thread per token.

use crate::cx::{Cx, when_below};
use crate::mlir::F32;
use crate::piece::row_at;
use crate::{Source, blocks, per_rows};
use llmcc_abi::GpuCtx;
use llmcc_ir::kernel::{RowElem, TokenIds};
use std::mem::offset_of;

/// Threads of a block.
const THREADS: usize = 128;

/// Emits the kernel.
pub fn emit(cx: &Cx<'_>, k: &TokenIds) -> Source {
    let (mlir, program) = cx.function(THREADS as u32, 1, |b, args| {
        let m = cx.row_count(b, args);
        let (tid, block) = (b.sreg("tid.x"), b.sreg("ctaid.x"));
        let first = b.mulc(block, THREADS as i64);
        let token = b.add(first, tid);
        when_below(b, token, m, |b| {
            let id = args.array_at(b, offset_of!(GpuCtx, tokens), token);
            let id = b.sitofp(id, F32);
            let p = row_at(b, args.operand(k.out), 1, RowElem::F32, token);
            b.store(id, p);
        });
    });
    Source::new(cx.entry(), (mlir, program), THREADS as u32, [per_rows(THREADS), blocks(1), blocks(1)])
}
