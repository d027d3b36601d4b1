//! NEON, which every AArch64 processor has: a vector is half a block, in two registers.
//!
//! [`Dots`] are the integer dot products: [`Sdot`] with the feature `dotprod` (ARMv8.2, 2017), [`Widening`] without.
//!
//! The files of this folder use each other (`tests/tests/circles.rs`): together they implement `Isa`.

mod dot;

use core::arch::aarch64::*;
use core::arch::asm;
use core::marker::PhantomData;

use super::{Apart, FEW, Isa, Shape};
pub(crate) use dot::{Dots, Sdot, Widening};

/// NEON, with such dot products.
#[derive(Clone, Copy)]
pub(crate) struct Neon<D>(PhantomData<D>);

/// 8 f32: lanes 0 to 3, and 4 to 7.
pub(crate) type F = [float32x4_t; 2];
/// 8 i32, or 32 bytes.
pub(crate) type I = [int32x4_t; 2];

/// Applies a function to both registers of its operands.
macro_rules! both {
    ($f:ident($($x:expr),*)) => { [$f($($x[0]),*), $f($($x[1]),*)] };
    ($f:ident::<$n:literal>($x:expr)) => { [$f::<$n>($x[0]), $f::<$n>($x[1])] };
}

/// The words of 16 bits, moved up by `by` (down, if negative).
#[inline(always)]
unsafe fn shift_halves(x: int32x4_t, by: i32) -> int32x4_t {
    unsafe { vreinterpretq_s32_u16(vshlq_u16(vreinterpretq_u16_s32(x), vdupq_n_s16(by as i16))) }
}

/// The words of 32 bits, moved up by `by` (down, if negative).
#[inline(always)]
unsafe fn shift(x: int32x4_t, by: i32) -> int32x4_t {
    unsafe { vreinterpretq_s32_u32(vshlq_u32(vreinterpretq_u32_s32(x), vdupq_n_s32(by))) }
}

/// `yes` where the mask is set, else `no`.
#[inline(always)]
unsafe fn choose(mask: uint32x4_t, yes: float32x4_t, no: float32x4_t) -> float32x4_t {
    unsafe { vbslq_f32(mask, yes, no) }
}

#[inline(always)]
unsafe fn larger(a: float32x4_t, b: float32x4_t) -> float32x4_t {
    unsafe { choose(vcgtq_f32(a, b), a, b) }
}

#[inline(always)]
unsafe fn lesser(a: float32x4_t, b: float32x4_t) -> float32x4_t {
    unsafe { choose(vcltq_f32(a, b), a, b) }
}

impl<D> Neon<D> {
    /// The field `mask` at bit `shift` of each word, minus `zero`: as in `avx2.rs`, in the mantissa
    /// of a number whose last bits weigh as much.
    #[inline(always)]
    unsafe fn field(x: I, shift: i32, mask: i32, zero: f32) -> F {
        let mut out = [unsafe { vdupq_n_f32(0.0) }; 2];
        for i in 0..2 {
            unsafe {
                let (x, shift) = if shift + (32 - mask.leading_zeros() as i32) > 23 {
                    (self::shift(x[i], -16), shift - 16)
                } else {
                    (x[i], shift)
                };
                let exponent = (127 + 23 - shift) << 23;
                let value = vorrq_s32(vandq_s32(x, vdupq_n_s32(mask << shift)), vdupq_n_s32(exponent));
                let zero = vdupq_n_f32(f32::from_bits(exponent as u32) + zero);
                out[i] = vsubq_f32(vreinterpretq_f32_s32(value), zero);
            }
        }
        out
    }
}

impl<D: Dots> Isa for Neon<D> {
    const LANES: usize = 8;
    const FLOAT: Shape = Shape { tokens: 4, vectors: 2, single: 4, few: FEW };
    const HALVES: Shape = Shape { tokens: 4, vectors: 2, single: 4, few: FEW };
    const MANY: usize = 6;
    const BF16: Shape = Shape { tokens: 4, vectors: 2, single: 4, few: FEW };
    const DECODE: Shape = Shape { tokens: 4, vectors: 2, single: 4, few: FEW };
    const INT8: Shape = D::INT8;
    const ATTEND_SCORES: usize = 4;
    const ATTEND_WEIGHS: usize = 2;
    const DOT_CHAINS: usize = 2;
    const W8_UNSIGNED: bool = false;
    const LARGE_TABLES: bool = true;

