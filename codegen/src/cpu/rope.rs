//! RoPE tables: a call of the runtime's routine, whose sines and cosines are rounded from f64.

use super::Lowering;
use super::emit::{Emit, F32, I32, I64};
use super::frame::Frame;
use super::microkernel::Microkernel;
use cranelift_codegen::ir::InstBuilder;
use cranelift_codegen::ir::condcodes::IntCC;
use llmcc_abi::{AXES, StepCtx, Uk};
use llmcc_ir::kernel::RopeTable;
use std::mem::offset_of;

/// Emits the one work item.
pub(super) fn lower(low: &Lowering, e: &mut Emit, frame: &mut Frame, k: &RopeTable) {
    let RopeTable { inv_freq, scale, border, most, axes, out } = *k;
    let nearest = most.map(|most| (most.min(i32::MAX as usize), frame.bytes(4)));
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
        if border.is_none() && nearest.is_none() {
            let args = [positions, low.args.m, sets, n, each, scale, to];
            microkernel.call(e, &args);
            return;
        }
        // Token by token: each has the frequencies of its position, and one that may be another.
        let (zero, one) = (e.int(0), e.int(1));
        e.each(zero, low.args.m, 1, |e, token| {
            let mut at = e.index(positions, token, 4);
            let mut position = e.load_index(at, 0);
            if let Some((most, copy)) = nearest {
                let most = e.int(most as i64);
                position = e.min(position, most);
                at = e.offset(low.args.scratch, copy);
                let position = e.b.ins().ireduce(I32, position);
                e.store(position, at, 0);
            }
            let mut set = sets;
            if let Some(border) = border {
                let border = e.int(border as i64);
                let after = e.compare(IntCC::SignedGreaterThanOrEqual, position, border);
                let second = e.offset(sets, half * 4);
                set = e.b.ins().select(after, second, sets);
            }
            let row = e.index(to, token, half * 8);
            microkernel.call(e, &[at, one, set, n, each, scale, row]);
        });
    });
}
