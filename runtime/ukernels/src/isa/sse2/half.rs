//! f16, which these instructions do not know.

use core::arch::x86_64::*;

use super::choose;

/// Four f16 in the low halves of words, widened.
#[inline(always)]
pub(super) unsafe fn widen_f16(h: __m128i) -> __m128 {
    unsafe {
        let magnitude = _mm_and_si128(h, _mm_set1_epi32(0x7fff));
        let sign = _mm_slli_epi32::<16>(_mm_xor_si128(h, magnitude));
        let bits = _mm_slli_epi32::<13>(magnitude);
        // The exponent is 112 too small once the fields are in place; multiplying corrects it, also
        // for subnormals.
        let finite = _mm_mul_ps(_mm_castsi128_ps(bits), _mm_set1_ps(f32::from_bits((112 + 127) << 23)));
        let special = _mm_or_si128(bits, _mm_set1_epi32(0x7f80_0000));
        let is_special = _mm_cmpgt_epi32(magnitude, _mm_set1_epi32(0x7bff));
        let value = choose(is_special, special, _mm_castps_si128(finite));
        _mm_castsi128_ps(_mm_or_si128(value, sign))
    }
}

/// Four f16 in the low halves of words, as `reference.rs` has them.
#[inline(always)]
pub(super) unsafe fn narrow_f16(x: __m128) -> __m128i {
    unsafe {
        let bits = _mm_castps_si128(x);
        let magnitude = _mm_and_si128(bits, _mm_set1_epi32(0x7fff_ffff));
        let odd = _mm_and_si128(_mm_srli_epi32::<13>(magnitude), _mm_set1_epi32(1));
        let rebias = _mm_set1_epi32(0x0fff - (112 << 23));
        let normal = _mm_srli_epi32::<13>(_mm_add_epi32(_mm_add_epi32(magnitude, rebias), odd));
        let half = _mm_set1_ps(0.5);
        let shifted = _mm_castps_si128(_mm_add_ps(_mm_castsi128_ps(magnitude), half));
        let subnormal = _mm_sub_epi32(shifted, _mm_castps_si128(half));
        let h = choose(_mm_cmplt_epi32(magnitude, _mm_set1_epi32(0x3880_0000)), subnormal, normal);
        let h = choose(_mm_cmpgt_epi32(magnitude, _mm_set1_epi32(0x477f_ffff)), _mm_set1_epi32(0x7c00), h);
        let h = choose(_mm_cmpgt_epi32(magnitude, _mm_set1_epi32(0x7f80_0000)), _mm_set1_epi32(0x7e00), h);
        _mm_or_si128(h, _mm_and_si128(_mm_srli_epi32::<16>(bits), _mm_set1_epi32(0x8000)))
    }
}
