//! Rows of a table by hashes of several tokens' ids.

use super::Lowering;
use super::embed::TableRows;
use super::emit::{Emit, F32, I64};
use super::frame::Frame;
use cranelift_codegen::ir::InstBuilder;
use llmcc_ir::kernel::EmbedHashed;

/// Emits the tokens `lo..hi`.
pub(super) fn lower(low: &Lowering, e: &mut Emit, frame: &mut Frame, k: &EmbedHashed) {
    let rows = TableRows::new(low, frame, k.table);
    let (hashes, cols) = (k.hashes(), low.kernel.matrix(k.table).k);
    e.each(low.args.lo, low.args.hi, 1, |e, token| {
        let ids = e.index(low.args.operand(k.ids), token, low.cols(k.ids) * 4);
        let out = e.index(low.args.operand(k.out), token, k.sizes.len() * cols * 4);
        let mut joined = e.int(0);
        let mut of_first = vec![];
        for (i, factor) in k.factors.iter().enumerate() {
            let id = e.load(F32, ids, i * 4);
            let id = e.b.ins().fcvt_to_sint_sat(I64, id);
            let factor = e.int(*factor as i64);
            let product = e.b.ins().imul(id, factor);
            joined = e.b.ins().bxor(joined, product);
            of_first.push(joined);
        }
        for (number, size) in k.sizes.iter().enumerate() {
            let size = e.int(*size as i64);
            let row = e.b.ins().urem(of_first[hashes.ids(number) - 1], size);
            let row = e.offset(row, hashes.first(number));
            let out = e.offset(out, number * cols * 4);
            rows.copy(low, e, row, out);
        }
    });
}
