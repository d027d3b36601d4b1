//! int8 quantization of rows, by the rules of [`llmcc_abi::layout`]: a call of the microkernel
//! `QuantRows`, or code that gives the same codes, scales and sums; of integers always code.

use super::Lowering;
use super::emit::{Emit, F32, LANES};
use super::runs::joined;
use super::wide::{self, Codes};
use cranelift_codegen::ir::condcodes::FloatCC;
use cranelift_codegen::ir::{InstBuilder, Value};
use llmcc_abi::layout::{EXCESS, EXCESS_PART, K_PAD, Q8Row, excess_parts, q8_sum_bytes};
use llmcc_ir::kernel::RowElem;

/// A magnitude as i32 bits: as integers, magnitudes order like the numbers and NaN above infinity, so
/// that NaN is never lost.
fn magnitude(e: &mut Emit, v: Value) -> Value {
    let bits = e.bits(v);
    let mask = e.ints(0x7fff_ffff);
    e.b.ins().band(bits, mask)
}

/// The larger one of `acc` and the magnitude of `v`.
fn max_magnitude(e: &mut Emit, acc: Value, v: Value) -> Value {
    let v = magnitude(e, v);
    e.b.ins().smax(acc, v)
}

/// The largest magnitudes of `count` f32 at `x`: of each lane one, as i32 bits.
pub(super) fn largest(e: &mut Emit, x: Value, count: usize) -> Value {
    let zero = e.ints(0);
    joined(e, x, count, zero, magnitude, |e, a, b| e.b.ins().smax(a, b))
}

/// From lanes of largest magnitudes: scale `amax/most` (scalar), and per lane its inverse and a
/// mask, 0 where only code 0 makes sense: `amax` is 0, so small that `most/amax` overflows, infinite
/// or NaN.
fn from_amax(e: &mut Emit, amax: Value, most: f32) -> (Value, Value, Value) {
    let bits = e.max_lane_int(amax);
    let amax = e.cast(F32, bits);
    let limit = e.float(most);
    let scale = e.fdiv(amax, limit);
    let inverse = e.fdiv(limit, amax);
    let inverse = e.splat(inverse);
    let (zero, infinity) = (e.floats(0.0), e.floats(f32::INFINITY));
    let finite = e.lanes_where(FloatCC::LessThan, inverse, infinity);
    let positive = e.lanes_where(FloatCC::GreaterThan, inverse, zero);
    let valid = e.b.ins().band(finite, positive);
    (scale, inverse, valid)
}

/// [`from_amax`] of `count` f32 at `x`.
pub(super) fn scales(e: &mut Emit, x: Value, count: usize, most: f32) -> (Value, Value, Value) {
    let amax = largest(e, x, count);
    from_amax(e, amax, most)
}

/// Codes of four values, as i32.
pub(super) fn codes(e: &mut Emit, v: Value, inverse: Value, valid: Value) -> Value {
    let scaled = e.fmul(v, inverse);
    let (_, codes) = e.round(scaled);
    e.b.ins().band(codes, valid)
}

/// Zeroes the columns from `width` up to the next multiple of 32; `n`: columns of the segment, on
/// which alone it depends whether there are any.
pub(super) fn pad_row(e: &mut Emit, x: Value, width: Value, n: usize) {
    if n.is_multiple_of(K_PAD) {
        return;
    }
    let end = e.offset(width, K_PAD - 1);
    let end = e.b.ins().band_imm_s(end, -(K_PAD as i64));
    let zero = e.float(0.0);
    e.each(width, end, 1, |e, at| {
        let p = e.index(x, at, 4);
        e.store(zero, p, 0);
    });
}

