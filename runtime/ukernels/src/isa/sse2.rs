//! SSE2, which every x86-64 processor has: a vector is half a block, in two registers.
//!
//! There is no fused multiply-add. f64 arithmetic gives its bits ([`fused`]), so that products
//! equal all other instruction sets'.
//!
//! The files of this folder use each other (`tests/tests/circles.rs`): together they implement `Isa`.

mod fused;
mod half;

use core::arch::x86_64::*;

use super::{Apart, FEW, Isa, Shape};
use fused::fused;
use half::{narrow_f16, widen_f16};

/// SSE2.
#[derive(Clone, Copy)]
pub(crate) struct Sse2;

/// Exponent and mantissa of e4m3 in f32.
const E4M3_BITS: i32 = 0x07f0_0000;

/// 8 f32: lanes 0 to 3, and 4 to 7.
pub(crate) type F = [__m128; 2];
/// 8 i32, or 32 bytes.
type I = [__m128i; 2];

/// Dot products in progress. For each register of weights, the sums of two of a lane's four
/// products: `[lane 0 or 2, lane 1 or 3][first two, last two]`.
#[derive(Clone, Copy)]
pub(crate) struct Dot([[__m128i; 2]; 2]);

/// Applies a function to both registers of its operands.
macro_rules! both {
    ($f:ident($($x:expr),*)) => { [$f($($x[0]),*), $f($($x[1]),*)] };
    ($f:ident::<$n:literal>($x:expr)) => { [$f::<$n>($x[0]), $f::<$n>($x[1])] };
}

/// Bytes 0 to 7 as signed 16-bit numbers.
#[inline(always)]
unsafe fn low_words(x: __m128i) -> __m128i {
    unsafe { _mm_srai_epi16::<8>(_mm_unpacklo_epi8(x, x)) }
}

/// Bytes 8 to 15 as signed 16-bit numbers.
#[inline(always)]
unsafe fn high_words(x: __m128i) -> __m128i {
    unsafe { _mm_srai_epi16::<8>(_mm_unpackhi_epi8(x, x)) }
}

/// Each byte, below 16, replaced by that entry of a table: there is no instruction that does it.
#[inline(never)]
unsafe fn look_up_bytes(x: I, table: &[u8; 16]) -> I {
    let mut bytes = [0u8; 32];
    unsafe {
        _mm_storeu_si128(bytes.as_mut_ptr().cast(), x[0]);
        _mm_storeu_si128(bytes.as_mut_ptr().add(16).cast(), x[1]);
        for byte in &mut bytes {
            *byte = table[(*byte & 15) as usize];
        }
        [_mm_loadu_si128(bytes.as_ptr().cast()), _mm_loadu_si128(bytes.as_ptr().add(16).cast())]
    }
}

/// The entry of a table that the nibble at bit `shift` of each word is the number of.
#[inline(never)]
unsafe fn nibbles_of(x: I, shift: i32, table: &[u32; 16]) -> F {
    let mut words = [0u32; 8];
    unsafe {
        _mm_storeu_si128(words.as_mut_ptr().cast(), x[0]);
        _mm_storeu_si128(words.as_mut_ptr().add(4).cast(), x[1]);
        for word in &mut words {
            *word = table[(*word >> shift & 15) as usize];
        }
        [_mm_loadu_ps(words.as_ptr().cast()), _mm_loadu_ps(words.as_ptr().add(4).cast())]
    }
}

/// `yes` where the mask is set, else `no`.
#[inline(always)]
unsafe fn choose(mask: __m128i, yes: __m128i, no: __m128i) -> __m128i {
    unsafe { _mm_or_si128(_mm_and_si128(mask, yes), _mm_andnot_si128(mask, no)) }
}

/// The same of numbers.
#[inline(always)]
unsafe fn choose_floats(mask: __m128, yes: __m128, no: __m128) -> __m128 {
    unsafe { _mm_or_ps(_mm_and_ps(mask, yes), _mm_andnot_ps(mask, no)) }
}

