//! Ids of the step's tokens as numbers.

use super::Lowering;
use super::emit::{Emit, F32, I32};
use cranelift_codegen::ir::InstBuilder;
use llmcc_abi::StepCtx;
use llmcc_ir::kernel::TokenIds;
use std::mem::offset_of;

/// Emits the tokens `lo..hi`.
pub(super) fn lower(low: &Lowering, e: &mut Emit, k: &TokenIds) {
    let tokens = low.args.step(e, offset_of!(StepCtx, tokens));
    e.each(low.args.lo, low.args.hi, 1, |e, row| {
        let p = e.index(tokens, row, 4);
        let id = e.load(I32, p, 0);
        let id = e.b.ins().fcvt_from_sint(F32, id);
        let p = e.index(low.args.operand(k.out), row, 4);
        e.store(id, p, 0);
    });
}
