//! The cost of a new family of kernels in a backend: this file, its `mod`, and a line in `build`.
//! Not part of shipped code.

use super::Lowering;
use super::emit::{Emit, F32, I32};
use super::recurrent::Slots;
use cranelift_codegen::ir::InstBuilder;
use cranelift_codegen::ir::condcodes::IntCC;
use llmcc_ir::kernel::Climb;
use llmcc_ir::state::StateSpec;

/// Emits the one work item: all tokens in order, each with the count of its sequence.
pub(super) fn lower(low: &Lowering, e: &mut Emit, k: &Climb) {
    let most = low.kernel.state(k.tally, "a tally", StateSpec::tally).most;
    let cols = low.cols(k.x);
    let mine = e.compare(IntCC::SignedLessThan, low.args.lo, low.args.hi);
    e.when(mine, |e| {
        let slots = Slots::of_bytes(low, e, k.tally, 64);
        let (zero, all, step) = (e.int(0), e.int(cols as i64), e.float(k.step.get()));
        e.each(zero, low.args.m, 1, |e, token| {
            let slot = slots.number(e, token);
            let count = slots.address(e, slot);
            let before = e.load(I32, count, 0);
            let next = e.b.ins().iadd_imm_u(before, 1);
            let last = e.b.ins().icmp_imm_u(IntCC::UnsignedGreaterThanOrEqual, next, most as i64);
            let none = e.b.ins().iconst(I32, 0);
            let after = e.b.ins().select(last, none, next);
            e.store(after, count, 0);
            let number = e.b.ins().fcvt_from_uint(F32, before);
            let added = e.b.ins().fmul(step, number);
            let [x, out] = [k.x, k.out].map(|p| e.index(low.args.operand(p), token, cols * 4));
            e.each(zero, all, 1, |e, column| {
                let [x, out] = [x, out].map(|row| e.index(row, column, 4));
                let x = e.load(F32, x, 0);
                let y = e.b.ins().fadd(x, added);
                e.store(y, out, 0);
            });
        });
    });
}