impl Sse2 {
    /// The field `mask` at bit `shift` of each word, minus `zero`: as in `avx2.rs`, in the mantissa
    /// of a number whose last bits weigh as much.
    #[inline(always)]
    unsafe fn field(x: I, shift: i32, mask: i32, zero: f32) -> F {
        let mut out = [unsafe { _mm_setzero_ps() }; 2];
        for i in 0..2 {
            unsafe {
                let (x, shift) = if shift + (32 - mask.leading_zeros() as i32) > 23 {
                    (_mm_srli_epi32::<16>(x[i]), shift - 16)
                } else {
                    (x[i], shift)
                };
                let exponent = (127 + 23 - shift) << 23;
                let mask = _mm_set1_epi32(mask << shift);
                let number = _mm_castsi128_ps(_mm_or_si128(_mm_and_si128(x, mask), _mm_set1_epi32(exponent)));
                out[i] = _mm_sub_ps(number, _mm_set1_ps(f32::from_bits(exponent as u32) + zero));
            }
        }
        out
    }
}

impl Isa for Sse2 {
    const LANES: usize = 8;
    const FLOAT: Shape = Shape { tokens: 4, vectors: 1, single: 2, few: FEW };
    const HALVES: Shape = Shape { tokens: 4, vectors: 1, single: 2, few: FEW };
    const MANY: usize = 6;
    const BF16: Shape = Shape { tokens: 4, vectors: 1, single: 2, few: FEW };
    const DECODE: Shape = Shape { tokens: 4, vectors: 1, single: 2, few: FEW };
    const INT8: Shape = Shape { tokens: 4, vectors: 1, single: 2, few: FEW };
    const ATTEND_SCORES: usize = 4;
    const ATTEND_WEIGHS: usize = 2;
    const DOT_CHAINS: usize = 1;
    const W8_UNSIGNED: bool = false;

    type F = F;
    type I = I;
    type W8 = I;
    type Dot = Dot;

    #[inline(never)]
    unsafe fn apart<A, P: Apart<A>>(args: A) {
        unsafe { P::run(args) }
    }
    #[inline(always)]
    unsafe fn splat(x: f32) -> F {
        unsafe { [_mm_set1_ps(x); 2] }
    }
    #[inline(always)]
    unsafe fn load(p: *const u8) -> F {
        unsafe { [_mm_loadu_ps(p.cast()), _mm_loadu_ps(p.add(16).cast())] }
    }
    #[inline(always)]
    unsafe fn load_f16(p: *const u8) -> F {
        unsafe {
            let (halves, zero) = (_mm_loadu_si128(p.cast()), _mm_setzero_si128());
            [widen_f16(_mm_unpacklo_epi16(halves, zero)), widen_f16(_mm_unpackhi_epi16(halves, zero))]
        }
    }
    #[inline(always)]
    unsafe fn prefetch(p: *const u8) {
        unsafe { _mm_prefetch::<_MM_HINT_T0>(p.cast()) }
    }
    #[inline(always)]
    unsafe fn prefetch_far(p: *const u8) {
        unsafe { _mm_prefetch::<_MM_HINT_T1>(p.cast()) }
    }
    #[inline(always)]
    unsafe fn store(p: *mut f32, x: F) {
        unsafe {
            _mm_storeu_ps(p, x[0]);
            _mm_storeu_ps(p.add(4), x[1]);
        }
    }
    #[inline(always)]
    unsafe fn mul(a: F, b: F) -> F {
        unsafe { both!(_mm_mul_ps(a, b)) }
    }
    #[inline(always)]
    unsafe fn fma(a: F, b: F, c: F) -> F {
        unsafe { fused(a, b, c) }
    }

