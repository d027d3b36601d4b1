//! Rows given in place of rows of some tokens.

use super::Lowering;
use super::emit::{Emit, I32};
use super::given_rows::copy;
use cranelift_codegen::ir::InstBuilder;
use cranelift_codegen::ir::condcodes::IntCC;
use llmcc_abi::StepCtx;
use llmcc_ir::kernel::Substitute;
use std::mem::offset_of;

/// Emits the tokens `lo..hi`. Only tokens that rows are given for read the array of these.
pub(super) fn lower(low: &Lowering, e: &mut Emit, k: &Substitute) {
    let (tokens, given) =
        (low.args.step(e, offset_of!(StepCtx, tokens)), low.args.step(e, offset_of!(StepCtx, arrays.given)));
    copy(low, e, k.out, |e, row, bytes| {
        let id = e.index(tokens, row, 4);
        let id = e.load(I32, id, 0);
        let is = e.b.ins().icmp_imm_s(IntCC::Equal, id, k.token as i64);
        let own = e.index(low.args.operand(k.x), row, bytes);
        let instead = e.index(given, row, bytes);
        e.b.ins().select(is, instead, own)
    });
}
