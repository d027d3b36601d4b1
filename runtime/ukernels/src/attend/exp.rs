//! The exponential of attention.

use crate::isa::Isa;

/// Below this, `exp` is 0: the smallest normal number is `e^-87.34`.
const EXP_MIN: f32 = -87.0;
/// `ln 2` in two parts: the product of the first with a whole number below 2^8 is exact.
const LN2_HIGH: f32 = 0.693_359_4;
const LN2_LOW: f32 = -2.121_944_4e-4;
/// Polynomial of `(e^r − 1 − r) / r²` on `|r| <= ln 2 / 2`, highest power first (Cephes `expf`).
const EXP_POLY: [f32; 6] = [1.987_569_2e-4, 1.398_199_9e-3, 8.333_452e-3, 4.166_579_6e-2, 1.666_666_5e-1, 0.5];

/// `e^r − 1` and `2^n` of `x = r + n·ln 2`, for `x` of [`EXP_MIN`] to 0.
#[inline(always)]
unsafe fn parts<I: Isa>(x: I::F) -> (I::F, I::F) {
    unsafe {
        let n = I::round(I::mul(x, I::splat(core::f32::consts::LOG2_E)));
        let k = I::to_f32(n);
        let r = I::fma(k, I::splat(-LN2_HIGH), x);
        let r = I::fma(k, I::splat(-LN2_LOW), r);
        let mut p = I::splat(EXP_POLY[0]);
        for c in 1..EXP_POLY.len() {
            p = I::fma(p, r, I::splat(EXP_POLY[c]));
        }
        (I::fma(p, I::mul(r, r), r), I::pow2(n))
    }
}

/// `e^x` for `x <= 0`, 0 below [`EXP_MIN`]; 1 ulp.
#[inline(always)]
pub(crate) unsafe fn exp<I: Isa>(x: I::F) -> I::F {
    unsafe {
        let (p, power) = parts::<I>(x);
        // `(p + 1) · 2^n`: the result is no subnormal, so that rounding it is rounding the sum.
        let value = I::fma(p, power, power);
        I::zero_where_less(value, x, I::splat(EXP_MIN))
    }
}

/// `tanh x`, by `t = e^(−2|x|) − 1`: `−t/(t + 2)`, which loses nothing near 0.
#[inline(always)]
pub(super) unsafe fn tanh<I: Isa>(x: I::F) -> I::F {
    unsafe {
        let zero = I::splat(0.0);
        let twice = I::mul(I::keep_bits(x, 0x7fff_ffff), I::splat(-2.0));
        let (p, power) = parts::<I>(I::max(I::splat(EXP_MIN), twice));
        let t = I::fma(p, power, I::sub(power, I::splat(1.0)));
        let y = I::div(t, I::add(t, I::splat(2.0)));
        I::where_less(x, zero, y, I::sub(zero, y))
    }
}