    #[inline(always)]
    unsafe fn load_words(p: *const u8) -> I {
        unsafe { [_mm_loadu_si128(p.cast()), _mm_loadu_si128(p.add(16).cast())] }
    }
    #[inline(always)]
    unsafe fn store_words(p: *mut u8, x: I) {
        unsafe {
            _mm_storeu_si128(p.cast(), x[0]);
            _mm_storeu_si128(p.add(16).cast(), x[1]);
        }
    }
    #[inline(always)]
    unsafe fn bf16_low(x: I) -> F {
        unsafe {
            let x = both!(_mm_slli_epi32::<16>(x));
            both!(_mm_castsi128_ps(x))
        }
    }
    #[inline(always)]
    unsafe fn bf16_high(x: I) -> F {
        unsafe {
            let mask = [_mm_set1_epi32(0xffff_0000u32 as i32); 2];
            let x = both!(_mm_and_si128(x, mask));
            both!(_mm_castsi128_ps(x))
        }
    }
    #[inline(always)]
    unsafe fn splat_bits(x: u32) -> I {
        unsafe { [_mm_set1_epi32(x as i32); 2] }
    }
    #[inline(always)]
    unsafe fn to_f32(x: I) -> F {
        unsafe { both!(_mm_cvtepi32_ps(x)) }
    }

    codes_by_field!();

    #[inline(always)]
    unsafe fn nibble_of(x: I, shift: i32, table: &[u32; 16]) -> F {
        unsafe { nibbles_of(x, shift, table) }
    }

    #[inline(always)]
    unsafe fn dot(x: i32) -> Dot {
        unsafe { Dot([[_mm_set_epi32(0, x, 0, x); 2]; 2]) }
    }
    #[inline(always)]
    unsafe fn splat_word(p: *const u8) -> I {
        unsafe { [_mm_set1_epi32(p.cast::<i32>().read_unaligned()); 2] }
    }
    #[inline(always)]
    unsafe fn dot4(acc: Dot, w: I, a: I) -> Dot {
        unsafe { Self::dot8(acc, w, a) }
    }
    #[inline(always)]
    unsafe fn dot4_each(acc: Dot, w: I, a: I) -> Dot {
        let mut out = acc;
        for i in 0..2 {
            unsafe {
                out.0[i][0] = _mm_add_epi32(acc.0[i][0], _mm_madd_epi16(low_words(w[i]), low_words(a[i])));
                out.0[i][1] = _mm_add_epi32(acc.0[i][1], _mm_madd_epi16(high_words(w[i]), high_words(a[i])));
            }
        }
        out
    }
    #[inline(always)]
    unsafe fn prepare_dot8(x: I) -> I {
        unsafe {
            let flip = [_mm_set1_epi8(-128); 2];
            both!(_mm_xor_si128(x, flip))
        }
    }
    #[inline(always)]
    unsafe fn dot8(acc: Dot, w: I, a: I) -> Dot {
        let mut out = acc;
        unsafe {
            // All words of `a` are the same.
            let a = low_words(a[0]);
            for i in 0..2 {
                out.0[i][0] = _mm_add_epi32(acc.0[i][0], _mm_madd_epi16(low_words(w[i]), a));
                out.0[i][1] = _mm_add_epi32(acc.0[i][1], _mm_madd_epi16(high_words(w[i]), a));
            }
        }
        out
    }
    #[inline(always)]
    unsafe fn settle(acc: Dot) -> Dot {
        acc
    }
    #[inline(always)]
    unsafe fn total(acc: Dot) -> I {
        let mut out = [unsafe { _mm_setzero_si128() }; 2];
        for i in 0..2 {
            unsafe {
                let (low, high) = (_mm_castsi128_ps(acc.0[i][0]), _mm_castsi128_ps(acc.0[i][1]));
                let first = _mm_castps_si128(_mm_shuffle_ps::<0b10_00_10_00>(low, high));
                let second = _mm_castps_si128(_mm_shuffle_ps::<0b11_01_11_01>(low, high));
                out[i] = _mm_add_epi32(first, second);
            }
        }
        out
    }

