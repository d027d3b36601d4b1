//! AVX2 with FMA and F16C: a vector is half a block.

use core::arch::x86_64::*;

use super::{Apart, FEW, Isa, Shape};

/// AVX2, FMA and F16C.
#[derive(Clone, Copy)]
pub(crate) struct Avx2;

/// Dot products in progress. `maddubs` yields i16 sums of two products; up to 8 of 4-bit codes
/// (8·2·15·128 = 30720) fit before they are widened.
#[derive(Clone, Copy)]
pub(crate) struct Dot {
    wide: __m256i,
    narrow: __m256i,
}

/// Signed 8-bit weights and their magnitudes: `maddubs` wants one unsigned operand, and `|w| ·
/// (sign(w)·a)` cannot saturate (2·128·127 < 2^15). An activation of −128 has no negative: where
/// there are some, these are the even bytes and the odd ones as numbers of 16 bits.
#[derive(Clone, Copy)]
pub(crate) struct Signed8 {
    value: __m256i,
    magnitude: __m256i,
}

impl Avx2 {
    /// The field `mask` at bit `shift` of each word, minus `zero`. In the mantissa of a number
    /// whose last bits weigh as much it is converted without a conversion, and mostly without a
    /// shift: this many instructions compete for the ports of multiply-adds.
    #[inline(always)]
    unsafe fn field(x: __m256i, shift: i32, mask: i32, zero: f32) -> __m256 {
        unsafe {
            let (x, shift) = if shift + (32 - mask.leading_zeros() as i32) > 23 {
                (_mm256_srli_epi32::<16>(x), shift - 16)
            } else {
                (x, shift)
            };
            let exponent = (127 + 23 - shift) << 23;
            let mask = _mm256_set1_epi32(mask << shift);
            let number = _mm256_castsi256_ps(_mm256_or_si256(_mm256_and_si256(x, mask), _mm256_set1_epi32(exponent)));
            _mm256_sub_ps(number, _mm256_set1_ps(f32::from_bits(exponent as u32) + zero))
        }
    }
}

/// The even bytes and the odd ones, as numbers of 16 bits.
#[inline(always)]
unsafe fn halves(x: __m256i) -> [__m256i; 2] {
    unsafe { [_mm256_srai_epi16::<8>(_mm256_slli_epi16::<8>(x)), _mm256_srai_epi16::<8>(x)] }
}

impl Isa for Avx2 {
    const LANES: usize = 8;
    const FLOAT: Shape = Shape { tokens: 4, vectors: 2, single: 4, few: FEW };
    const HALVES: Shape = Shape { tokens: 4, vectors: 2, single: 4, few: FEW };
    const MANY: usize = 6;
    const BF16: Shape = Shape { tokens: 4, vectors: 2, single: 4, few: FEW };
    const DECODE: Shape = Shape { tokens: 4, vectors: 2, single: 4, few: FEW };
    const INT8: Shape = Shape { tokens: 4, vectors: 1, single: 2, few: FEW };
    const ATTEND_SCORES: usize = 4;
    const ATTEND_WEIGHS: usize = 2;
    const DOT_CHAINS: usize = 1;
    const W8_UNSIGNED: bool = false;
    const DOT8_LEAST: bool = false;

    type F = __m256;
    type I = __m256i;
    type W8 = Signed8;
    type Dot = Dot;

