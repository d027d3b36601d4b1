//! Elementwise kernels.

use super::Lowering;
use super::emit::Emit;
use super::frame::Frame;
use super::span::Span;
use super::store::{Dest, Target};
use llmcc_ir::kernel::Pointwise;

/// Emits the rows `lo..hi`.
pub(super) fn lower(low: &Lowering, e: &mut Emit, frame: &mut Frame, k: &Pointwise) {
    let mut segments = Vec::new();
    for s in &k.segments {
        let (param, dest) = Dest::new(low, &s.store);
        let program = dest.program(low, frame, &s.expr, s.n);
        segments.push((s.n, program, param, dest));
    }
    e.each(low.args.lo, low.args.hi, 1, |e, row| {
        for (n, program, param, dest) in &segments {
            let (col, width) = (e.int(0), e.int(*n as i64));
            let span = Span { row, col, width, n: *n, acc: &[], slot: None };
            let base = low.args.operand(*param);
            dest.emit(low, e, program, &span, &Target { base, row });
        }
    });
}
