//! The choice of experts: a call of the runtime's routine for each token.

use super::Lowering;
use super::emit::{Emit, I32, I64};
use super::microkernel::Microkernel;
use cranelift_codegen::ir::InstBuilder;
use llmcc_abi::Uk;
use llmcc_abi::route::RouteArgs;
use llmcc_ir::kernel::Route;
use std::mem::offset_of;

/// Emits the rows `lo..hi`.
pub(super) fn lower(low: &Lowering, e: &mut Emit, k: &Route) {
    let (experts, r) = (low.cols(k.x), &k.router);
    let args = e.on_stack::<RouteArgs>();
    let numbers = [
        (offset_of!(RouteArgs, experts), experts),
        (offset_of!(RouteArgs, top), r.top),
        (offset_of!(RouteArgs, groups), r.groups),
        (offset_of!(RouteArgs, kept), r.kept),
        (offset_of!(RouteArgs, pairs), usize::from(r.pairs)),
        (offset_of!(RouteArgs, normalize), usize::from(r.normalize)),
    ];
    e.store_ints(args, &numbers);
    let score = e.b.ins().iconst(I32, r.score as i64);
    e.store(score, args, offset_of!(RouteArgs, score));
    for (offset, number) in [(offset_of!(RouteArgs, eps), r.eps), (offset_of!(RouteArgs, scale), r.scale)] {
        let number = e.float(number.get());
        e.store(number, args, offset);
    }
    e.store(low.args.operand(k.bias), args, offset_of!(RouteArgs, bias));
    let microkernel = Microkernel::new(low, e, Uk::Route, &[I64], &[]);
    e.each(low.args.lo, low.args.hi, 1, |e, row| {
        let x = e.index(low.args.operand(k.x), row, experts * 4);
        let out = e.index(low.args.operand(k.out), row, 2 * r.top * 4);
        e.store(x, args, offset_of!(RouteArgs, x));
        e.store(out, args, offset_of!(RouteArgs, out));
        microkernel.call(e, &[args]);
    });
}