    #[inline(always)]
    unsafe fn field_of_bytes(x: I, right: i32, mask: u8) -> I {
        unsafe {
            let count = [_mm_cvtsi32_si128(right.abs()); 2];
            let moved = if right >= 0 { both!(_mm_srl_epi16(x, count)) } else { both!(_mm_sll_epi16(x, count)) };
            let mask = [_mm_set1_epi8(mask as i8); 2];
            both!(_mm_and_si128(moved, mask))
        }
    }
    #[inline(always)]
    unsafe fn words_right(x: I, bits: i32) -> I {
        unsafe {
            let count = [_mm_cvtsi32_si128(bits); 2];
            both!(_mm_srl_epi16(x, count))
        }
    }
    #[inline(always)]
    unsafe fn words_left(x: I, bits: i32) -> I {
        unsafe {
            let count = [_mm_cvtsi32_si128(bits); 2];
            both!(_mm_sll_epi16(x, count))
        }
    }
    #[inline(always)]
    unsafe fn funnel(x: I, before: I, bits: i32) -> I {
        unsafe {
            let (up, down) = ([_mm_cvtsi32_si128(bits); 2], [_mm_cvtsi32_si128(32 - bits); 2]);
            let (x, before) = (both!(_mm_sll_epi32(x, up)), both!(_mm_srl_epi32(before, down)));
            both!(_mm_or_si128(x, before))
        }
    }
    #[inline(always)]
    unsafe fn xor_words(a: I, b: I) -> I {
        unsafe { both!(_mm_xor_si128(a, b)) }
    }
    #[inline(always)]
    unsafe fn merge(mask: u8, a: I, b: I) -> I {
        unsafe {
            let mask = [_mm_set1_epi8(mask as i8); 2];
            let (a, b) = (both!(_mm_and_si128(mask, a)), both!(_mm_andnot_si128(mask, b)));
            both!(_mm_or_si128(a, b))
        }
    }
    #[inline(always)]
    unsafe fn or_words(a: I, b: I) -> I {
        unsafe { both!(_mm_or_si128(a, b)) }
    }
    #[inline(always)]
    unsafe fn look_up(x: I, table: &[u8; 16]) -> I {
        unsafe { look_up_bytes(x, table) }
    }
    #[inline(always)]
    unsafe fn load_powers(p: *const u8) -> F {
        unsafe {
            let zero = _mm_setzero_si128();
            let words = _mm_unpacklo_epi8(_mm_loadl_epi64(p.cast()), zero);
            let words = [_mm_unpacklo_epi16(words, zero), _mm_unpackhi_epi16(words, zero)];
            // 2⁻¹²⁷ is subnormal.
            let least = [_mm_set1_epi32(1 << 22); 2];
            let none = [_mm_cmpeq_epi32(words[0], zero), _mm_cmpeq_epi32(words[1], zero)];
            let least = both!(_mm_and_si128(none, least));
            let bits = both!(_mm_slli_epi32::<23>(words));
            let bits = both!(_mm_or_si128(bits, least));
            both!(_mm_castsi128_ps(bits))
        }
    }

