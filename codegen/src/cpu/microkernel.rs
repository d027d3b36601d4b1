//! Calls of the runtime's microkernels.

use super::emit::{Emit, I64};
use super::lowering::Lowering;
use cranelift_codegen::ir::{AbiParam, Inst, InstBuilder, SigRef, Signature, Type, Value};
use cranelift_codegen::isa::CallConv;
use llmcc_abi::{StepCtx, Uk, UkTable};
use std::mem::offset_of;

/// Calling convention of all generated code: the one of the runtime, which calls kernels and is called
/// by them.
const CONVENTION: CallConv = CallConv::SystemV;

/// A signature of that convention.
pub(super) fn signature(params: &[Type], returns: &[Type]) -> Signature {
    let mut signature = Signature::new(CONVENTION);
    signature.params.extend(params.iter().copied().map(AbiParam::new));
    signature.returns.extend(returns.iter().copied().map(AbiParam::new));
    signature
}

/// A microkernel that is about to be called.
#[derive(Clone, Copy)]
pub(super) struct Microkernel {
    signature: SigRef,
    function: Value,
}

impl Microkernel {
    /// The microkernel `uk`, which takes and returns such values.
    pub fn new(low: &Lowering, e: &mut Emit, uk: Uk, params: &[Type], returns: &[Type]) -> Microkernel {
        let signature = e.b.import_signature(signature(params, returns));
        Microkernel { signature, function: address(low, e, uk) }
    }

    /// Calls it.
    pub fn call(self, e: &mut Emit, args: &[Value]) -> Inst {
        e.b.ins().call_indirect(self.signature, self.function, args)
    }
}

/// Address of a microkernel.
fn address(low: &Lowering, e: &mut Emit, uk: Uk) -> Value {
    let table = low.args.step(e, offset_of!(StepCtx, uk));
    e.load(I64, table, offset_of!(UkTable, f) + uk as usize * size_of::<usize>())
}