    #[inline(never)]
    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn apart<A, P: Apart<A>>(args: A) {
        unsafe { P::run(args) }
    }
    #[inline(always)]
    unsafe fn splat(x: f32) -> __m256 {
        unsafe { _mm256_set1_ps(x) }
    }
    #[inline(always)]
    unsafe fn load(p: *const u8) -> __m256 {
        unsafe { _mm256_loadu_ps(p.cast()) }
    }
    #[inline(always)]
    unsafe fn load_f16(p: *const u8) -> __m256 {
        unsafe { _mm256_cvtph_ps(_mm_loadu_si128(p.cast())) }
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
    unsafe fn store(p: *mut f32, x: __m256) {
        unsafe { _mm256_storeu_ps(p, x) }
    }
    #[inline(always)]
    unsafe fn mul(a: __m256, b: __m256) -> __m256 {
        unsafe { _mm256_mul_ps(a, b) }
    }
    #[inline(always)]
    unsafe fn fma(a: __m256, b: __m256, c: __m256) -> __m256 {
        unsafe { _mm256_fmadd_ps(a, b, c) }
    }

    #[inline(always)]
    unsafe fn load_words(p: *const u8) -> __m256i {
        unsafe { _mm256_loadu_si256(p.cast()) }
    }
    #[inline(always)]
    unsafe fn store_words(p: *mut u8, x: __m256i) {
        unsafe { _mm256_storeu_si256(p.cast(), x) }
    }
    #[inline(always)]
    unsafe fn bf16_low(x: __m256i) -> __m256 {
        unsafe { _mm256_castsi256_ps(_mm256_slli_epi32::<16>(x)) }
    }
    #[inline(always)]
    unsafe fn bf16_high(x: __m256i) -> __m256 {
        unsafe { _mm256_castsi256_ps(_mm256_and_si256(x, _mm256_set1_epi32(0xffff_0000u32 as i32))) }
    }
    #[inline(always)]
    unsafe fn splat_bits(x: u32) -> __m256i {
        unsafe { _mm256_set1_epi32(x as i32) }
    }
    #[inline(always)]
    unsafe fn to_f32(x: __m256i) -> __m256 {
        unsafe { _mm256_cvtepi32_ps(x) }
    }

    codes_by_field!();

    #[inline(always)]
    unsafe fn nibble_of(x: __m256i, shift: i32, table: &[u32; 16]) -> __m256 {
        unsafe {
            let halves = [_mm256_loadu_ps(table.as_ptr().cast()), _mm256_loadu_ps(table.as_ptr().add(8).cast())];
            let number = _mm256_srlv_epi32(x, _mm256_set1_epi32(shift));
            let low = _mm256_permutevar8x32_ps(halves[0], number);
            let high = _mm256_permutevar8x32_ps(halves[1], number);
            // The fourth bit of the number, as a sign.
            let upper = _mm256_sllv_epi32(x, _mm256_set1_epi32(28 - shift));
            _mm256_blendv_ps(low, high, _mm256_castsi256_ps(upper))
        }
    }

    #[inline(always)]
    unsafe fn dot(x: i32) -> Dot {
        unsafe { Dot { wide: _mm256_set1_epi32(x), narrow: _mm256_setzero_si256() } }
    }
    #[inline(always)]
    unsafe fn splat_word(p: *const u8) -> __m256i {
        unsafe { _mm256_set1_epi32(p.cast::<i32>().read_unaligned()) }
    }
    #[inline(always)]
    unsafe fn dot4(acc: Dot, w: __m256i, a: __m256i) -> Dot {
        unsafe { Dot { wide: acc.wide, narrow: _mm256_add_epi16(acc.narrow, _mm256_maddubs_epi16(w, a)) } }
    }
    #[inline(always)]
    unsafe fn prepare_dot8(x: __m256i) -> Signed8 {
        unsafe {
            let value = _mm256_xor_si256(x, _mm256_set1_epi8(-128));
            Signed8 { value, magnitude: _mm256_abs_epi8(value) }
        }
    }
    #[inline(always)]
    unsafe fn dot8(acc: Dot, w: Signed8, a: __m256i) -> Dot {
        unsafe {
            let pairs = _mm256_maddubs_epi16(w.magnitude, _mm256_sign_epi8(a, w.value));
            let quads = _mm256_madd_epi16(pairs, _mm256_set1_epi16(1));
            Dot { wide: _mm256_add_epi32(acc.wide, quads), narrow: acc.narrow }
        }
    }
    #[inline(always)]
    unsafe fn prepare_dot8_any(x: __m256i) -> Signed8 {
        unsafe {
            let [even, odd] = halves(_mm256_xor_si256(x, _mm256_set1_epi8(-128)));
            Signed8 { value: even, magnitude: odd }
        }
    }
    #[inline(always)]
    unsafe fn dot8_any(acc: Dot, w: Signed8, a: __m256i) -> Dot {
        unsafe {
            let [even, odd] = halves(a);
            let (even, odd) = (_mm256_madd_epi16(w.value, even), _mm256_madd_epi16(w.magnitude, odd));
            Dot { wide: _mm256_add_epi32(acc.wide, _mm256_add_epi32(even, odd)), narrow: acc.narrow }
        }
    }
    #[inline(always)]
    unsafe fn settle(acc: Dot) -> Dot {
        unsafe {
            let wide = _mm256_madd_epi16(acc.narrow, _mm256_set1_epi16(1));
            Dot { wide: _mm256_add_epi32(acc.wide, wide), narrow: _mm256_setzero_si256() }
        }
    }
    #[inline(always)]
    unsafe fn total(acc: Dot) -> __m256i {
        acc.wide
    }

    #[inline(always)]
    unsafe fn field_of_bytes(x: __m256i, right: i32, mask: u8) -> __m256i {
        unsafe {
            let moved = if right >= 0 {
                _mm256_srl_epi16(x, _mm_cvtsi32_si128(right))
            } else {
                _mm256_sll_epi16(x, _mm_cvtsi32_si128(-right))
            };
            _mm256_and_si256(moved, _mm256_set1_epi8(mask as i8))
        }
    }
    #[inline(always)]
    unsafe fn words_right(x: __m256i, bits: i32) -> __m256i {
        unsafe { _mm256_srl_epi16(x, _mm_cvtsi32_si128(bits)) }
    }
    #[inline(always)]
    unsafe fn words_left(x: __m256i, bits: i32) -> __m256i {
        unsafe { _mm256_sll_epi16(x, _mm_cvtsi32_si128(bits)) }
    }
    #[inline(always)]
    unsafe fn funnel(x: __m256i, before: __m256i, bits: i32) -> __m256i {
        unsafe {
            let up = _mm256_sll_epi32(x, _mm_cvtsi32_si128(bits));
            _mm256_or_si256(up, _mm256_srl_epi32(before, _mm_cvtsi32_si128(32 - bits)))
        }
    }
    #[inline(always)]
    unsafe fn xor_words(a: __m256i, b: __m256i) -> __m256i {
        unsafe { _mm256_xor_si256(a, b) }
    }
    #[inline(always)]
    unsafe fn merge(mask: u8, a: __m256i, b: __m256i) -> __m256i {
        unsafe {
            let mask = _mm256_set1_epi8(mask as i8);
            _mm256_or_si256(_mm256_and_si256(mask, a), _mm256_andnot_si256(mask, b))
        }
    }
    #[inline(always)]
    unsafe fn or_words(a: __m256i, b: __m256i) -> __m256i {
        unsafe { _mm256_or_si256(a, b) }
    }
    #[inline(always)]
    unsafe fn look_up(x: __m256i, table: &[u8; 16]) -> __m256i {
        unsafe { _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(_mm_loadu_si128(table.as_ptr().cast())), x) }
    }
    #[inline(always)]
    unsafe fn pick(p: *const u8, at: __m256i) -> __m256i {
        unsafe {
            let eight = _mm256_set1_epi64x(p.cast::<i64>().read_unaligned());
            _mm256_shuffle_epi8(eight, _mm256_or_si256(at, _mm256_set1_epi32(0x0404_0000)))
        }
    }
    #[inline(always)]
    unsafe fn load_powers(p: *const u8) -> __m256 {
        unsafe {
            // 2⁻¹²⁷ is subnormal.
            let bits = _mm256_slli_epi32::<23>(_mm256_cvtepu8_epi32(_mm_loadl_epi64(p.cast())));
            _mm256_castsi256_ps(_mm256_max_epi32(bits, _mm256_set1_epi32(1 << 22)))
        }
    }