/// Quantizes `width` f32 at `x`, padded with zeros to a multiple of 32, to columns `first..` of an
/// int8 row. `first` is a multiple of the group.
pub(super) fn quantize(
    low: &Lowering,
    e: &mut Emit,
    x: Value,
    width: Value,
    row: Value,
    first: Value,
    layout: &Q8Row,
    elem: RowElem,
) {
    let Some(group) = elem.group() else { unreachable!("`{elem}` rows are not int8") };
    let (number, _) = e.div_mod(first, group);
    let (scales, sums) = (e.index(row, number, 4), e.index(row, number, q8_sum_bytes(group)));
    let (scales, sums) = (e.offset(scales, layout.scales), e.offset(sums, layout.sums));
    let to = Codes { codes: e.add(row, first), scales, sums };
    if matches!(elem, RowElem::I8 { .. }) {
        return integers(e, x, width, &to, group);
    }
    if !low.portable {
        return wide::quantize(low, e, x, width, group, &to);
    }
    let zero = e.int(0);
    let padded = e.offset(width, K_PAD - 1);
    let padded = e.b.ins().band_imm_s(padded, -(K_PAD as i64));
    e.range(zero, padded, group, &[to.scales, to.sums], |e, start, carried| {
        let end = e.offset(start, group);
        let end = e.min(end, padded);
        let none = e.ints(0);
        let amax = e.range(start, end, group.min(K_PAD), &[none], |e, at, acc| {
            let p = e.index(x, at, 4);
            let mut amax = acc[0];
            for i in 0..group.min(K_PAD) / LANES {
                let v = e.load_lanes(p, i * 16, LANES);
                amax = max_magnitude(e, amax, v);
            }
            vec![amax]
        });
        let (scale, inverse, valid) = from_amax(e, amax[0], 127.0);
        let sums = e.range(start, end, 16, &[none], |e, at, sum| {
            let p = e.index(x, at, 4);
            let c: Vec<Value> = (0..4)
                .map(|i| {
                    let v = e.load_lanes(p, i * 16, LANES);
                    codes(e, v, inverse, valid)
                })
                .collect();
            let (low, high) = (e.b.ins().snarrow(c[0], c[1]), e.b.ins().snarrow(c[2], c[3]));
            let bytes = e.b.ins().snarrow(low, high);
            let p = e.add(to.codes, at);
            e.store(bytes, p, 0);
            let (a, b) = (e.add(c[0], c[1]), e.add(c[2], c[3]));
            let four = e.add(a, b);
            vec![e.add(sum[0], four)]
        });
        let sum = e.sum_lanes(sums[0]);
        finish_group(e, (scale, sum), carried, (start, end), &to, group)
    });
}

/// Writes the scale and the sum of a group, of columns `start` to `end` at `codes`, and the excesses of its parts if it
/// has some. Returns where the scale and the sum of the next group go.
fn finish_group(
    e: &mut Emit,
    (scale, sum): (Value, Value),
    to: &[Value],
    (start, end): (Value, Value),
    row: &Codes,
    group: usize,
) -> Vec<Value> {
    let (scales, sums) = (to[0], to[1]);
    e.store(scale, scales, 0);
    e.store(sum, sums, 0);
    let (none, bytes) = (e.ints(0), q8_sum_bytes(group));
    if excess_parts(group) > 0 {
        for at in (4..bytes).step_by(16) {
            e.store(none, sums, at);
        }
        e.range(start, end, EXCESS_PART, &[sums], |e, at, to| {
            let p = e.add(row.codes, at);
            let mut sum = none;
            for i in (0..EXCESS_PART).step_by(LANES) {
                let four = e.load_bytes(p, i);
                sum = e.add(sum, four);
            }
            let sum = e.sum_lanes(sum);
            let excess = e.b.ins().imul_imm_s(sum, i64::from(EXCESS));
            e.store(excess, to[0], 4);
            vec![e.offset(to[0], 4)]
        });
    }
    vec![e.offset(scales, 4), e.offset(sums, bytes)]
}

/// Rounds `width` f32 at `x` to integers. The code of NaN is 0, and the scale of its group NaN.
fn integers(e: &mut Emit, x: Value, width: Value, to: &Codes, group: usize) {
    let zero = e.int(0);
    let padded = e.offset(width, K_PAD - 1);
    let padded = e.b.ins().band_imm_s(padded, -(K_PAD as i64));
    e.range(zero, padded, group, &[to.scales, to.sums], |e, start, carried| {
        let end = e.offset(start, group);
        let end = e.min(end, padded);
        let (none, all) = (e.ints(0), e.ints(u32::MAX));
        let found = e.range(start, end, 16, &[none, all], |e, at, found| {
            let p = e.index(x, at, 4);
            let (mut sum, mut numbers) = (found[0], found[1]);
            let c: Vec<Value> = (0..4)
                .map(|i| {
                    let v = e.load_lanes(p, i * 16, LANES);
                    let number = e.lanes_where(FloatCC::Ordered, v, v);
                    let within = e.clamp(v, -128.0, 127.0);
                    let (_, code) = e.round(within);
                    let code = e.b.ins().band(code, number);
                    sum = e.add(sum, code);
                    numbers = e.b.ins().band(numbers, number);
                    code
                })
                .collect();
            let (low, high) = (e.b.ins().snarrow(c[0], c[1]), e.b.ins().snarrow(c[2], c[3]));
            let bytes = e.b.ins().snarrow(low, high);
            let p = e.add(to.codes, at);
            e.store(bytes, p, 0);
            vec![sum, numbers]
        });
        // Four quarters, which are 1, or NaN.
        let (quarter, nan) = (e.floats(0.25), e.floats(f32::NAN));
        let scale = e.choose(found[1], quarter, nan);
        let (scale, sum) = (e.sum_lanes(scale), e.sum_lanes(found[0]));
        finish_group(e, (scale, sum), carried, (start, end), to, group)
    });
}
