//! AVX-512 with VNNI, and with BF16 where the processor has it: a vector is a whole 16-row block.

use core::arch::x86_64::*;

use super::{Apart, FEW, Isa, Shape};

/// AVX-512 F/BW/VL/DQ and VNNI; `DOT_BF16`: also BF16, VBMI and VBMI2.
#[derive(Clone, Copy)]
pub(crate) struct Avx512<const DOT_BF16: bool>;

/// [`Isa::apart`] with the features of every processor of this level.
#[inline(never)]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,avx2,fma,f16c")]
unsafe fn plain<A, P: Apart<A>>(args: A) {
    unsafe { P::run(args) }
}

/// [`Isa::apart`] with the features of the processors that have the BF16 dot product.
#[inline(never)]
#[target_feature(
    enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,avx512bf16,avx512vbmi,avx512vbmi2,avx2,fma,f16c"
)]
unsafe fn with_bf16<A, P: Apart<A>>(args: A) {
    unsafe { P::run(args) }
}

impl<const DOT_BF16: bool> Isa for Avx512<DOT_BF16> {
    const LANES: usize = 16;
    const FLOAT: Shape = Shape { tokens: 4, vectors: 2, single: 4, few: FEW };
    const HALVES: Shape = Shape { tokens: 8, vectors: 2, single: 4, few: FEW };
    const MANY: usize = 12;
    const LARGE_TABLES: bool = DOT_BF16;
    const BF16: Shape =
        Shape { tokens: if DOT_BF16 { 12 } else { 8 }, vectors: 2, single: if DOT_BF16 { 1 } else { 4 }, few: FEW };
    const DECODE: Shape = Shape { tokens: 4, vectors: 2, single: 4, few: FEW };
    const INT8: Shape = Shape { tokens: 6, vectors: 2, single: 1, few: 8 };
    const ATTEND_SCORES: usize = 24;
    const ATTEND_WEIGHS: usize = 6;
    const DOT_CHAINS: usize = 4;
    const W8_UNSIGNED: bool = true;

    type F = __m512;
    type I = __m512i;
    type W8 = __m512i;
    type Dot = __m512i;