    #[inline(always)]
    unsafe fn load_e4m3(p: *const u8) -> __m256 {
        unsafe {
            // The sign is there twice; f16 with the exponent of e4m3 is 2⁸ times too small.
            let twice = _mm_slli_epi16::<7>(_mm_cvtepi8_epi16(_mm_loadl_epi64(p.cast())));
            let halves = _mm_and_si128(twice, _mm_set1_epi16(0xbf80u16 as i16));
            _mm256_mul_ps(_mm256_cvtph_ps(halves), _mm256_set1_ps(256.0))
        }
    }
    #[inline(always)]
    unsafe fn e4m3_halves(x: __m256i) -> [__m256i; 2] {
        unsafe {
            let (keep, exponent) = (_mm256_set1_epi16(0x87f0u16 as i16), _mm256_set1_epi16(0x3800));
            let even = _mm256_srai_epi16::<4>(_mm256_slli_epi16::<8>(x));
            let odd = _mm256_srai_epi16::<4>(x);
            let both = |x| _mm256_or_si256(_mm256_and_si256(x, keep), exponent);
            [both(even), both(odd)]
        }
    }
    #[inline(always)]
    unsafe fn e4m3_exact(x: __m256) -> __m256 {
        unsafe {
            let bits = _mm256_castps_si256(x);
            let exponent = _mm256_and_si256(bits, _mm256_set1_epi32(0x0780_0000));
            let small = _mm256_castsi256_ps(_mm256_cmpeq_epi32(exponent, _mm256_setzero_si256()));
            let one = _mm256_and_si256(bits, _mm256_set1_epi32(0xff80_0000u32 as i32));
            let rest = _mm256_sub_ps(x, _mm256_and_ps(_mm256_castsi256_ps(one), small));
            let twice = _mm256_add_ps(rest, _mm256_and_ps(rest, small));
            _mm256_or_ps(twice, _mm256_and_ps(x, _mm256_set1_ps(-0.0)))
        }
    }
    #[inline(always)]
    unsafe fn e4m3_least(least: __m256i, x: __m256i) -> __m256i {
        unsafe { _mm256_min_epu8(least, _mm256_and_si256(x, _mm256_set1_epi8(0x7f))) }
    }
    #[inline(always)]
    unsafe fn e4m3_small(least: __m256i) -> bool {
        unsafe { _mm256_movemask_epi8(_mm256_cmpeq_epi8(_mm256_min_epu8(least, _mm256_set1_epi8(7)), least)) != 0 }
    }
    #[inline(always)]
    unsafe fn and_words(a: __m256i, b: __m256i) -> __m256i {
        unsafe { _mm256_and_si256(a, b) }
    }

