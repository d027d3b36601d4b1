//! Row-wise kernels: gather, normalization, gain, bias, residual, quantization.

use super::Lowering;
use super::emit::Emit;
use super::expr::{Program, RowWork, Span};
use super::frame::Frame;
use super::store::{Dest, Target};
use llmcc_abi::StepCtx;
use llmcc_ir::kernel::RowNorm;
use std::mem::offset_of;

/// Emits the rows `lo..hi`.
pub(super) fn lower(low: &Lowering, e: &mut Emit, frame: &mut Frame, k: &RowNorm) {
    let RowNorm { x, gather, norm, gain, bias, residual, out } = *k;
    let n = low.cols(x);
    let work = RowWork { x, norm, gain, bias, residual };
    let program = Program::new(low, frame, &work.expr(), n);
    let dest = Dest::rows(low, out, 0);
    let base = low.args.operand(out);
    e.each(low.args.lo, low.args.hi, 1, |e, row| {
        let source = if gather {
            let rows = low.args.step(e, offset_of!(StepCtx, out_rows));
            let p = e.index(rows, row, 4);
            e.load_index(p, 0)
        } else {
            row
        };
        let (col, width) = (e.int(0), e.int(n as i64));
        let span = Span { row: source, col, width, n, acc: &[], slot: None };
        dest.emit(low, e, &program, &span, &Target { base, row });
    });
}
