//! Rows given in place of rows of some tokens.

use super::Lowering;
use super::emit::{Emit, F32, I32};
use cranelift_codegen::ir::InstBuilder;
use cranelift_codegen::ir::condcodes::IntCC;
use llmcc_abi::StepCtx;
use llmcc_ir::kernel::Substitute;
use std::mem::offset_of;

/// Emits the tokens `lo..hi`. Only tokens that rows are given for read the array of these.
pub(super) fn lower(low: &Lowering, e: &mut Emit, k: &Substitute) {
    let (tokens, given) =
        (low.args.step(e, offset_of!(StepCtx, tokens)), low.args.step(e, offset_of!(StepCtx, arrays.given)));
    let cols = low.cols(k.out);
    e.each(low.args.lo, low.args.hi, 1, |e, row| {
        let id = e.index(tokens, row, 4);
        let id = e.load(I32, id, 0);
        let is = e.b.ins().icmp_imm_s(IntCC::Equal, id, k.token as i64);
        let own = e.index(low.args.operand(k.x), row, cols * 4);
        let instead = e.index(given, row, cols * 4);
        let from = e.b.ins().select(is, instead, own);
        let to = e.index(low.args.operand(k.out), row, cols * 4);
        e.each_fixed(cols * 4, 4, |e, at| {
            let (p, q) = (e.add(from, at), e.add(to, at));
            let x = e.load(F32, p, 0);
            e.store(x, q, 0);
        });
    });
}