    type F = F;
    type I = I;
    type W8 = I;
    type Dot = D::Sums;

    #[inline(always)]
    unsafe fn apart<A, P: Apart<A>>(args: A) {
        unsafe { D::apart::<A, P>(args) }
    }
    #[inline(always)]
    unsafe fn splat(x: f32) -> F {
        unsafe { [vdupq_n_f32(x); 2] }
    }
    #[inline(always)]
    unsafe fn load(p: *const u8) -> F {
        unsafe { [vld1q_f32(p.cast()), vld1q_f32(p.add(16).cast())] }
    }
    #[inline(always)]
    unsafe fn load_f16(p: *const u8) -> F {
        unsafe {
            let halves = vreinterpretq_f16_u8(vld1q_u8(p));
            [vcvt_f32_f16(vget_low_f16(halves)), vcvt_high_f32_f16(halves)]
        }
    }
    #[inline(always)]
    unsafe fn prefetch(p: *const u8) {
        unsafe { asm!("prfm pldl1keep, [{}]", in(reg) p, options(nostack, preserves_flags, readonly)) }
    }
    #[inline(always)]
    unsafe fn prefetch_far(p: *const u8) {
        unsafe { asm!("prfm pldl2keep, [{}]", in(reg) p, options(nostack, preserves_flags, readonly)) }
    }
    #[inline(always)]
    unsafe fn store(p: *mut f32, x: F) {
        unsafe {
            vst1q_f32(p, x[0]);
            vst1q_f32(p.add(4), x[1]);
        }
    }
    #[inline(always)]
    unsafe fn mul(a: F, b: F) -> F {
        unsafe { both!(vmulq_f32(a, b)) }
    }
    #[inline(always)]
    unsafe fn fma(a: F, b: F, c: F) -> F {
        unsafe { both!(vfmaq_f32(c, a, b)) }
    }

    #[inline(always)]
    unsafe fn load_words(p: *const u8) -> I {
        unsafe { [vreinterpretq_s32_u8(vld1q_u8(p)), vreinterpretq_s32_u8(vld1q_u8(p.add(16)))] }
    }
    #[inline(always)]
    unsafe fn store_words(p: *mut u8, x: I) {
        unsafe {
            vst1q_u8(p, vreinterpretq_u8_s32(x[0]));
            vst1q_u8(p.add(16), vreinterpretq_u8_s32(x[1]));
        }
    }
    #[inline(always)]
    unsafe fn bf16_low(x: I) -> F {
        unsafe {
            let x = both!(vshlq_n_s32::<16>(x));
            both!(vreinterpretq_f32_s32(x))
        }
    }
    #[inline(always)]
    unsafe fn bf16_high(x: I) -> F {
        unsafe {
            let mask = [vdupq_n_s32(0xffff_0000u32 as i32); 2];
            let x = both!(vandq_s32(x, mask));
            both!(vreinterpretq_f32_s32(x))
        }
    }
    #[inline(always)]
    unsafe fn splat_bits(x: u32) -> I {
        unsafe { [vdupq_n_s32(x as i32); 2] }
    }
    #[inline(always)]
    unsafe fn to_f32(x: I) -> F {
        unsafe { both!(vcvtq_f32_s32(x)) }
    }

    codes_by_field!();

    #[inline(always)]
    unsafe fn nibble_of(x: I, shift: i32, table: &[u32; 16]) -> F {
        let mut out = [unsafe { vdupq_n_f32(0.0) }; 2];
        for i in 0..2 {
            unsafe {
                let index = vandq_s32(self::shift(x[i], -shift), vdupq_n_s32(15));
                // The four bytes of that entry.
                let bytes = vmlaq_s32(vdupq_n_s32(0x0302_0100), index, vdupq_n_s32(0x0404_0404));
                let table = vld1q_u8_x4(table.as_ptr().cast());
                out[i] = vreinterpretq_f32_u8(vqtbl4q_u8(table, vreinterpretq_u8_s32(bytes)));
            }
        }
        out
    }

