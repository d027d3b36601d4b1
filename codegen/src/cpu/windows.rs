//! The windows of a cache that queries select: a call of the microkernel for each token.

use super::Lowering;
use super::attend::pages;
use super::emit::{Emit, I64};
use super::frame::Frame;
use super::microkernel::Microkernel;
use super::select::place;
use cranelift_codegen::ir::Value;
use llmcc_abi::{SelectWindowsArgs, Uk, select_windows_work};
use llmcc_ir::kernel::SelectWindows;
use std::mem::offset_of;

/// Emits the items `lo..hi`.
pub(super) fn lower(low: &Lowering, e: &mut Emit, frame: &mut Frame, k: &SelectWindows) {
    let args = arguments(low, e, frame, k);
    let microkernel = Microkernel::new(low, e, Uk::SelectWindows, &[I64], &[]);
    e.each(low.args.lo, low.args.hi, 1, |e, token| {
        let [position, seq] = place(low, e, token);
        let q = e.index(low.args.operand(k.q), token, low.cols(k.q) * 4);
        let out = e.index(low.args.operand(k.out), token, low.cols(k.out) * 4);
        let values = [
            (offset_of!(SelectWindowsArgs, position), position),
            (offset_of!(SelectWindowsArgs, pages), pages(low, e, seq)),
            (offset_of!(SelectWindowsArgs, q), q),
            (offset_of!(SelectWindowsArgs, out), out),
        ];
        e.store_all(args, &values);
        microkernel.call(e, &[args]);
    });
}

/// The microkernel's arguments, with those that all tokens have in common.
fn arguments(low: &Lowering, e: &mut Emit, frame: &mut Frame, k: &SelectWindows) -> Value {
    let spec = low.kernel.kv(k.kv);
    let (page, d) = (spec.page(), spec.value_dim / (2 * k.kv_heads));
    let args = e.on_stack::<SelectWindowsArgs>();
    let sizes = [
        (offset_of!(SelectWindowsArgs, kv_heads), k.kv_heads),
        (offset_of!(SelectWindowsArgs, group), k.heads / k.kv_heads),
        (offset_of!(SelectWindowsArgs, d), d),
        (offset_of!(SelectWindowsArgs, every), spec.every),
        (offset_of!(SelectWindowsArgs, windows), k.windows),
        (offset_of!(SelectWindowsArgs, dtype), spec.dtype.number() as usize),
        (offset_of!(SelectWindowsArgs, page_bytes), page.bytes),
        (offset_of!(SelectWindowsArgs, v), page.v),
        (offset_of!(SelectWindowsArgs, v_scales), page.v_scales),
    ];
    e.store_ints(args, &sizes);
    e.store(low.args.operand(k.kv), args, offset_of!(SelectWindowsArgs, pool));
    let work = e.offset(low.args.scratch, frame.bytes(select_windows_work(k.kv_heads, d, k.windows)));
    e.store(work, args, offset_of!(SelectWindowsArgs, work));
    args
}