    #[inline(always)]
    unsafe fn zero_words() -> __m256i {
        unsafe { _mm256_setzero_si256() }
    }
    #[inline(always)]
    unsafe fn add_words(a: __m256i, b: __m256i) -> __m256i {
        unsafe { _mm256_add_epi32(a, b) }
    }
    #[inline(always)]
    unsafe fn mul_words(a: __m256i, b: __m256i) -> __m256i {
        unsafe { _mm256_mullo_epi32(a, b) }
    }
    #[inline(always)]
    unsafe fn load_shorts(p: *const u8) -> __m256i {
        unsafe { _mm256_cvtepu16_epi32(_mm_loadu_si128(p.cast())) }
    }
    #[inline(always)]
    unsafe fn six(low: __m256i, high: __m256i, field: i32) -> __m256i {
        unsafe {
            let low = _mm256_srl_epi32(low, _mm_cvtsi32_si128(4 * field));
            let top = _mm256_sll_epi32(high, _mm_cvtsi32_si128(30 - 2 * field));
            let mask = _mm256_set1_epi32(15);
            _mm256_or_si256(_mm256_and_si256(low, mask), _mm256_andnot_si256(mask, _mm256_srai_epi32::<26>(top)))
        }
    }
    #[inline(always)]
    unsafe fn max_magnitude(acc: __m256i, x: __m256) -> __m256i {
        unsafe {
            let magnitude = _mm256_and_si256(_mm256_castps_si256(x), _mm256_set1_epi32(i32::MAX));
            _mm256_max_epi32(acc, magnitude)
        }
    }
    #[inline(always)]
    unsafe fn round(x: __m256) -> __m256i {
        unsafe { _mm256_cvttps_epi32(_mm256_round_ps::<{ _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC }>(x)) }
    }
    #[inline(always)]
    unsafe fn store_bytes(p: *mut u8, x: __m256i) {
        unsafe {
            let words = _mm_packs_epi32(_mm256_castsi256_si128(x), _mm256_extracti128_si256::<1>(x));
            _mm_storel_epi64(p.cast(), _mm_packs_epi16(words, words))
        }
    }
    #[inline(always)]
    unsafe fn max_lane(x: __m256i) -> i32 {
        unsafe {
            let x = _mm_max_epi32(_mm256_castsi256_si128(x), _mm256_extracti128_si256::<1>(x));
            let x = _mm_max_epi32(x, _mm_shuffle_epi32::<0b01_00_11_10>(x));
            _mm_cvtsi128_si32(_mm_max_epi32(x, _mm_shuffle_epi32::<0b10_11_00_01>(x)))
        }
    }
    #[inline(always)]
    unsafe fn sum_lanes(x: __m256i) -> i32 {
        unsafe {
            let x = _mm_add_epi32(_mm256_castsi256_si128(x), _mm256_extracti128_si256::<1>(x));
            let x = _mm_add_epi32(x, _mm_shuffle_epi32::<0b01_00_11_10>(x));
            _mm_cvtsi128_si32(_mm_add_epi32(x, _mm_shuffle_epi32::<0b10_11_00_01>(x)))
        }
    }