    #[inline(always)]
    unsafe fn dot(x: i32) -> D::Sums {
        unsafe { D::new(x) }
    }
    #[inline(always)]
    unsafe fn splat_word(p: *const u8) -> I {
        unsafe { [vdupq_n_s32(p.cast::<i32>().read_unaligned()); 2] }
    }
    #[inline(always)]
    unsafe fn dot4(acc: D::Sums, w: I, a: I) -> D::Sums {
        unsafe { D::add(acc, w, a) }
    }
    #[inline(always)]
    unsafe fn prepare_dot8(x: I) -> I {
        unsafe {
            let flip = [vreinterpretq_s32_u8(vdupq_n_u8(128)); 2];
            both!(veorq_s32(x, flip))
        }
    }
    #[inline(always)]
    unsafe fn dot8(acc: D::Sums, w: I, a: I) -> D::Sums {
        unsafe { D::add(acc, w, a) }
    }
    #[inline(always)]
    unsafe fn settle(acc: D::Sums) -> D::Sums {
        acc
    }
    #[inline(always)]
    unsafe fn total(acc: D::Sums) -> I {
        unsafe { D::total(acc) }
    }

    #[inline(always)]
    unsafe fn field_of_bytes(x: I, right: i32, mask: u8) -> I {
        unsafe {
            let mask = vreinterpretq_s32_u8(vdupq_n_u8(mask));
            [vandq_s32(shift_halves(x[0], -right), mask), vandq_s32(shift_halves(x[1], -right), mask)]
        }
    }
    #[inline(always)]
    unsafe fn words_right(x: I, bits: i32) -> I {
        unsafe { [shift_halves(x[0], -bits), shift_halves(x[1], -bits)] }
    }
    #[inline(always)]
    unsafe fn words_left(x: I, bits: i32) -> I {
        unsafe { [shift_halves(x[0], bits), shift_halves(x[1], bits)] }
    }
    #[inline(always)]
    unsafe fn funnel(x: I, before: I, bits: i32) -> I {
        unsafe {
            let (up, down) = ([shift(x[0], bits), shift(x[1], bits)], bits - 32);
            let down = [shift(before[0], down), shift(before[1], down)];
            both!(vorrq_s32(up, down))
        }
    }
    #[inline(always)]
    unsafe fn xor_words(a: I, b: I) -> I {
        unsafe { both!(veorq_s32(a, b)) }
    }
    #[inline(always)]
    unsafe fn merge(mask: u8, a: I, b: I) -> I {
        unsafe {
            let mask = [vreinterpretq_u32_u8(vdupq_n_u8(mask)); 2];
            both!(vbslq_s32(mask, a, b))
        }
    }
    #[inline(always)]
    unsafe fn look_up_64(x: I, table: &[u8; 64]) -> I {
        unsafe {
            let table = vld1q_u8_x4(table.as_ptr());
            let x = both!(vreinterpretq_u8_s32(x));
            let x = [vqtbl4q_u8(table, x[0]), vqtbl4q_u8(table, x[1])];
            both!(vreinterpretq_s32_u8(x))
        }
    }
    #[inline(always)]
    unsafe fn or_words(a: I, b: I) -> I {
        unsafe { both!(vorrq_s32(a, b)) }
    }
    #[inline(always)]
    unsafe fn look_up(x: I, table: &[u8; 16]) -> I {
        unsafe {
            let table = vld1q_u8(table.as_ptr());
            let x = both!(vreinterpretq_u8_s32(x));
            let x = [vqtbl1q_u8(table, x[0]), vqtbl1q_u8(table, x[1])];
            both!(vreinterpretq_s32_u8(x))
        }
    }
    #[inline(always)]
    unsafe fn pick(p: *const u8, at: I) -> I {
        unsafe {
            let eight = vld1_u8(p);
            let (eight, upper) = (vcombine_u8(eight, eight), vdupq_n_s32(0x0404_0000));
            let at = [vorrq_s32(at[0], upper), vorrq_s32(at[1], upper)];
            let at = both!(vreinterpretq_u8_s32(at));
            let x = [vqtbl1q_u8(eight, at[0]), vqtbl1q_u8(eight, at[1])];
            both!(vreinterpretq_s32_u8(x))
        }
    }
    #[inline(always)]
    unsafe fn load_powers(p: *const u8) -> F {
        unsafe {
            let words = vmovl_u8(vld1_u8(p));
            let words = [vmovl_u16(vget_low_u16(words)), vmovl_high_u16(words)];
            // 2⁻¹²⁷ is subnormal.
            let (bits, least) = (both!(vshlq_n_u32::<23>(words)), [vdupq_n_u32(1 << 22); 2]);
            let bits = both!(vmaxq_u32(bits, least));
            both!(vreinterpretq_f32_u32(bits))
        }
    }

