//! The rows of a cache that an indexer selects: a call of the microkernel for each token, or, in steps of
//! few tokens, for each part of its context that a thread has, as attention is divided.

use super::Lowering;
use super::attend::{bounds, pages, slot};
use super::attention::Item;
use super::emit::{Emit, I64};
use super::frame::Frame;
use super::microkernel::Microkernel;
use cranelift_codegen::ir::Value;
use llmcc_abi::{ATTEND_PARTS, SELECT_SHARED, SelectArgs, StepCtx, Uk, select_work};
use llmcc_ir::kernel::{RowElem, Select};
use llmcc_ir::plan::row_bytes;
use std::mem::offset_of;

/// Consecutive tokens that threads have together: see [`Item`].
const TOKENS: usize = 16;

/// Emits the items `lo..hi`; returns [`llmcc_abi::KernelDesc::shared_per_block`].
pub(super) fn lower(low: &Lowering, e: &mut Emit, frame: &mut Frame, k: &Select) -> usize {
    let args = arguments(low, e, frame, k);
    let microkernel = Microkernel::new(low, e, Uk::Select, &[I64], &[I64]);
    let (lo, hi) = bounds(low, e);
    e.walk(lo, hi, |e, unit| {
        let (item, from) = e.div_mod(unit, ATTEND_PARTS);
        let token = Item::new(low, e, item, TOKENS).token;
        let (left, all) = (e.sub(hi, unit), e.int(ATTEND_PARTS as i64));
        let to = e.add(from, left);
        let to = e.min(to, all);
        let shared = slot(low, e, item, ATTEND_PARTS);
        let parts = [
            (offset_of!(SelectArgs, part_from), from),
            (offset_of!(SelectArgs, part_to), to),
            (offset_of!(SelectArgs, shared), shared),
        ];
        e.store_all(args, &parts);
        of_token(low, e, k, args, token);
        microkernel.call(e, &[args]);
        let done = e.sub(to, from);
        e.add(unit, done)
    });
    SELECT_SHARED
}

/// The microkernel's arguments, with those that all tokens have in common.
fn arguments(low: &Lowering, e: &mut Emit, frame: &mut Frame, k: &Select) -> Value {
    let spec = low.kernel.kv(k.kv);
    let page = spec.page();
    let args = e.on_stack::<SelectArgs>();
    let sizes = [
        (offset_of!(SelectArgs, heads), k.heads),
        (offset_of!(SelectArgs, d), spec.value_dim),
        (offset_of!(SelectArgs, top), k.top),
        (offset_of!(SelectArgs, dtype), spec.dtype.number() as usize),
        (offset_of!(SelectArgs, page_bytes), page.bytes),
        (offset_of!(SelectArgs, v), page.v),
        (offset_of!(SelectArgs, v_scales), page.v_scales),
    ];
    e.store_ints(args, &sizes);
    e.store(low.args.operand(k.kv), args, offset_of!(SelectArgs, pool));
    let work = e.offset(low.args.scratch, frame.bytes(select_work(spec.value_dim, k.top)));
    e.store(work, args, offset_of!(SelectArgs, work));
    args
}

/// Position and sequence of a token.
pub(super) fn place(low: &Lowering, e: &mut Emit, token: Value) -> [Value; 2] {
    let of_step = [offset_of!(StepCtx, positions), offset_of!(StepCtx, seqs)];
    of_step.map(|field| {
        let values = low.args.step(e, field);
        let p = e.index(values, token, 4);
        e.load_index(p, 0)
    })
}

/// Stores the arguments of a token: its operands, and the rows of its sequence that it sees.
fn of_token(low: &Lowering, e: &mut Emit, k: &Select, args: Value, token: Value) {
    let Select { q, weights, kv, heads, top, out } = *k;
    let spec = low.kernel.kv(kv);
    let [position, seq] = place(low, e, token);
    let end = e.offset(position, 1);
    let (rows, _) = e.div_mod(end, spec.every);
    let pages = pages(low, e, seq);
    e.store_all(args, &[(offset_of!(SelectArgs, rows), rows), (offset_of!(SelectArgs, pages), pages)]);
    let operands = [
        (offset_of!(SelectArgs, q), q, heads * spec.value_dim),
        (offset_of!(SelectArgs, weights), weights, heads),
        (offset_of!(SelectArgs, out), out, top),
    ];
    for (offset, operand, cols) in operands {
        let row = e.index(low.args.operand(operand), token, row_bytes(cols, RowElem::F32));
        e.store(row, args, offset);
    }
}
