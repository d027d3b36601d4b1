//! Embedding: rows of a packed table by token id.

use super::emit::{Emit, F32, F32X4, I8X16, I32};
use super::frame::Frame;
use super::{Lowering, panel};
use cranelift_codegen::ir::{InstBuilder, Value};
use llmcc_abi::StepCtx;
use llmcc_abi::layout::{self, BLOCK, Elem};
use llmcc_ir::kernel::{Embed, MatrixOperand};
use llmcc_ir::quant::Format;
use std::mem::offset_of;

/// Emits the tokens `lo..hi`.
pub(super) fn lower(low: &Lowering, e: &mut Emit, frame: &mut Frame, k: &Embed) {
    let MatrixOperand { k: cols, format, .. } = low.kernel.matrix(k.table);
    // Codes are decoded 8 at a time, which may reach past the row.
    let buffer = (format.is_quantized() && !cols.is_multiple_of(8)).then(|| frame.floats(layout::padded_k(cols)));
    let tokens = low.args.step(e, offset_of!(StepCtx, tokens));
    e.each(low.args.lo, low.args.hi, 1, |e, row| {
        let p = e.index(tokens, row, 4);
        let token = e.load_index(p, 0);
        let (number, in_block) = e.div_mod(token, BLOCK);
        let block = e.index(low.args.operand(k.table), number, format.block_bytes(cols));
        let out = e.index(low.args.operand(k.out), row, cols * 4);
        match (format.is_quantized(), buffer) {
            (false, _) => plain(e, format.elem, cols, block, in_block, out),
            (true, None) => quantized(e, format, cols, block, in_block, out),
            (true, Some(buffer)) => {
                let buffer = e.offset(low.args.scratch, buffer);
                quantized(e, format, cols, block, in_block, buffer);
                e.each_fixed(cols * 4, 4, |e, at| {
                    let (from, to) = (e.add(buffer, at), e.add(out, at));
                    let x = e.load(F32, from, 0);
                    e.store(x, to, 0);
                });
            }
        }
    });
}

/// f32, f16, bf16: one element after the other, a block's rows being interleaved.
fn plain(e: &mut Emit, elem: Elem, cols: usize, block: Value, row: Value, out: Value) {
    e.each_fixed(cols, 1, |e, k| {
        let x = match elem {
            Elem::F32 => {
                let at = element(e, block, row, k, 1, 4);
                e.load(F32, at, 0)
            }
            Elem::F16 => {
                let at = element(e, block, row, k, 1, 2);
                let half = e.load_half(at, 0);
                scalar_f16(e, half)
            }
            _ => {
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

/// A finite f16 (in the low half of an i32) as f32.
fn scalar_f16(e: &mut Emit, half: Value) -> Value {
    let high = e.b.ins().ishl_imm_u(half, 16);
    let signed = e.b.ins().sshr_imm_s(high, 16);
    let v = e.splat(signed);
    let v = e.finite_f16_to_f32(v);
    e.lane(v, 0)
}

/// 8 columns at a time.
fn quantized(e: &mut Emit, format: Format, cols: usize, block: Value, row: Value, out: Value) {
    let group = if format.def().by_row() { cols } else { usize::from(format.group) };
    let layout = layout::block(format.elem, cols, group);
    let (zero, end) = (e.int(0), e.int(cols as i64));
    e.each(zero, end, group, |e, start| {
        let (factors, codes) = panel::group_address(e, &layout, group, block, start);
        let (factors, codes) = (e.index(factors, row, 2), e.index(codes, row, 4));
        let half = e.load_half(factors, 0);
        let scale = scalar_f16(e, half);
        let scale = e.splat(scale);
        let decode = format.def().decode;
        let min = decode.is_some_and(|d| d.min).then(|| {
            let half = e.load_half(factors, layout.mins);
            let min = scalar_f16(e, half);
            e.splat(min)
        });
        let stop = e.offset(start, group);
        let stop = e.min(stop, end);
        e.each(start, stop, 8, |e, k| {
            let p = e.index(out, k, 4);
            for (i, code) in eight_codes(e, format.elem, codes, k).into_iter().enumerate() {
                let code = if format.def().by_row() {
                    e.e4m3_to_f32(code)
                } else {
                    let zero = e.ints(decode.map_or(0, |d| d.zero) as u32);
                    let code = e.sub(code, zero);
                    e.b.ins().fcvt_from_sint(F32X4, code)
                };
                let mut x = e.fmul(code, scale);
                if let Some(min) = min {
                    x = e.fadd(x, min);
                }
                e.store(x, p, i * 16);
            }
        });
    });
}

/// Codes of columns `k..k + 8`; `codes`: those of the row in the first chunk.
fn eight_codes(e: &mut Emit, elem: Elem, codes: Value, k: Value) -> [Value; 2] {
    if matches!(elem, Elem::W8 | Elem::Fp8) {
        let p = e.index(codes, k, BLOCK);
        return [0, 64].map(|offset| {
            let word = e.load(I32, p, offset);
            bytes(e, word)
        });
    }
    let p = e.index(codes, k, BLOCK / 2);
    let word = e.load(I32, p, 0);
    let low = e.b.ins().band_imm_u(word, 0x0f0f_0f0f);
    let high = e.b.ins().ushr_imm_u(word, 4);
    let high = e.b.ins().band_imm_u(high, 0x0f0f_0f0f);
    [bytes(e, low), bytes(e, high)]
}

/// The bytes of an i32 as four i32.
fn bytes(e: &mut Emit, word: Value) -> Value {
    let zero = e.ints(0);
    let v = e.b.ins().insertlane(zero, word, 0);
    let v = e.cast(I8X16, v);
    let v = e.b.ins().uwiden_low(v);
    e.b.ins().uwiden_low(v)
}