    #[inline(always)]
    unsafe fn load_e4m3(p: *const u8) -> F {
        unsafe {
            // The sign is there twice; f16 with the exponent of e4m3 is 2⁸ times too small.
            let twice = vshlq_n_s16::<7>(vmovl_s8(vld1_s8(p.cast())));
            let halves = vreinterpretq_f16_s16(vandq_s16(twice, vdupq_n_s16(0xbf80u16 as i16)));
            let (small, scale) = ([vcvt_f32_f16(vget_low_f16(halves)), vcvt_high_f32_f16(halves)], Self::splat(256.0));
            both!(vmulq_f32(small, scale))
        }
    }
    #[inline(always)]
    unsafe fn e4m3_halves(x: I) -> [I; 2] {
        unsafe {
            let (keep, exponent) = (vdupq_n_s16(0x87f0u16 as i16), vdupq_n_s16(0x3800));
            let mut out = [x; 2];
            for i in 0..2 {
                let odd = vreinterpretq_s16_s32(x[i]);
                for (j, moved) in [vshlq_n_s16::<8>(odd), odd].into_iter().enumerate() {
                    let bits = vorrq_s16(vandq_s16(vshrq_n_s16::<4>(moved), keep), exponent);
                    out[j][i] = vreinterpretq_s32_s16(bits);
                }
            }
            out
        }
    }
    #[inline(always)]
    unsafe fn e4m3_exact(x: F) -> F {
        let mut out = x;
        for i in 0..2 {
            unsafe {
                let bits = vreinterpretq_u32_f32(x[i]);
                let small = vceqq_u32(vandq_u32(bits, vdupq_n_u32(0x0780_0000)), vdupq_n_u32(0));
                let one = vandq_u32(bits, vdupq_n_u32(0xff80_0000));
                let rest = vsubq_f32(x[i], vreinterpretq_f32_u32(vandq_u32(one, small)));
                let again = vreinterpretq_f32_u32(vandq_u32(vreinterpretq_u32_f32(rest), small));
                let twice = vreinterpretq_u32_f32(vaddq_f32(rest, again));
                let sign = vandq_u32(bits, vdupq_n_u32(0x8000_0000));
                out[i] = vreinterpretq_f32_u32(vorrq_u32(twice, sign));
            }
        }
        out
    }
    #[inline(always)]
    unsafe fn e4m3_least(least: I, x: I) -> I {
        unsafe {
            let (least, x) = (both!(vreinterpretq_u8_s32(least)), both!(vreinterpretq_u8_s32(x)));
            let mask = [vdupq_n_u8(0x7f); 2];
            let magnitude = both!(vandq_u8(x, mask));
            let least = both!(vminq_u8(least, magnitude));
            both!(vreinterpretq_s32_u8(least))
        }
    }
    #[inline(always)]
    unsafe fn e4m3_small(least: I) -> bool {
        unsafe { vminvq_u8(vminq_u8(vreinterpretq_u8_s32(least[0]), vreinterpretq_u8_s32(least[1]))) <= 7 }
    }
    #[inline(always)]
    unsafe fn and_words(a: I, b: I) -> I {
        unsafe { both!(vandq_s32(a, b)) }
    }

