//! Facts about the kernel being lowered, for the emitters of all families.

use super::emit::{Emit, I64};
use cranelift_codegen::ir::Value;
use llmcc_ir::kernel::{Checked, ParamId, RowElem};

/// A kernel being lowered: what every family needs to know.
pub(super) struct Lowering<'k> {
    pub(super) kernel: Checked<'k>,
    pub(super) args: Args,
    /// Inner products are made here, not called.
    pub(super) portable: bool,
}

/// The arguments of the kernel function.
pub(super) struct Args {
    pub(super) operands: Vec<Value>,
    pub(super) ctx: Value,
    pub(super) m: Value,
    pub(super) lo: Value,
    pub(super) hi: Value,
    pub(super) scratch: Value,
}

impl Args {
    /// Operand `p`.
    pub(super) fn operand(&self, p: ParamId) -> Value {
        self.operands[p]
    }

    /// A pointer or number of the step context.
    pub(super) fn step(&self, e: &mut Emit, offset: usize) -> Value {
        e.load(I64, self.ctx, offset)
    }
}

impl Lowering<'_> {
    /// Columns and storage of a matrix of rows.
    pub(super) fn rows(&self, p: ParamId) -> (usize, RowElem) {
        let rows = self.kernel.rows(p);
        (rows.cols, rows.elem)
    }

    /// Columns of a matrix of rows.
    pub(super) fn cols(&self, p: ParamId) -> usize {
        self.kernel.rows(p).cols
    }
}
