//! Rows that come with the tokens.

use super::Lowering;
use super::emit::{Emit, F32};
use cranelift_codegen::ir::Value;
use llmcc_abi::StepCtx;
use llmcc_ir::kernel::{GivenRows, ParamId};
use std::mem::offset_of;

/// Emits the tokens `lo..hi`.
pub(super) fn lower(low: &Lowering, e: &mut Emit, k: &GivenRows) {
    let given = low.args.step(e, offset_of!(StepCtx, arrays.given));
    copy(low, e, k.out, |e, row, bytes| e.index(given, row, bytes));
}

/// Copies a row for each of the tokens `lo..hi`: the one at `from(e, token, bytes of a row)`.
pub(super) fn copy(low: &Lowering, e: &mut Emit, out: ParamId, from: impl Fn(&mut Emit, Value, usize) -> Value) {
    let bytes = low.cols(out) * 4;
    e.each(low.args.lo, low.args.hi, 1, |e, row| {
        let from = from(e, row, bytes);
        let to = e.index(low.args.operand(out), row, bytes);
        e.each_fixed(bytes, 4, |e, at| {
            let (p, q) = (e.add(from, at), e.add(to, at));
            let x = e.load(F32, p, 0);
            e.store(x, q, 0);
        });
    });
}
