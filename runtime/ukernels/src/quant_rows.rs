//! Rounding of activation rows to int8 with a scale per group.

use llmcc_abi::layout::{K_PAD, groups, padded_k, q8_sum_bytes};

use crate::isa::Isa;
use crate::reference::{scales, write_excesses};

/// Calls `f` with each vector of `n` elements from `x`, the last one filled up with zeros.
macro_rules! each_vector {
    ($I:ident, $x:expr, $n:expr, |$at:ident, $v:ident| $body:block) => {{
        let (x, n) = ($x, $n);
        let mut $at = 0;
        while n - $at >= $I::LANES {
            let $v = $I::load(x.add($at).cast());
            $body
            $at += $I::LANES;
        }
        if $at < n {
            let mut tail = [0.0f32; 16];
            core::ptr::copy_nonoverlapping(x.add($at), tail.as_mut_ptr(), n - $at);
            let $v = $I::load(tail.as_ptr().cast());
            $body
        }
    }};
}

/// Quantizes columns of a row.
///
/// # Safety
/// As [`llmcc_abi::QuantRowsFn`]; the processor has the features of `I`.
#[inline(always)]
pub(crate) unsafe fn quant_row<I: Isa>(
    x: *const f32,
    k: usize,
    group: usize,
    codes: *mut i8,
    row_scales: *mut f32,
    sums: *mut i32,
) {
    unsafe {
        let kp = padded_k(k);
        if kp != k {
            codes.add(kp - K_PAD).write_bytes(0, K_PAD);
        }
        for g in 0..groups(k, group) {
            let start = g * group;
            // The last group of a row may be padding.
            let (x, n) = (x.wrapping_add(start), group.min(k.saturating_sub(start)));
            let mut amax = I::zero_words();
            each_vector!(I, x, n, |at, v| {
                amax = I::max_magnitude(amax, v);
            });
            let (scale, inverse) = scales(f32::from_bits(I::max_lane(amax) as u32));
            let mut sum = I::zero_words();
            if inverse > 0.0 {
                let inverse = I::splat(inverse);
                each_vector!(I, x, n, |at, v| {
                    let code = I::round(I::mul(v, inverse));
                    sum = I::add_words(sum, code);
                    // `LANES` divides the padding, so that a whole vector may be written.
                    I::store_bytes(codes.add(start + at).cast(), code);
                });
            } else {
                codes.add(start).write_bytes(0, n);
            }
            row_scales.add(g).write_unaligned(scale);
            let sums = sums.byte_add(g * q8_sum_bytes(group));
            sums.write_unaligned(I::sum_lanes(sum));
            write_excesses(codes.add(start), kp - start, group, sums);
        }
    }
}