    #[inline(always)]
    unsafe fn zero_words() -> I {
        unsafe { [vdupq_n_s32(0); 2] }
    }
    #[inline(always)]
    unsafe fn add_words(a: I, b: I) -> I {
        unsafe { both!(vaddq_s32(a, b)) }
    }
    #[inline(always)]
    unsafe fn mul_words(a: I, b: I) -> I {
        unsafe { both!(vmulq_s32(a, b)) }
    }
    #[inline(always)]
    unsafe fn load_shorts(p: *const u8) -> I {
        unsafe {
            let shorts = vreinterpretq_u16_u8(vld1q_u8(p));
            let words = [vmovl_u16(vget_low_u16(shorts)), vmovl_high_u16(shorts)];
            both!(vreinterpretq_s32_u32(words))
        }
    }
    #[inline(always)]
    unsafe fn six(low: I, high: I, field: i32) -> I {
        let mut out = low;
        for i in 0..2 {
            unsafe {
                let top = vshrq_n_s32::<26>(shift(high[i], 30 - 2 * field));
                out[i] = vbslq_s32(vdupq_n_u32(15), shift(low[i], -4 * field), top);
            }
        }
        out
    }
    #[inline(always)]
    unsafe fn max_magnitude(acc: I, x: F) -> I {
        let mut out = acc;
        for i in 0..2 {
            unsafe {
                let magnitude = vandq_s32(vreinterpretq_s32_f32(x[i]), vdupq_n_s32(i32::MAX));
                out[i] = vmaxq_s32(acc[i], magnitude);
            }
        }
        out
    }
    #[inline(always)]
    unsafe fn round(x: F) -> I {
        unsafe { both!(vcvtnq_s32_f32(x)) }
    }
    #[inline(always)]
    unsafe fn store_bytes(p: *mut u8, x: I) {
        unsafe {
            let halves = vcombine_s16(vqmovn_s32(x[0]), vqmovn_s32(x[1]));
            vst1_s8(p.cast(), vqmovn_s16(halves))
        }
    }
    #[inline(always)]
    unsafe fn max_lane(x: I) -> i32 {
        unsafe { vmaxvq_s32(vmaxq_s32(x[0], x[1])) }
    }
    #[inline(always)]
    unsafe fn sum_lanes(x: I) -> i32 {
        unsafe { vaddvq_s32(vaddq_s32(x[0], x[1])) }
    }

