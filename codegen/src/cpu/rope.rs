//! RoPE tables: a call of the runtime's routine, whose sines and cosines are rounded from f64.

use super::Lowering;
use super::emit::{Emit, F32, I64};
use super::microkernel::Microkernel;
use cranelift_codegen::ir::InstBuilder;
use cranelift_codegen::ir::condcodes::IntCC;
use llmcc_abi::{AXES, StepCtx, Uk};
use llmcc_ir::kernel::RopeTable;
use std::mem::offset_of;

/// Emits the one work item.
pub(super) fn lower(low: &Lowering, e: &mut Emit, k: &RopeTable) {
    let RopeTable { inv_freq, scale, border, axes, out } = *k;
    let half = low.kernel.vector(inv_freq) / k.sets();
    let (positions, each) = match axes {
        true => (offset_of!(StepCtx, arrays.axes), AXES),
        false => (offset_of!(StepCtx, positions), 1),
    };
    let mine = e.compare(IntCC::SignedLessThan, low.args.lo, low.args.hi);
    e.when(mine, |e| {
        let positions = low.args.step(e, positions);
        let (n, each, scale) = (e.int(half as i64), e.int(each as i64), e.float(scale.get()));
        let microkernel = Microkernel::new(low, e, Uk::RopeTable, &[I64, I64, I64, I64, I64, F32, I64], &[]);
        let (sets, to) = (low.args.operand(inv_freq), low.args.operand(out));
        let Some(border) = border else {
            let args = [positions, low.args.m, sets, n, each, scale, to];
            microkernel.call(e, &args);
            return;
        };
        // Token by token: each has the frequencies of its position.
        let (zero, one) = (e.int(0), e.int(1));
        e.each(zero, low.args.m, 1, |e, token| {
            let at = e.index(positions, token, 4);
            let position = e.load_index(at, 0);
            let border = e.int(border as i64);
            let after = e.compare(IntCC::SignedGreaterThanOrEqual, position, border);
            let second = e.offset(sets, half * 4);
            let set = e.b.ins().select(after, second, sets);
            let row = e.index(to, token, half * 8);
            microkernel.call(e, &[at, one, set, n, each, scale, row]);
        });
    });
}