    #[inline(always)]
    unsafe fn load_e4m3(p: *const u8) -> F {
        unsafe {
            let words = low_words(_mm_loadl_epi64(p.cast()));
            let mut out = [_mm_setzero_ps(); 2];
            for (i, twice) in [_mm_unpacklo_epi16(words, words), _mm_unpackhi_epi16(words, words)].iter().enumerate() {
                // The sign is there more than once; f32 with the exponent of e4m3 is 2¹²⁰ times too small.
                let bits = _mm_and_si128(_mm_srai_epi32::<4>(_mm_slli_epi32::<8>(*twice)), _mm_set1_epi32(E4M3_BITS));
                let bits = _mm_or_si128(bits, _mm_and_si128(*twice, _mm_set1_epi32(i32::MIN)));
                out[i] = _mm_mul_ps(_mm_castsi128_ps(bits), _mm_set1_ps(f32::from_bits((127 + 120) << 23)));
            }
            out
        }
    }
    #[inline(always)]
    unsafe fn e4m3_halves(x: I) -> [I; 2] {
        unsafe {
            let (keep, exponent) = (_mm_set1_epi16(0x87f0u16 as i16), _mm_set1_epi16(0x3800));
            let mut out = [x; 2];
            for i in 0..2 {
                let even = _mm_srai_epi16::<4>(_mm_slli_epi16::<8>(x[i]));
                out[0][i] = _mm_or_si128(_mm_and_si128(even, keep), exponent);
                out[1][i] = _mm_or_si128(_mm_and_si128(_mm_srai_epi16::<4>(x[i]), keep), exponent);
            }
            out
        }
    }
    #[inline(always)]
    unsafe fn e4m3_exact(x: F) -> F {
        unsafe {
            let mut out = x;
            for i in 0..2 {
                let bits = _mm_castps_si128(x[i]);
                let exponent = _mm_and_si128(bits, _mm_set1_epi32(0x0780_0000));
                let small = _mm_castsi128_ps(_mm_cmpeq_epi32(exponent, _mm_setzero_si128()));
                let one = _mm_castsi128_ps(_mm_and_si128(bits, _mm_set1_epi32(0xff80_0000u32 as i32)));
                let rest = _mm_sub_ps(x[i], _mm_and_ps(one, small));
                let twice = _mm_add_ps(rest, _mm_and_ps(rest, small));
                out[i] = _mm_or_ps(twice, _mm_and_ps(x[i], _mm_set1_ps(-0.0)));
            }
            out
        }
    }
    #[inline(always)]
    unsafe fn e4m3_least(least: I, x: I) -> I {
        unsafe {
            let magnitude = _mm_set1_epi8(0x7f);
            [
                _mm_min_epu8(least[0], _mm_and_si128(x[0], magnitude)),
                _mm_min_epu8(least[1], _mm_and_si128(x[1], magnitude)),
            ]
        }
    }
    #[inline(always)]
    unsafe fn e4m3_small(least: I) -> bool {
        unsafe {
            let both = _mm_min_epu8(least[0], least[1]);
            _mm_movemask_epi8(_mm_cmpeq_epi8(_mm_min_epu8(both, _mm_set1_epi8(7)), both)) != 0
        }
    }
    #[inline(always)]
    unsafe fn and_words(a: I, b: I) -> I {
        unsafe { both!(_mm_and_si128(a, b)) }
    }

