//! Rows that come with the tokens.

use super::Lowering;
use super::emit::{Emit, F32};
use llmcc_abi::StepCtx;
use llmcc_ir::kernel::GivenRows;
use std::mem::offset_of;

/// Emits the tokens `lo..hi`.
pub(super) fn lower(low: &Lowering, e: &mut Emit, k: &GivenRows) {
    let given = low.args.step(e, offset_of!(StepCtx, arrays.given));
    let cols = low.kernel.rows(k.out).cols;
    e.each(low.args.lo, low.args.hi, 1, |e, row| {
        let from = e.index(given, row, cols * 4);
        let to = e.index(low.args.operand(k.out), row, cols * 4);
        e.each_fixed(cols * 4, 4, |e, at| {
            let (p, q) = (e.add(from, at), e.add(to, at));
            let x = e.load(F32, p, 0);
            e.store(x, q, 0);
        });
    });
}
