//! RoPE tables: a call of the runtime's routine, whose sines and cosines are rounded from f64.

use super::Lowering;
use super::emit::{Emit, F32, I64};
use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::{AbiParam, InstBuilder, Signature, Value};
use cranelift_codegen::isa::CallConv;
use llmcc_abi::{StepCtx, Uk, UkTable};
use llmcc_ir::kernel::RopeTable;
use std::mem::offset_of;

/// Emits the one work item.
pub(super) fn lower(low: &Lowering, e: &mut Emit, k: &RopeTable) {
    let half = low.kernel.vector(k.inv_freq);
    let mine = e.compare(IntCC::SignedLessThan, low.args.lo, low.args.hi);
    e.when(mine, |e| {
        let positions = low.args.step(e, offset_of!(StepCtx, positions));
        let (half, scale) = (e.int(half as i64), e.float(k.scale.get()));
        let mut signature = Signature::new(CallConv::SystemV);
        signature.params.extend([I64, I64, I64, I64, F32, I64].map(AbiParam::new));
        let signature = e.b.import_signature(signature);
        let function = microkernel(low, e, Uk::RopeTable);
        let args = [positions, low.args.m, low.args.operand(k.inv_freq), half, scale, low.args.operand(k.out)];
        e.b.ins().call_indirect(signature, function, &args);
    });
}

/// Address of a microkernel.
pub(super) fn microkernel(low: &Lowering, e: &mut Emit, uk: Uk) -> Value {
    let table = low.args.step(e, offset_of!(StepCtx, uk));
    e.load(I64, table, offset_of!(UkTable, f) + uk as usize * size_of::<usize>())
}