    #[inline(always)]
    unsafe fn zero_words() -> I {
        unsafe { [_mm_setzero_si128(); 2] }
    }
    #[inline(always)]
    unsafe fn add_words(a: I, b: I) -> I {
        unsafe { both!(_mm_add_epi32(a, b)) }
    }
    #[inline(always)]
    unsafe fn mul_words(a: I, b: I) -> I {
        let mut out = a;
        for i in 0..2 {
            unsafe {
                // Products of the even lanes and of the odd ones; the lower halves of signed products are the same.
                let even = _mm_mul_epu32(a[i], b[i]);
                let odd = _mm_mul_epu32(_mm_srli_epi64::<32>(a[i]), _mm_srli_epi64::<32>(b[i]));
                let (even, odd) = (_mm_shuffle_epi32::<0b10_00>(even), _mm_shuffle_epi32::<0b10_00>(odd));
                out[i] = _mm_unpacklo_epi32(even, odd);
            }
        }
        out
    }
    #[inline(always)]
    unsafe fn load_shorts(p: *const u8) -> I {
        unsafe {
            let (shorts, zero) = (_mm_loadu_si128(p.cast()), _mm_setzero_si128());
            [_mm_unpacklo_epi16(shorts, zero), _mm_unpackhi_epi16(shorts, zero)]
        }
    }
    #[inline(always)]
    unsafe fn six(low: I, high: I, field: i32) -> I {
        unsafe {
            let (down, up) = ([_mm_cvtsi32_si128(4 * field); 2], [_mm_cvtsi32_si128(30 - 2 * field); 2]);
            let (low, top) = (both!(_mm_srl_epi32(low, down)), both!(_mm_sll_epi32(high, up)));
            let (top, mask) = (both!(_mm_srai_epi32::<26>(top)), [_mm_set1_epi32(15); 2]);
            let (low, top) = (both!(_mm_and_si128(low, mask)), both!(_mm_andnot_si128(mask, top)));
            both!(_mm_or_si128(low, top))
        }
    }
    #[inline(always)]
    unsafe fn max_magnitude(acc: I, x: F) -> I {
        let mut out = acc;
        for i in 0..2 {
            unsafe {
                let magnitude = _mm_and_si128(_mm_castps_si128(x[i]), _mm_set1_epi32(i32::MAX));
                out[i] = choose(_mm_cmpgt_epi32(magnitude, acc[i]), magnitude, acc[i]);
            }
        }
        out
    }
    // The rounding mode is to nearest even.
    #[inline(always)]
    unsafe fn round(x: F) -> I {
        unsafe { both!(_mm_cvtps_epi32(x)) }
    }
    #[inline(always)]
    unsafe fn store_bytes(p: *mut u8, x: I) {
        unsafe {
            let words = _mm_packs_epi32(x[0], x[1]);
            _mm_storel_epi64(p.cast(), _mm_packs_epi16(words, words))
        }
    }
    #[inline(always)]
    unsafe fn max_lane(x: I) -> i32 {
        unsafe {
            let larger = |a, b| choose(_mm_cmpgt_epi32(a, b), a, b);
            let x = larger(x[0], x[1]);
            let x = larger(x, _mm_shuffle_epi32::<0b01_00_11_10>(x));
            _mm_cvtsi128_si32(larger(x, _mm_shuffle_epi32::<0b10_11_00_01>(x)))
        }
    }
    #[inline(always)]
    unsafe fn sum_lanes(x: I) -> i32 {
        unsafe {
            let x = _mm_add_epi32(x[0], x[1]);
            let x = _mm_add_epi32(x, _mm_shuffle_epi32::<0b01_00_11_10>(x));
            _mm_cvtsi128_si32(_mm_add_epi32(x, _mm_shuffle_epi32::<0b10_11_00_01>(x)))
        }
    }