    #[inline(always)]
    unsafe fn load_bf16(p: *const u8) -> __m256 {
        unsafe { _mm256_castsi256_ps(_mm256_slli_epi32::<16>(_mm256_cvtepu16_epi32(_mm_loadu_si128(p.cast())))) }
    }
    #[inline(always)]
    unsafe fn store_bf16(p: *mut u16, x: __m256) {
        unsafe {
            let bits = _mm256_castps_si256(x);
            let odd = _mm256_and_si256(_mm256_srli_epi32::<16>(bits), _mm256_set1_epi32(1));
            let rounded = _mm256_add_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32(0x7fff)), odd);
            let quiet = _mm256_or_si256(bits, _mm256_set1_epi32(0x0040_0000));
            let nan = _mm256_castps_si256(_mm256_cmp_ps::<_CMP_UNORD_Q>(x, x));
            let halves = _mm256_srli_epi32::<16>(_mm256_blendv_epi8(rounded, quiet, nan));
            _mm_storeu_si128(
                p.cast(),
                _mm_packus_epi32(_mm256_castsi256_si128(halves), _mm256_extracti128_si256::<1>(halves)),
            )
        }
    }
    #[inline(always)]
    unsafe fn store_f16(p: *mut u16, x: __m256) {
        unsafe {
            let nan = _mm256_cmp_ps::<_CMP_UNORD_Q>(x, x);
            let sign = _mm256_and_ps(x, _mm256_set1_ps(-0.0));
            let quiet = _mm256_or_ps(sign, _mm256_set1_ps(f32::from_bits(0x7fc0_0000)));
            let x = _mm256_blendv_ps(x, quiet, nan);
            _mm_storeu_si128(p.cast(), _mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(x))
        }
    }
    #[inline(always)]
    unsafe fn load_i8(p: *const u8) -> __m256 {
        unsafe { _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64(p.cast()))) }
    }
    #[inline(always)]
    unsafe fn add(a: __m256, b: __m256) -> __m256 {
        unsafe { _mm256_add_ps(a, b) }
    }
    #[inline(always)]
    unsafe fn div(a: __m256, b: __m256) -> __m256 {
        unsafe { _mm256_div_ps(a, b) }
    }
    #[inline(always)]
    unsafe fn sub(a: __m256, b: __m256) -> __m256 {
        unsafe { _mm256_sub_ps(a, b) }
    }
    #[inline(always)]
    unsafe fn max(a: __m256, b: __m256) -> __m256 {
        unsafe { _mm256_max_ps(a, b) }
    }
    #[inline(always)]
    unsafe fn min(a: __m256, b: __m256) -> __m256 {
        unsafe { _mm256_min_ps(a, b) }
    }
    #[inline(always)]
    unsafe fn keep_bits(x: __m256, mask: u32) -> __m256 {
        unsafe { _mm256_and_ps(x, _mm256_set1_ps(f32::from_bits(mask))) }
    }
    #[inline(always)]
    unsafe fn where_less(x: __m256, bound: __m256, yes: __m256, no: __m256) -> __m256 {
        unsafe { _mm256_blendv_ps(no, yes, _mm256_cmp_ps::<_CMP_LT_OQ>(x, bound)) }
    }
    #[inline(always)]
    unsafe fn pow2(n: __m256i) -> __m256 {
        unsafe { _mm256_castsi256_ps(_mm256_slli_epi32::<23>(_mm256_add_epi32(n, _mm256_set1_epi32(127)))) }
    }
    // In two steps; the first is exact.
    #[inline(always)]
    unsafe fn scale(y: __m256, n: __m256i) -> __m256 {
        unsafe {
            let half = _mm256_srai_epi32::<1>(n);
            _mm256_mul_ps(_mm256_mul_ps(y, Self::pow2(half)), Self::pow2(_mm256_sub_epi32(n, half)))
        }
    }
    #[inline(always)]
    unsafe fn zero_where_less(value: __m256, x: __m256, bound: __m256) -> __m256 {
        unsafe { _mm256_andnot_ps(_mm256_cmp_ps::<_CMP_LT_OQ>(x, bound), value) }
    }
    #[inline(always)]
    unsafe fn keep_lanes(x: __m256, other: __m256, from: i32, to: i32) -> __m256 {
        unsafe {
            let lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
            let after = _mm256_cmpgt_epi32(lane, _mm256_set1_epi32(from - 1));
            let before = _mm256_cmpgt_epi32(_mm256_set1_epi32(to), lane);
            _mm256_blendv_ps(other, x, _mm256_castsi256_ps(_mm256_and_si256(after, before)))
        }
    }
    #[inline(always)]
    unsafe fn max_float_lane(x: __m256) -> f32 {
        unsafe { max_of_8(x) }
    }
    #[inline(always)]
    unsafe fn sum_float_lanes(low: __m256, high: __m256) -> f32 {
        unsafe { sum_of_8(_mm256_add_ps(low, high)) }
    }
}

/// Largest of 8 lanes.
#[inline(always)]
pub(super) unsafe fn max_of_8(x: __m256) -> f32 {
    unsafe {
        let x = _mm_max_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps::<1>(x));
        let x = _mm_max_ps(x, _mm_movehl_ps(x, x));
        _mm_cvtss_f32(_mm_max_ss(x, _mm_shuffle_ps::<1>(x, x)))
    }
}

/// Sum of 8 lanes, halves onto halves.
#[inline(always)]
pub(super) unsafe fn sum_of_8(x: __m256) -> f32 {
    unsafe {
        let x = _mm_add_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps::<1>(x));
        let x = _mm_add_ps(x, _mm_movehl_ps(x, x));
        _mm_cvtss_f32(_mm_add_ss(x, _mm_shuffle_ps::<1>(x, x)))
    }
}
