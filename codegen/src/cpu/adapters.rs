//! Products with the matrices of adapters that are loaded while the model runs.
//!
//! A work item is a block of 16 columns of a token's result. Tokens one after the other that have the
//! same adapter are multiplied at once where all their blocks are one thread's; a row of a panel does
//! not depend on those beside it, so it does not matter where such runs begin and end.

use super::Lowering;
use super::emit::{Emit, F32X4};
use super::matmul::{multiply, panel_args};
use super::panel::Panel;
use super::recurrent::Slots;
use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::{InstBuilder, StackSlot, Value};
use llmcc_abi::layout::{self, BLOCK};
use llmcc_ir::kernel::{AdapterMatmul, RowElem};
use llmcc_ir::state::AdapterSpec;
use std::ops::Range;

/// Tokens of one adapter, and blocks of their results.
struct TokensOfAdapter {
    token: Value,
    rows: Value,
    from: Value,
    to: Value,
}

/// Emits the items `lo..hi`.
pub(super) fn lower(low: &Lowering, e: &mut Emit, k: &AdapterMatmul) {
    let spec = low.kernel.adapter(k.adapter);
    let blocks = spec.n / BLOCK;
    let slots = Slots::of_bytes(low, e, k.adapter, spec.bytes());
    let args = panel_args(e);
    e.walk(low.args.lo, low.args.hi, |e, item| {
        let (token, from) = e.div_mod(item, blocks);
        let slot = slots.number(e, token);
        // Tokens whose blocks are all among the items.
        let (whole_to, _) = e.div_mod(low.args.hi, blocks);
        let (zero, all) = (e.int(0), e.int(blocks as i64));
        let first = e.compare(IntCC::Equal, from, zero);
        let next = e.offset(token, 1);
        let most = e.max(next, whole_to);
        let most = e.b.ins().select(first, most, next);
        let end = e.scan(next, most, |e, other| {
            let other = slots.number(e, other);
            e.compare(IntCC::Equal, other, slot)
        });
        let before = e.times(token, blocks);
        let rest = e.sub(low.args.hi, before);
        let to = e.min(rest, all);
        let run = TokensOfAdapter { token, rows: e.sub(end, token), from, to };
        let none = e.compare(IntCC::Equal, slot, zero);
        e.when(none, |e| clear(low, e, k, &spec, &run));
        let some = e.compare(IntCC::NotEqual, slot, zero);
        e.when(some, |e| {
            let matrix = slots.address(e, slot);
            product(low, e, k, &spec, &run, (matrix, args));
        });
        let one = e.int(1);
        let last = e.sub(end, one);
        let done = e.times(last, blocks);
        e.add(done, to)
    });
}

/// Address of the first row and block of the result.
fn result(low: &Lowering, e: &mut Emit, k: &AdapterMatmul, n: usize, (token, block): (Value, Value)) -> Value {
    let row = e.index(low.args.operand(k.out), token, n * 4);
    e.index(row, block, BLOCK * 4)
}

/// Results of sequences without an adapter.
fn clear(low: &Lowering, e: &mut Emit, k: &AdapterMatmul, spec: &AdapterSpec, run: &TokensOfAdapter) {
    let out = result(low, e, k, spec.n, (run.token, run.from));
    let (zero, none) = (e.int(0), e.floats(0.0));
    let blocks = e.sub(run.to, run.from);
    e.each(zero, run.rows, 1, |e, row| {
        let row = e.index(out, row, spec.n * 4);
        e.each(zero, blocks, 1, |e, block| {
            let at = e.index(row, block, BLOCK * 4);
            (0..BLOCK * 4).step_by(F32X4.bytes() as usize).for_each(|byte| e.store(none, at, byte));
        });
    });
}

/// Results of sequences whose adapter has `matrix`, part by part.
fn product(
    low: &Lowering,
    e: &mut Emit,
    k: &AdapterMatmul,
    spec: &AdapterSpec,
    run: &TokensOfAdapter,
    (matrix, args): (Value, StackSlot),
) {
    let mut first = 0;
    for (i, part) in k.parts.iter().enumerate() {
        let blocks = first..first + part / BLOCK;
        first = blocks.end;
        let column = k.start + i * spec.k;
        part_of(low, e, k, spec, run, (matrix, args, column, blocks));
    }
}

fn part_of(
    low: &Lowering,
    e: &mut Emit,
    k: &AdapterMatmul,
    spec: &AdapterSpec,
    run: &TokensOfAdapter,
    (matrix, args, column, blocks): (Value, StackSlot, usize, Range<usize>),
) {
    let (start, end) = (e.int(blocks.start as i64), e.int(blocks.end as i64));
    let (from, to) = (e.max(run.from, start), e.min(run.to, end));
    let some = e.compare(IntCC::SignedLessThan, from, to);
    e.when(some, |e| {
        let w_stride = layout::block(&spec.format().encoding(), spec.k).bytes;
        let a_stride = low.cols(k.x) * 4;
        let a = e.index(low.args.operand(k.x), run.token, a_stride);
        let panel = Panel {
            format: spec.format(),
            rows_elem: RowElem::F32,
            k: spec.k,
            w: e.index(matrix, from, w_stride),
            w_stride,
            blocks: e.sub(to, from),
            a: e.offset(a, column * 4),
            a_stride,
            rows: run.rows,
            c: result(low, e, k, spec.n, (run.token, from)),
            c_stride: spec.n,
        };
        multiply(low, e, args, &panel);
    });
}
