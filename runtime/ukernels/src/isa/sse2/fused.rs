//! Multiply-add rounded once, of f64 arithmetic.

use core::arch::x86_64::*;

use super::F;

/// Lanes 0 and 1, then 2 and 3, as f64.
#[inline(always)]
unsafe fn widen(x: __m128) -> [__m128d; 2] {
    unsafe { [_mm_cvtps_pd(x), _mm_cvtps_pd(_mm_movehl_ps(x, x))] }
}

/// f64 numbers rounded to f32.
#[inline(always)]
unsafe fn narrow(x: [__m128d; 2]) -> __m128 {
    unsafe { _mm_movelh_ps(_mm_cvtpd_ps(x[0]), _mm_cvtpd_ps(x[1])) }
}

/// `a · b + c`, rounded once.
///
/// The product of two f32 is exact in f64. Their sum with `c` is rounded to f64 and then to f32,
/// which differs from rounding once only if the f64 lies in the middle between two f32: the bits
/// that f32 lacks are then `1000…`, or the result is subnormal (fewer bits yet). Those are rare,
/// and take [`in_the_middle`].
///
/// A call: copies of its sixty instructions in every loop would make every runtime larger, for
/// processors of before 2013.
#[inline(never)]
pub(super) unsafe fn fused(a: F, b: F, c: F) -> F {
    unsafe {
        let (a, b, c) = ([widen(a[0]), widen(a[1])], [widen(b[0]), widen(b[1])], [widen(c[0]), widen(c[1])]);
        let mut product = [[_mm_setzero_pd(); 2]; 2];
        let mut sum = product;
        let mut doubtful = _mm_setzero_si128();
        for i in 0..2 {
            for j in 0..2 {
                product[i][j] = _mm_mul_pd(a[i][j], b[i][j]);
                sum[i][j] = _mm_add_pd(product[i][j], c[i][j]);
                // The low word: is it 0x10000000, of 29 bits? The high word: is it above 0 and
                // below that of 2^-126? Both as one signed comparison of a difference.
                let bits = _mm_and_si128(_mm_castpd_si128(sum[i][j]), _mm_set1_epi64x(0x7fff_ffff_1fff_ffff));
                let from = _mm_add_epi32(bits, _mm_set1_epi64x(0x7fff_ffff_7000_0000));
                let bound = _mm_set1_epi64x(0xb80f_ffff_8000_0001_u64 as i64);
                doubtful = _mm_or_si128(doubtful, _mm_cmpgt_epi32(bound, from));
            }
        }
        if _mm_movemask_epi8(doubtful) != 0 {
            for i in 0..2 {
                for j in 0..2 {
                    in_the_middle(&product[i][j], &c[i][j], &mut sum[i][j]);
                }
            }
        }
        [narrow(sum[0]), narrow(sum[1])]
    }
}

/// Makes the rounded sum of two f64 such that rounding it to f32 is rounding the exact sum: of the
/// two numbers next to that the one with an odd last bit ("round to odd": Boldo and Melquiond,
/// Emulation of FMA and correctly rounded sums, 2008).
#[cold]
#[inline(never)]
unsafe fn in_the_middle(a: &__m128d, b: &__m128d, sum: &mut __m128d) {
    unsafe {
        let (a, b, s) = (*a, *b, *sum);
        // The rounding error, exactly (Knuth's TwoSum).
        let of_b = _mm_sub_pd(s, a);
        let rest = _mm_add_pd(_mm_sub_pd(a, _mm_sub_pd(s, of_b)), _mm_sub_pd(b, of_b));
        let zero = _mm_setzero_pd();
        // Neither of NaN.
        let (below, above) = (_mm_cmplt_pd(rest, zero), _mm_cmpgt_pd(rest, zero));
        let inexact = _mm_castpd_si128(_mm_or_pd(below, above));
        // Where the exact sum is nearer to zero, the number before.
        let inwards = _mm_castpd_si128(_mm_xor_pd(below, _mm_cmplt_pd(s, zero)));
        let truncated = _mm_add_epi64(_mm_castpd_si128(s), _mm_and_si128(inwards, inexact));
        *sum = _mm_castsi128_pd(_mm_or_si128(truncated, _mm_srli_epi64::<63>(inexact)));
    }
}
