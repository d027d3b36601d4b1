//! Scales of rows that are rounded token by token: largest magnitudes are found by the rule that int8 rows
//! have.

use super::Lowering;
use super::emit::{Emit, F32, I32};
use super::quant::largest;
use cranelift_codegen::ir::InstBuilder;
use llmcc_ir::kernel::AbsMaxScale;

/// Emits the rows `lo..hi`.
pub(super) fn lower(low: &Lowering, e: &mut Emit, k: &AbsMaxScale) {
    let (cols, width) = (low.cols(k.x), k.scale.width);
    let runs = cols / width;
    let most = e.float(k.scale.most.get());
    // As integers, magnitudes order like the numbers, and NaN above all.
    let least = e.b.ins().iconst(I32, i64::from(k.scale.least.get().to_bits()));
    e.each(low.args.lo, low.args.hi, 1, |e, row| {
        let from = e.index(low.args.operand(k.x), row, cols * 4);
        let to = e.index(low.args.operand(k.out), row, 2 * runs * 4);
        e.each_fixed(runs, 1, |e, run| {
            let x = e.index(from, run, width * 4);
            let lanes = largest(e, x, width);
            let bits = e.max_lane_int(lanes);
            let bits = e.b.ins().smax(bits, least);
            let m = e.cast(F32, bits);
            let to = e.index(to, run, 4);
            let (times, back) = (e.fdiv(most, m), e.fdiv(m, most));
            e.store(times, to, 0);
            e.store(back, to, runs * 4);
        });
    });
}