    #[inline(always)]
    unsafe fn load_bf16(p: *const u8) -> F {
        unsafe {
            let (halves, zero) = (_mm_loadu_si128(p.cast()), _mm_setzero_si128());
            [_mm_castsi128_ps(_mm_unpacklo_epi16(zero, halves)), _mm_castsi128_ps(_mm_unpackhi_epi16(zero, halves))]
        }
    }
    #[inline(always)]
    unsafe fn store_bf16(p: *mut u16, x: F) {
        let mut halves = [unsafe { _mm_setzero_si128() }; 2];
        for i in 0..2 {
            unsafe {
                let bits = _mm_castps_si128(x[i]);
                let odd = _mm_and_si128(_mm_srli_epi32::<16>(bits), _mm_set1_epi32(1));
                let rounded = _mm_add_epi32(_mm_add_epi32(bits, _mm_set1_epi32(0x7fff)), odd);
                let quiet = _mm_or_si128(bits, _mm_set1_epi32(0x0040_0000));
                let nan = _mm_castps_si128(_mm_cmpunord_ps(x[i], x[i]));
                // As signed numbers they pass the packing, which saturates.
                halves[i] = _mm_srai_epi32::<16>(choose(nan, quiet, rounded));
            }
        }
        unsafe { _mm_storeu_si128(p.cast(), _mm_packs_epi32(halves[0], halves[1])) }
    }
    #[inline(always)]
    unsafe fn store_f16(p: *mut u16, x: F) {
        unsafe {
            // As signed numbers they pass the packing, which saturates.
            let halves = x.map(|x| _mm_srai_epi32::<16>(_mm_slli_epi32::<16>(narrow_f16(x))));
            _mm_storeu_si128(p.cast(), _mm_packs_epi32(halves[0], halves[1]))
        }
    }
    #[inline(always)]
    unsafe fn load_i8(p: *const u8) -> F {
        unsafe {
            let words = low_words(_mm_loadl_epi64(p.cast()));
            let low = _mm_srai_epi32::<16>(_mm_unpacklo_epi16(words, words));
            let high = _mm_srai_epi32::<16>(_mm_unpackhi_epi16(words, words));
            [_mm_cvtepi32_ps(low), _mm_cvtepi32_ps(high)]
        }
    }
    #[inline(always)]
    unsafe fn add(a: F, b: F) -> F {
        unsafe { both!(_mm_add_ps(a, b)) }
    }
    #[inline(always)]
    unsafe fn div(a: F, b: F) -> F {
        unsafe { both!(_mm_div_ps(a, b)) }
    }
    #[inline(always)]
    unsafe fn sub(a: F, b: F) -> F {
        unsafe { both!(_mm_sub_ps(a, b)) }
    }
    #[inline(always)]
    unsafe fn max(a: F, b: F) -> F {
        unsafe { both!(_mm_max_ps(a, b)) }
    }
    #[inline(always)]
    unsafe fn min(a: F, b: F) -> F {
        unsafe { both!(_mm_min_ps(a, b)) }
    }
    #[inline(always)]
    unsafe fn keep_bits(x: F, mask: u32) -> F {
        unsafe {
            let mask = Self::splat(f32::from_bits(mask));
            both!(_mm_and_ps(x, mask))
        }
    }
    #[inline(always)]
    unsafe fn where_less(x: F, bound: F, yes: F, no: F) -> F {
        unsafe {
            let mask = both!(_mm_cmplt_ps(x, bound));
            both!(choose_floats(mask, yes, no))
        }
    }
    #[inline(always)]
    unsafe fn pow2(n: I) -> F {
        unsafe {
            let bias = [_mm_set1_epi32(127); 2];
            let biased = both!(_mm_add_epi32(n, bias));
            let bits = both!(_mm_slli_epi32::<23>(biased));
            both!(_mm_castsi128_ps(bits))
        }
    }
    // In two steps; the first is exact.
    #[inline(always)]
    unsafe fn scale(y: F, n: I) -> F {
        unsafe {
            let half = both!(_mm_srai_epi32::<1>(n));
            Self::mul(Self::mul(y, Self::pow2(half)), Self::pow2(both!(_mm_sub_epi32(n, half))))
        }
    }
    #[inline(always)]
    unsafe fn zero_where_less(value: F, x: F, bound: F) -> F {
        unsafe {
            let mask = both!(_mm_cmplt_ps(x, bound));
            both!(_mm_andnot_ps(mask, value))
        }
    }
    #[inline(always)]
    unsafe fn keep_lanes(x: F, other: F, from: i32, to: i32) -> F {
        let mut out = other;
        for i in 0..2 {
            unsafe {
                let lane = _mm_add_epi32(_mm_setr_epi32(0, 1, 2, 3), _mm_set1_epi32(4 * i as i32));
                let after = _mm_cmpgt_epi32(lane, _mm_set1_epi32(from - 1));
                let before = _mm_cmpgt_epi32(_mm_set1_epi32(to), lane);
                out[i] = choose_floats(_mm_castsi128_ps(_mm_and_si128(after, before)), x[i], other[i]);
            }
        }
        out
    }
    #[inline(always)]
    unsafe fn max_float_lane(x: F) -> f32 {
        unsafe {
            let x = _mm_max_ps(x[0], x[1]);
            let x = _mm_max_ps(x, _mm_movehl_ps(x, x));
            _mm_cvtss_f32(_mm_max_ss(x, _mm_shuffle_ps::<1>(x, x)))
        }
    }
    #[inline(always)]
    unsafe fn sum_float_lanes(low: F, high: F) -> f32 {
        unsafe {
            let x = both!(_mm_add_ps(low, high));
            let x = _mm_add_ps(x[0], x[1]);
            let x = _mm_add_ps(x, _mm_movehl_ps(x, x));
            _mm_cvtss_f32(_mm_add_ss(x, _mm_shuffle_ps::<1>(x, x)))
        }
    }
}
