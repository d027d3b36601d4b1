//! Embedding: rows of a packed table by token id, position or type.

use super::Lowering;
use super::codes::{self, scalar_f16};
use super::emit::{Emit, F32, LANES};
use super::frame::Frame;
use cranelift_codegen::ir::{InstBuilder, Value};
use llmcc_abi::StepCtx;
use llmcc_abi::encoding::Float;
use llmcc_abi::layout::{self, BLOCK};
use llmcc_ir::graph::F32 as F32Attr;
use llmcc_ir::kernel::{Embed, Index, MatrixOperand, ParamId};
use llmcc_ir::quant::Format;
use std::mem::offset_of;

/// Emits the tokens `lo..hi`.
pub(super) fn lower(low: &Lowering, e: &mut Emit, frame: &mut Frame, k: &Embed) {
    let Embed { table, index, every, shift, scale, add, out } = *k;
    let rows = TableRows::new(low, frame, table);
    let index = match index {
        Index::Tokens => offset_of!(StepCtx, tokens),
        Index::Positions => offset_of!(StepCtx, positions),
        Index::Types => offset_of!(StepCtx, arrays.types),
    };
    let index = low.args.step(e, index);
    e.each(low.args.lo, low.args.hi, 1, |e, row| {
        let p = e.index(index, row, 4);
        let token = e.load_index(p, 0);
        let token = e.offset(token, shift.unwrap_or(0));
        let token = if every == 1 { token } else { e.div_mod(token, every).0 };
        let out = e.index(low.args.operand(out), row, rows.cols * 4);
        rows.copy(low, e, token, out);
        let add = add.map(|add| e.index(low.args.operand(add), row, rows.cols * 4));
        finish(e, out, rows.cols, scale, add);
    });
}

/// Rows of a packed table.
pub(super) struct TableRows {
    table: ParamId,
    cols: usize,
    format: Format,
    /// Codes are decoded 8 at a time, which may reach past the row.
    buffer: Option<usize>,
}

impl TableRows {
    pub(super) fn new(low: &Lowering, frame: &mut Frame, table: ParamId) -> TableRows {
        let MatrixOperand { k: cols, format, .. } = low.kernel.matrix(table);
        let buffer = (format.is_quantized() && !cols.is_multiple_of(8)).then(|| frame.floats(layout::padded_k(cols)));
        TableRows { table, cols, format, buffer }
    }

    /// Decodes row `number`.
    pub(super) fn copy(&self, low: &Lowering, e: &mut Emit, number: Value, out: Value) {
        let TableRows { table, cols, format, buffer } = *self;
        let (number, in_block) = e.div_mod(number, BLOCK);
        let block = e.index(low.args.operand(table), number, format.block_bytes(cols));
        match (format.encoding().float(), buffer) {
            (Some(float), _) => plain(e, float, cols, block, in_block, out),
            (None, None) => quantized(e, format, cols, block, in_block, out),
            (None, Some(buffer)) => {
                let buffer = e.offset(low.args.scratch, buffer);
                quantized(e, format, cols, block, in_block, buffer);
                e.each_fixed(cols * 4, 4, |e, at| {
                    let (from, to) = (e.add(buffer, at), e.add(out, at));
                    let x = e.load(F32, from, 0);
                    e.store(x, to, 0);
                });
            }
        }
    }
}

/// Multiplies a row by a scale, unless it is 1, and adds another row, if there is one.
fn finish(e: &mut Emit, out: Value, cols: usize, scale: F32Attr, add: Option<Value>) {
    let scale = (scale != F32Attr::new(1.0)).then(|| e.floats(scale.get()));
    if scale.is_none() && add.is_none() {
        return;
    }
    let change = |e: &mut Emit, at: Value, lanes: usize| {
        let p = e.add(out, at);
        let mut x = e.load_lanes(p, 0, lanes);
        if let Some(scale) = scale {
            x = e.fmul(x, scale);
        }
        if let Some(add) = add {
            let from = e.add(add, at);
            let y = e.load_lanes(from, 0, lanes);
            x = e.fadd(x, y);
        }
        e.store_lanes(x, p, 0, lanes);
    };
    let whole = cols / LANES * LANES;
    e.each_fixed(whole * 4, 4 * LANES, |e, at| change(e, at, LANES));
    if whole < cols {
        let at = e.int(whole as i64 * 4);
        change(e, at, cols - whole);
    }
}

/// f32, f16, bf16: one element after the other, a block's rows being interleaved.
fn plain(e: &mut Emit, float: Float, cols: usize, block: Value, row: Value, out: Value) {
    e.each_fixed(cols, 1, |e, k| {
        let x = match float {
            Float::F32 => {
                let at = element(e, block, row, k, 1, 4);
                e.load(F32, at, 0)
            }
            Float::F16 => {
                let at = element(e, block, row, k, 1, 2);
                let half = e.load_half(at, 0);
                scalar_f16(e, half)
            }
            Float::Bf16 | Float::E4m3 => {
                let at = element(e, block, row, k, 2, 2);
                let half = e.load_half(at, 0);
                let bits = e.b.ins().ishl_imm_u(half, 16);
                e.cast(F32, bits)
            }
        };
        let p = e.index(out, k, 4);
        e.store(x, p, 0);
    });
}

/// Address of an element in `[k/pair][16][pair]` of `bytes` bytes.
fn element(e: &mut Emit, block: Value, row: Value, k: Value, pair: usize, bytes: usize) -> Value {
    let (unit, in_pair) = e.div_mod(k, pair);
    let at = e.times(unit, BLOCK);
    let at = e.add(at, row);
    let at = e.times(at, pair);
    let at = e.add(at, in_pair);
    e.index(block, at, bytes)
}

/// 8 columns at a time.
fn quantized(e: &mut Emit, format: Format, cols: usize, block: Value, row: Value, out: Value) {
    let encoding = format.encoding();
    let group = encoding.group().unwrap_or(cols);
    let layout = layout::block(&encoding, cols);
    let (zero, end) = (e.int(0), e.int(cols as i64));
    e.each(zero, end, group, |e, start| {
        let at = codes::group_at(e, &layout, group, block, start).of_row(e, &encoding, row);
        let factors = codes::factors_of_row(e, &encoding, &layout, &at);
        let stop = e.offset(start, group);
        let stop = e.min(stop, end);
        e.each(start, stop, 8, |e, k| {
            let p = e.index(out, k, 4);
            for (i, code) in codes::eight_codes(e, &encoding, at.codes, k).into_iter().enumerate() {
                let numbers = codes::numbers(e, &encoding, code);
                let x = codes::values(e, &encoding, numbers, factors.scale, factors.min);
                e.store(x, p, i * 16);
            }
        });
    });
}