    #[inline(always)]
    unsafe fn load_bf16(p: *const u8) -> F {
        unsafe {
            let halves = vreinterpretq_u16_u8(vld1q_u8(p));
            let words = [vshll_n_u16::<16>(vget_low_u16(halves)), vshll_high_n_u16::<16>(halves)];
            both!(vreinterpretq_f32_u32(words))
        }
    }
    #[inline(always)]
    unsafe fn store_bf16(p: *mut u16, x: F) {
        let mut halves = [unsafe { vdup_n_u16(0) }; 2];
        for i in 0..2 {
            unsafe {
                let bits = vreinterpretq_u32_f32(x[i]);
                let odd = vandq_u32(vshrq_n_u32::<16>(bits), vdupq_n_u32(1));
                let rounded = vaddq_u32(vaddq_u32(bits, vdupq_n_u32(0x7fff)), odd);
                let quiet = vorrq_u32(bits, vdupq_n_u32(0x0040_0000));
                halves[i] = vshrn_n_u32::<16>(vbslq_u32(vceqq_f32(x[i], x[i]), rounded, quiet));
            }
        }
        unsafe { vst1q_u16(p, vcombine_u16(halves[0], halves[1])) }
    }
    #[inline(always)]
    unsafe fn store_f16(p: *mut u16, x: F) {
        let mut quieted = x;
        for i in 0..2 {
            unsafe {
                let sign = vandq_u32(vreinterpretq_u32_f32(x[i]), vdupq_n_u32(0x8000_0000));
                let quiet = vreinterpretq_f32_u32(vorrq_u32(sign, vdupq_n_u32(0x7fc0_0000)));
                quieted[i] = choose(vceqq_f32(x[i], x[i]), x[i], quiet);
            }
        }
        unsafe {
            let halves = vcvt_high_f16_f32(vcvt_f16_f32(quieted[0]), quieted[1]);
            vst1q_u16(p, vreinterpretq_u16_f16(halves))
        }
    }
    #[inline(always)]
    unsafe fn load_i8(p: *const u8) -> F {
        unsafe {
            let words = vmovl_s8(vld1_s8(p.cast()));
            let words = [vmovl_s16(vget_low_s16(words)), vmovl_high_s16(words)];
            both!(vcvtq_f32_s32(words))
        }
    }
    #[inline(always)]
    unsafe fn add(a: F, b: F) -> F {
        unsafe { both!(vaddq_f32(a, b)) }
    }
    #[inline(always)]
    unsafe fn div(a: F, b: F) -> F {
        unsafe { both!(vdivq_f32(a, b)) }
    }
    #[inline(always)]
    unsafe fn sub(a: F, b: F) -> F {
        unsafe { both!(vsubq_f32(a, b)) }
    }
    #[inline(always)]
    unsafe fn max(a: F, b: F) -> F {
        unsafe { both!(larger(a, b)) }
    }
    #[inline(always)]
    unsafe fn min(a: F, b: F) -> F {
        unsafe { both!(lesser(a, b)) }
    }
    #[inline(always)]
    unsafe fn keep_bits(x: F, mask: u32) -> F {
        unsafe {
            let (x, mask) = (both!(vreinterpretq_u32_f32(x)), [vdupq_n_u32(mask); 2]);
            let kept = both!(vandq_u32(x, mask));
            both!(vreinterpretq_f32_u32(kept))
        }
    }
    #[inline(always)]
    unsafe fn where_less(x: F, bound: F, yes: F, no: F) -> F {
        unsafe {
            let mask = both!(vcltq_f32(x, bound));
            both!(choose(mask, yes, no))
        }
    }
    #[inline(always)]
    unsafe fn pow2(n: I) -> F {
        unsafe {
            let bias = [vdupq_n_s32(127); 2];
            let biased = both!(vaddq_s32(n, bias));
            let bits = both!(vshlq_n_s32::<23>(biased));
            both!(vreinterpretq_f32_s32(bits))
        }
    }
    // In two steps; the first is exact.
    #[inline(always)]
    unsafe fn scale(y: F, n: I) -> F {
        unsafe {
            let half = both!(vshrq_n_s32::<1>(n));
            Self::mul(Self::mul(y, Self::pow2(half)), Self::pow2(both!(vsubq_s32(n, half))))
        }
    }
    #[inline(always)]
    unsafe fn zero_where_less(value: F, x: F, bound: F) -> F {
        unsafe { Self::where_less(x, bound, Self::splat(0.0), value) }
    }
    #[inline(always)]
    unsafe fn keep_lanes(x: F, other: F, from: i32, to: i32) -> F {
        let mut out = other;
        for i in 0..2 {
            unsafe {
                let lane = vaddq_s32(vld1q_s32([0, 1, 2, 3].as_ptr()), vdupq_n_s32(4 * i as i32));
                let (after, before) = (vcgeq_s32(lane, vdupq_n_s32(from)), vcltq_s32(lane, vdupq_n_s32(to)));
                out[i] = choose(vandq_u32(after, before), x[i], other[i]);
            }
        }
        out
    }
    #[inline(always)]
    unsafe fn max_float_lane(x: F) -> f32 {
        unsafe {
            let x = larger(x[0], x[1]);
            let x = larger(x, vextq_f32::<2>(x, x));
            vgetq_lane_f32::<0>(larger(x, vextq_f32::<1>(x, x)))
        }
    }
    #[inline(always)]
    unsafe fn sum_float_lanes(low: F, high: F) -> f32 {
        unsafe {
            let x = both!(vaddq_f32(low, high));
            let x = vaddq_f32(x[0], x[1]);
            let x = vaddq_f32(x, vextq_f32::<2>(x, x));
            vgetq_lane_f32::<0>(x) + vgetq_lane_f32::<1>(x)
        }
    }
}
