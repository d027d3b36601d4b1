//! Attention to caches that drop tokens: a call of the microkernel for each token, in order.

use super::Lowering;
use super::emit::{Emit, I64};
use super::frame::Frame;
use super::microkernel::Microkernel;
use super::recurrent::Slots;
use cranelift_codegen::ir::Value;
use llmcc_abi::evict::{EvictArgs, KeptLayout, evict_work};
use llmcc_abi::{StepCtx, Uk};
use llmcc_ir::kernel::{EvictingAttention, ParamId};
use std::mem::offset_of;

/// Sizes of a work item.
struct Unit {
    heads: usize,
    group: usize,
    kept: KeptLayout,
}

/// Emits the items `lo..hi`.
pub(super) fn lower(low: &Lowering, e: &mut Emit, frame: &mut Frame, k: &EvictingAttention) {
    let spec = low.kernel.fixed(k.state);
    let unit = Unit {
        heads: if k.eviction.together { spec.heads } else { 1 },
        group: k.heads / spec.heads,
        kept: KeptLayout { key_dim: k.key_dim, value_dim: k.value_dim(spec), places: spec.cols },
    };
    let args = arguments(low, e, frame, (k, &unit));
    let microkernel = Microkernel::new(low, e, Uk::Evict, &[I64], &[]);
    let states = Slots::of_bytes(low, e, k.state, spec.bytes());
    let positions = low.args.step(e, offset_of!(StepCtx, positions));
    e.each(low.args.lo, low.args.hi, 1, |e, item| {
        let zero = e.int(0);
        e.each(zero, low.args.m, 1, |e, token| {
            let position = e.index(positions, token, 4);
            let position = e.load_index(position, 0);
            let at = states.number(e, token);
            let state = states.address(e, at);
            let state = e.index(state, item, unit.heads * unit.kept.len() * 4);
            e.store_all(args, &[(offset_of!(EvictArgs, position), position), (offset_of!(EvictArgs, state), state)]);
            of_token(low, e, (k, &unit), args, (item, token));
            microkernel.call(e, &[args]);
        });
    });
}

/// The microkernel's arguments, with those that all tokens have in common.
fn arguments(low: &Lowering, e: &mut Emit, frame: &mut Frame, (k, unit): (&EvictingAttention, &Unit)) -> Value {
    let args = e.on_stack::<EvictArgs>();
    let of = &k.eviction;
    // A criterion has 8 bytes, and both floats are one number of 8.
    let reals = u64::from(k.scale.get().to_bits()) | u64::from(of.level.get().to_bits()) << 32;
    const { assert!(offset_of!(EvictArgs, level) == offset_of!(EvictArgs, scale) + 4) };
    let sizes = [
        (offset_of!(EvictArgs, heads), unit.heads),
        (offset_of!(EvictArgs, group), unit.group),
        (offset_of!(EvictArgs, key_dim), unit.kept.key_dim),
        (offset_of!(EvictArgs, value_dim), unit.kept.value_dim),
        (offset_of!(EvictArgs, places), unit.kept.places),
        (offset_of!(EvictArgs, budget), of.budget),
        (offset_of!(EvictArgs, recent), of.recent),
        (offset_of!(EvictArgs, drop), of.drop),
        (offset_of!(EvictArgs, window), of.window),
        (offset_of!(EvictArgs, criterion), of.criterion as usize),
        (offset_of!(EvictArgs, scale), reals as usize),
    ];
    e.store_ints(args, &sizes);
    let work = e.offset(low.args.scratch, frame.bytes(evict_work(unit.group, unit.kept.places)));
    e.store(work, args, offset_of!(EvictArgs, work));
    args
}

/// Stores the addresses of a token's rows, from the columns of an item's heads on.
fn of_token(
    low: &Lowering,
    e: &mut Emit,
    (k, unit): (&EvictingAttention, &Unit),
    args: Value,
    (item, token): (Value, Value),
) {
    let KeptLayout { key_dim, value_dim, .. } = unit.kept;
    let mut address = |p: ParamId, start: usize, columns: usize| {
        let row = e.index(low.args.operand(p), token, low.cols(p) * 4);
        let row = e.offset(row, start * 4);
        e.index(row, item, columns * 4)
    };
    let queries = unit.heads * unit.group;
    let operands = [
        (offset_of!(EvictArgs, q), address(k.q, k.q_start, queries * key_dim)),
        (offset_of!(EvictArgs, k), address(k.k, k.k_start, unit.heads * key_dim)),
        (offset_of!(EvictArgs, v), address(k.v, k.v_start, unit.heads * value_dim)),
        (offset_of!(EvictArgs, out), address(k.out, 0, queries * value_dim)),
    ];
    e.store_all(args, &operands);
}