    #[inline(always)]
    unsafe fn apart<A, P: Apart<A>>(args: A) {
        unsafe { if const { DOT_BF16 } { with_bf16::<A, P>(args) } else { plain::<A, P>(args) } }
    }
    #[inline(always)]
    unsafe fn splat(x: f32) -> __m512 {
        unsafe { _mm512_set1_ps(x) }
    }
    #[inline(always)]
    unsafe fn load(p: *const u8) -> __m512 {
        unsafe { _mm512_loadu_ps(p.cast()) }
    }
    #[inline(always)]
    unsafe fn load_f16(p: *const u8) -> __m512 {
        unsafe { _mm512_cvtph_ps(_mm256_loadu_si256(p.cast())) }
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
    unsafe fn store(p: *mut f32, x: __m512) {
        unsafe { _mm512_storeu_ps(p, x) }
    }
    #[inline(always)]
    unsafe fn mul(a: __m512, b: __m512) -> __m512 {
        unsafe { _mm512_mul_ps(a, b) }
    }
    #[inline(always)]
    unsafe fn fma(a: __m512, b: __m512, c: __m512) -> __m512 {
        unsafe { _mm512_fmadd_ps(a, b, c) }
    }

    #[inline(always)]
    unsafe fn load_words(p: *const u8) -> __m512i {
        unsafe { _mm512_loadu_si512(p.cast()) }
    }
    #[inline(always)]
    unsafe fn store_words(p: *mut u8, x: __m512i) {
        unsafe { _mm512_storeu_si512(p.cast(), x) }
    }
    #[inline(always)]
    unsafe fn bf16_low(x: __m512i) -> __m512 {
        unsafe { _mm512_castsi512_ps(_mm512_slli_epi32::<16>(x)) }
    }
    #[inline(always)]
    unsafe fn bf16_high(x: __m512i) -> __m512 {
        unsafe { _mm512_castsi512_ps(_mm512_and_si512(x, _mm512_set1_epi32(0xffff_0000u32 as i32))) }
    }
    // Measured on Zen 4: the instruction adds the product of the high halves first, each addition
    // rounded once, as `Isa::dot_bf16` says.
    #[inline(always)]
    unsafe fn dot_bf16(acc: __m512, w: __m512i, a: __m512i) -> __m512 {
        unsafe {
            if const { DOT_BF16 } {
                return _mm512_dpbf16_ps(
                    acc,
                    core::mem::transmute::<__m512i, __m512bh>(w),
                    core::mem::transmute::<__m512i, __m512bh>(a),
                );
            }
            let high = Self::fma(Self::bf16_high(w), Self::bf16_high(a), acc);
            Self::fma(Self::bf16_low(w), Self::bf16_low(a), high)
        }
    }
    #[inline(always)]
    unsafe fn splat_bits(x: u32) -> __m512i {
        unsafe { _mm512_set1_epi32(x as i32) }
    }
    #[inline(always)]
    unsafe fn to_f32(x: __m512i) -> __m512 {
        unsafe { _mm512_cvtepi32_ps(x) }
    }

    #[inline(always)]
    unsafe fn prepare_bytes(x: __m512i) -> __m512i {
        unsafe { _mm512_xor_si512(x, _mm512_set1_epi8(-128)) }
    }
    #[inline(always)]
    unsafe fn byte_value(x: __m512i, shift: i32) -> __m512 {
        unsafe {
            let top = _mm512_sllv_epi32(x, _mm512_set1_epi32(24 - shift));
            _mm512_cvtepi32_ps(_mm512_srai_epi32::<24>(top))
        }
    }
    #[inline(always)]
    unsafe fn prepare_nibbles(x: __m512i) -> __m512i {
        x
    }
    // The permutation looks at the low four bits of an index only: a lookup replaces masking,
    // subtraction and conversion.
    #[inline(always)]
    unsafe fn nibble_value(x: __m512i, shift: i32) -> __m512 {
        unsafe {
            let table = _mm512_setr_ps(-8., -7., -6., -5., -4., -3., -2., -1., 0., 1., 2., 3., 4., 5., 6., 7.);
            _mm512_permutexvar_ps(_mm512_srlv_epi32(x, _mm512_set1_epi32(shift)), table)
        }
    }
    #[inline(always)]
    unsafe fn nibble_unsigned(x: __m512i, shift: i32) -> __m512 {
        unsafe {
            let table = _mm512_setr_ps(0., 1., 2., 3., 4., 5., 6., 7., 8., 9., 10., 11., 12., 13., 14., 15.);
            _mm512_permutexvar_ps(_mm512_srlv_epi32(x, _mm512_set1_epi32(shift)), table)
        }
    }

    #[inline(always)]
    unsafe fn nibble_of(x: __m512i, shift: i32, table: &[u32; 16]) -> __m512 {
        unsafe {
            let table = _mm512_loadu_ps(table.as_ptr().cast());
            _mm512_permutexvar_ps(_mm512_srlv_epi32(x, _mm512_set1_epi32(shift)), table)
        }
    }

    #[inline(always)]
    unsafe fn dot(x: i32) -> __m512i {
        unsafe { _mm512_set1_epi32(x) }
    }
    #[inline(always)]
    unsafe fn splat_word(p: *const u8) -> __m512i {
        unsafe { _mm512_set1_epi32(p.cast::<i32>().read_unaligned()) }
    }
    #[inline(always)]
    unsafe fn dot4(acc: __m512i, w: __m512i, a: __m512i) -> __m512i {
        unsafe { _mm512_dpbusd_epi32(acc, w, a) }
    }
    #[inline(always)]
    unsafe fn prepare_dot8(x: __m512i) -> __m512i {
        x
    }
    #[inline(always)]
    unsafe fn dot8(acc: __m512i, w: __m512i, a: __m512i) -> __m512i {
        unsafe { _mm512_dpbusd_epi32(acc, w, a) }
    }
    #[inline(always)]
    unsafe fn settle(acc: __m512i) -> __m512i {
        acc
    }
    #[inline(always)]
    unsafe fn total(acc: __m512i) -> __m512i {
        acc
    }

    #[inline(always)]
    unsafe fn field_of_bytes(x: __m512i, right: i32, mask: u8) -> __m512i {
        unsafe {
            let moved = if right >= 0 {
                _mm512_srl_epi16(x, _mm_cvtsi32_si128(right))
            } else {
                _mm512_sll_epi16(x, _mm_cvtsi32_si128(-right))
            };
            _mm512_and_si512(moved, _mm512_set1_epi8(mask as i8))
        }
    }
    #[inline(always)]
    unsafe fn words_right(x: __m512i, bits: i32) -> __m512i {
        unsafe { _mm512_srl_epi16(x, _mm_cvtsi32_si128(bits)) }
    }
    #[inline(always)]
    unsafe fn words_left(x: __m512i, bits: i32) -> __m512i {
        unsafe { _mm512_sll_epi16(x, _mm_cvtsi32_si128(bits)) }
    }
    #[inline(always)]
    unsafe fn funnel(x: __m512i, before: __m512i, bits: i32) -> __m512i {
        unsafe {
            if const { DOT_BF16 } {
                return _mm512_shldv_epi32(x, before, _mm512_set1_epi32(bits));
            }
            let up = _mm512_sll_epi32(x, _mm_cvtsi32_si128(bits));
            _mm512_or_si512(up, _mm512_srl_epi32(before, _mm_cvtsi32_si128(32 - bits)))
        }
    }
    #[inline(always)]
    unsafe fn xor_words(a: __m512i, b: __m512i) -> __m512i {
        unsafe { _mm512_xor_si512(a, b) }
    }
    #[inline(always)]
    unsafe fn merge(mask: u8, a: __m512i, b: __m512i) -> __m512i {
        // `mask ? a : b`
        unsafe { _mm512_ternarylogic_epi32::<0xca>(_mm512_set1_epi8(mask as i8), a, b) }
    }
    #[inline(always)]
    unsafe fn look_up_64(x: __m512i, table: &[u8; 64]) -> __m512i {
        unsafe {
            if const { DOT_BF16 } { _mm512_permutexvar_epi8(x, _mm512_loadu_si512(table.as_ptr().cast())) } else { x }
        }
    }
    #[inline(always)]
    unsafe fn or_words(a: __m512i, b: __m512i) -> __m512i {
        unsafe { _mm512_or_si512(a, b) }
    }
    #[inline(always)]
    unsafe fn look_up(x: __m512i, table: &[u8; 16]) -> __m512i {
        unsafe { _mm512_shuffle_epi8(_mm512_broadcast_i32x4(_mm_loadu_si128(table.as_ptr().cast())), x) }
    }
    #[inline(always)]
    unsafe fn pick(p: *const u8, at: __m512i) -> __m512i {
        unsafe {
            let eight = _mm512_set1_epi64(p.cast::<i64>().read_unaligned());
            _mm512_shuffle_epi8(eight, _mm512_or_si512(at, _mm512_set1_epi32(0x0404_0000)))
        }
    }
    #[inline(always)]
    unsafe fn load_powers(p: *const u8) -> __m512 {
        unsafe {
            // 2⁻¹²⁷ is subnormal.
            let bits = _mm512_slli_epi32::<23>(_mm512_cvtepu8_epi32(_mm_loadu_si128(p.cast())));
            _mm512_castsi512_ps(_mm512_max_epi32(bits, _mm512_set1_epi32(1 << 22)))
        }
    }

    #[inline(always)]
    unsafe fn load_e4m3(p: *const u8) -> __m512 {
        unsafe {
            // The sign is there twice; f16 with the exponent of e4m3 is 2⁸ times too small.
            let twice = _mm256_slli_epi16::<7>(_mm256_cvtepi8_epi16(_mm_loadu_si128(p.cast())));
            let halves = _mm256_and_si256(twice, _mm256_set1_epi16(0xbf80u16 as i16));
            _mm512_mul_ps(_mm512_cvtph_ps(halves), _mm512_set1_ps(256.0))
        }
    }
    #[inline(always)]
    unsafe fn e4m3_halves(x: __m512i) -> [__m512i; 2] {
        unsafe {
            let (keep, exponent) = (_mm512_set1_epi16(0x87f0u16 as i16), _mm512_set1_epi16(0x3800));
            let even = _mm512_srai_epi16::<4>(_mm512_slli_epi16::<8>(x));
            let odd = _mm512_srai_epi16::<4>(x);
            // `a & b | c`
            let both = |x| _mm512_ternarylogic_epi32::<0xea>(x, keep, exponent);
            [both(even), both(odd)]
        }
    }
    #[inline(always)]
    unsafe fn e4m3_exact(x: __m512) -> __m512 {
        unsafe {
            let bits = _mm512_castps_si512(x);
            let small = _mm512_testn_epi32_mask(bits, _mm512_set1_epi32(0x0780_0000));
            let one = _mm512_castsi512_ps(_mm512_and_si512(bits, _mm512_set1_epi32(0xff80_0000u32 as i32)));
            let rest = _mm512_mask_sub_ps(x, small, x, one);
            let twice = _mm512_castps_si512(_mm512_mask_add_ps(rest, small, rest, rest));
            _mm512_castsi512_ps(_mm512_ternarylogic_epi32::<0xea>(bits, _mm512_set1_epi32(i32::MIN), twice))
        }
    }
    #[inline(always)]
    unsafe fn e4m3_least(least: __m512i, x: __m512i) -> __m512i {
        unsafe { _mm512_min_epu8(least, _mm512_and_si512(x, _mm512_set1_epi8(0x7f))) }
    }
    #[inline(always)]
    unsafe fn e4m3_small(least: __m512i) -> bool {
        unsafe { _mm512_cmplt_epu8_mask(least, _mm512_set1_epi8(8)) != 0 }
    }
    #[inline(always)]
    unsafe fn and_words(a: __m512i, b: __m512i) -> __m512i {
        unsafe { _mm512_and_si512(a, b) }
    }

    #[inline(always)]
    unsafe fn zero_words() -> __m512i {
        unsafe { _mm512_setzero_si512() }
    }
    #[inline(always)]
    unsafe fn add_words(a: __m512i, b: __m512i) -> __m512i {
        unsafe { _mm512_add_epi32(a, b) }
    }
    #[inline(always)]
    unsafe fn mul_words(a: __m512i, b: __m512i) -> __m512i {
        unsafe { _mm512_mullo_epi32(a, b) }
    }
    #[inline(always)]
    unsafe fn load_shorts(p: *const u8) -> __m512i {
        unsafe { _mm512_cvtepu16_epi32(_mm256_loadu_si256(p.cast())) }
    }
    #[inline(always)]
    unsafe fn six(low: __m512i, high: __m512i, field: i32) -> __m512i {
        unsafe {
            let low = _mm512_srl_epi32(low, _mm_cvtsi32_si128(4 * field));
            let top = _mm512_sll_epi32(high, _mm_cvtsi32_si128(30 - 2 * field));
            // `a ? b : c`
            _mm512_ternarylogic_epi32::<0xca>(_mm512_set1_epi32(15), low, _mm512_srai_epi32::<26>(top))
        }
    }
    #[inline(always)]
    unsafe fn max_magnitude(acc: __m512i, x: __m512) -> __m512i {
        unsafe { _mm512_max_epi32(acc, _mm512_castps_si512(_mm512_abs_ps(x))) }
    }
    #[inline(always)]
    unsafe fn round(x: __m512) -> __m512i {
        unsafe { _mm512_cvt_roundps_epi32::<{ _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC }>(x) }
    }
    #[inline(always)]
    unsafe fn store_bytes(p: *mut u8, x: __m512i) {
        unsafe { _mm_storeu_si128(p.cast(), _mm512_cvtepi32_epi8(x)) }
    }
    #[inline(always)]
    unsafe fn max_lane(x: __m512i) -> i32 {
        unsafe { _mm512_reduce_max_epi32(x) }
    }
    #[inline(always)]
    unsafe fn sum_lanes(x: __m512i) -> i32 {
        unsafe { _mm512_reduce_add_epi32(x) }
    }

    #[inline(always)]
    unsafe fn load_bf16(p: *const u8) -> __m512 {
        unsafe { _mm512_castsi512_ps(_mm512_slli_epi32::<16>(_mm512_cvtepu16_epi32(_mm256_loadu_si256(p.cast())))) }
    }
    #[inline(always)]
    unsafe fn store_bf16(p: *mut u16, x: __m512) {
        unsafe {
            let bits = _mm512_castps_si512(x);
            let odd = _mm512_and_si512(_mm512_srli_epi32::<16>(bits), _mm512_set1_epi32(1));
            let rounded = _mm512_add_epi32(_mm512_add_epi32(bits, _mm512_set1_epi32(0x7fff)), odd);
            let nan = _mm512_cmp_ps_mask::<_CMP_UNORD_Q>(x, x);
            let rounded = _mm512_mask_or_epi32(rounded, nan, bits, _mm512_set1_epi32(0x0040_0000));
            _mm256_storeu_si256(p.cast(), _mm512_cvtepi32_epi16(_mm512_srli_epi32::<16>(rounded)))
        }
    }
    #[inline(always)]
    unsafe fn store_f16(p: *mut u16, x: __m512) {
        unsafe {
            let nan = _mm512_cmp_ps_mask::<_CMP_UNORD_Q>(x, x);
            let sign = _mm512_and_si512(_mm512_castps_si512(x), _mm512_set1_epi32(i32::MIN));
            let quiet = _mm512_castsi512_ps(_mm512_or_si512(sign, _mm512_set1_epi32(0x7fc0_0000)));
            let x = _mm512_mask_mov_ps(x, nan, quiet);
            _mm256_storeu_si256(p.cast(), _mm512_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(x))
        }
    }
    #[inline(always)]
    unsafe fn load_i8(p: *const u8) -> __m512 {
        unsafe { _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(p.cast()))) }
    }
    #[inline(always)]
    unsafe fn add(a: __m512, b: __m512) -> __m512 {
        unsafe { _mm512_add_ps(a, b) }
    }
    #[inline(always)]
    unsafe fn div(a: __m512, b: __m512) -> __m512 {
        unsafe { _mm512_div_ps(a, b) }
    }
    #[inline(always)]
    unsafe fn sub(a: __m512, b: __m512) -> __m512 {
        unsafe { _mm512_sub_ps(a, b) }
    }
    #[inline(always)]
    unsafe fn max(a: __m512, b: __m512) -> __m512 {
        unsafe { _mm512_max_ps(a, b) }
    }
    #[inline(always)]
    unsafe fn min(a: __m512, b: __m512) -> __m512 {
        unsafe { _mm512_min_ps(a, b) }
    }
    #[inline(always)]
    unsafe fn keep_bits(x: __m512, mask: u32) -> __m512 {
        unsafe { _mm512_and_ps(x, _mm512_set1_ps(f32::from_bits(mask))) }
    }
    #[inline(always)]
    unsafe fn where_less(x: __m512, bound: __m512, yes: __m512, no: __m512) -> __m512 {
        unsafe { _mm512_mask_mov_ps(no, _mm512_cmp_ps_mask::<_CMP_LT_OQ>(x, bound), yes) }
    }
    #[inline(always)]
    unsafe fn pow2(n: __m512i) -> __m512 {
        unsafe { _mm512_castsi512_ps(_mm512_slli_epi32::<23>(_mm512_add_epi32(n, _mm512_set1_epi32(127)))) }
    }
    #[inline(always)]
    unsafe fn scale(y: __m512, n: __m512i) -> __m512 {
        unsafe { _mm512_scalef_ps(y, _mm512_cvtepi32_ps(n)) }
    }
    #[inline(always)]
    unsafe fn zero_where_less(value: __m512, x: __m512, bound: __m512) -> __m512 {
        unsafe { _mm512_maskz_mov_ps(!_mm512_cmp_ps_mask::<_CMP_LT_OQ>(x, bound), value) }
    }
    #[inline(always)]
    unsafe fn keep_lanes(x: __m512, other: __m512, from: i32, to: i32) -> __m512 {
        let below = |n: i32| (1u32 << n.clamp(0, 16)) - 1;
        unsafe { _mm512_mask_mov_ps(other, (below(to) & !below(from)) as __mmask16, x) }
    }
    #[inline(always)]
    unsafe fn max_float_lane(x: __m512) -> f32 {
        unsafe {
            let x = _mm256_max_ps(_mm512_castps512_ps256(x), _mm512_extractf32x8_ps::<1>(x));
            super::avx2::max_of_8(x)
        }
    }
    #[inline(always)]
    unsafe fn sum_float_lanes(low: __m512, _: __m512) -> f32 {
        unsafe { super::avx2::sum_of_8(_mm256_add_ps(_mm512_castps512_ps256(low), _mm512_extractf32x8_ps::<1>(low))) }
    }
}
