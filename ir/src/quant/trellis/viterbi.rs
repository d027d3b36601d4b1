//! Codes of the least error, by dynamic programming over all states (Viterbi 1967).
//!
//! For each state, the least cost of the codes that lead to it. A step takes some three operations for each state and
//! code before it, and five for each state after it, over vectors of states: [`Lanes`] has them for each instruction
//! set, so that all sums are the same.

use llmcc_abi::encoding::trellis::STATES;
use std::array::from_fn;

/// A column for which a code is wanted.
#[derive(Clone, Copy, Debug)]
pub struct Wanted {
    /// The number, with its scale.
    pub value: f32,
    /// Weight of its squared error; 0 for padding.
    pub weight: f32,
}

/// Codes of columns, `N` for each, whose values (`values` of states) have the least error, from state 0 on; of equal
/// ones the path of lower states. Padding has code 0.
pub(super) fn path<const N: usize>(wanted: &[Wanted], values: &[f32]) -> Vec<u8> {
    #[cfg(target_arch = "x86_64")]
    {
        #[target_feature(enable = "avx512f")]
        fn avx512<const N: usize>(wanted: &[Wanted], values: &[f32]) -> Vec<u8> {
            // SAFETY: this function has the feature.
            unsafe { search::<x86::Avx512, N>(wanted, values) }
        }
        #[target_feature(enable = "avx2")]
        fn avx2<const N: usize>(wanted: &[Wanted], values: &[f32]) -> Vec<u8> {
            // SAFETY: this function has the feature.
            unsafe { search::<x86::Avx2, N>(wanted, values) }
        }
        if is_x86_feature_detected!("avx512f") {
            // SAFETY: the processor has this feature.
            return unsafe { avx512::<N>(wanted, values) };
        }
        if is_x86_feature_detected!("avx2") {
            // SAFETY: the processor has this feature.
            return unsafe { avx2::<N>(wanted, values) };
        }
    }
    // SAFETY: arrays need no instructions of their own.
    unsafe { search::<[f32; 8], N>(wanted, values) }
}

/// A vector of states. Where there is one, the processor has the instructions of its type.
trait Lanes: Copy {
    /// States of a vector: at most 16.
    const COUNT: usize;
    /// Codes of as many states.
    type Codes: Copy;

    /// # Safety
    /// The processor has the instructions of the type.
    unsafe fn load(from: &[f32]) -> Self;
    fn store(self, to: &mut [f32]);
    /// # Safety
    /// The processor has the instructions of the type.
    unsafe fn splat(x: f32) -> Self;
    fn add(self, other: Self) -> Self;
    fn sub(self, other: Self) -> Self;
    fn mul(self, other: Self) -> Self;
    /// The lane of each index.
    fn pick(self, lanes: &[u32; 16]) -> Self;
    /// Code 0.
    fn no_codes(self) -> Self::Codes;
    /// The lesser numbers, and `code` where `other` has them. Of equal ones `self` has them.
    fn least(self, codes: Self::Codes, other: Self, code: usize) -> (Self, Self::Codes);
    fn store_codes(codes: Self::Codes, to: &mut [u8]);
}

/// See [`path`].
///
/// # Safety
/// The processor has the instructions of `V`.
#[inline(always)]
unsafe fn search<V: Lanes, const N: usize>(wanted: &[Wanted], values: &[f32]) -> Vec<u8> {
    let before = STATES / N;
    let mut cost = vec![f32::INFINITY; STATES];
    cost[0] = 0.0;
    let (mut least, mut from) = (vec![0f32; before], vec![0u8; wanted.len() * before]);
    for (w, from) in wanted.iter().zip(from.chunks_mut(before)) {
        // SAFETY: as the caller says; so for all vectors.
        unsafe { join::<V, N>(&cost, &mut least, from) };
        if w.weight == 0.0 {
            for (next, least) in cost.as_chunks_mut::<N>().0.iter_mut().zip(&least) {
                *next = [f32::INFINITY; N];
                next[0] = *least;
            }
        } else {
            // SAFETY: as above.
            unsafe { split::<V, N>(w, &least, values, &mut cost) };
        }
    }
    back::<N>(&cost, &from, wanted.len())
}

/// The least costs of the states that share their lower bits, and so lead to the same ones; and which of them have it.
///
/// # Safety
/// As [`search`].
#[inline(always)]
unsafe fn join<V: Lanes, const N: usize>(cost: &[f32], least: &mut [f32], from: &mut [u8]) {
    let before = STATES / N;
    let each = least.chunks_exact_mut(V::COUNT).zip(from.chunks_exact_mut(V::COUNT));
    for (at, (least, from)) in (0..before).step_by(V::COUNT).zip(each) {
        // (No closures: they would be functions without the instructions.)
        // SAFETY: as the caller says; so for all loads.
        let mut x = unsafe { V::load(&cost[at..]) };
        let mut codes = x.no_codes();
        for code in 1..N {
            // SAFETY: as above.
            let other = unsafe { V::load(&cost[code * before + at..]) };
            (x, codes) = x.least(codes, other, code);
        }
        x.store(least);
        V::store_codes(codes, from);
    }
}

/// The costs of the states after a column, by the least costs before it.
///
/// # Safety
/// As [`search`].
#[inline(always)]
unsafe fn split<V: Lanes, const N: usize>(w: &Wanted, least: &[f32], values: &[f32], cost: &mut [f32]) {
    let spread: [[u32; 16]; N] = from_fn(|part| from_fn(|lane| (part * V::COUNT / N + lane / N) as u32));
    // SAFETY: as the caller says; so for all loads.
    let (x, weight) = unsafe { (V::splat(w.value), V::splat(w.weight)) };
    let each = cost.chunks_exact_mut(V::COUNT * N).zip(values.chunks_exact(V::COUNT * N));
    for ((cost, values), least) in each.zip(least.chunks_exact(V::COUNT)) {
        // SAFETY: as above.
        let least = unsafe { V::load(least) };
        for (part, spread) in spread.iter().enumerate() {
            // SAFETY: as above.
            let d = x.sub(unsafe { V::load(&values[part * V::COUNT..]) });
            let sum = least.pick(spread).add(weight.mul(d).mul(d));
            sum.store(&mut cost[part * V::COUNT..]);
        }
    }
}

/// The codes that lead to the state of the least cost.
fn back<const N: usize>(cost: &[f32], from: &[u8], columns: usize) -> Vec<u8> {
    let before = STATES / N;
    let mut state = (0..STATES).min_by(|a, b| cost[*a].total_cmp(&cost[*b])).unwrap_or(0);
    let mut out = vec![0; columns];
    for (out, from) in out.iter_mut().zip(from.chunks(before)).rev() {
        *out = (state % N) as u8;
        let lower = state / N;
        state = lower + usize::from(from[lower]) * before;
    }
    out
}

impl Lanes for [f32; 8] {
    const COUNT: usize = 8;
    type Codes = [u8; 8];

    #[inline(always)]
    unsafe fn load(from: &[f32]) -> Self {
        from_fn(|i| from[i])
    }
    #[inline(always)]
    fn store(self, to: &mut [f32]) {
        to[..8].copy_from_slice(&self);
    }
    #[inline(always)]
    unsafe fn splat(x: f32) -> Self {
        [x; 8]
    }
    #[inline(always)]
    fn add(self, other: Self) -> Self {
        from_fn(|i| self[i] + other[i])
    }
    #[inline(always)]
    fn sub(self, other: Self) -> Self {
        from_fn(|i| self[i] - other[i])
    }
    #[inline(always)]
    fn mul(self, other: Self) -> Self {
        from_fn(|i| self[i] * other[i])
    }
    #[inline(always)]
    fn pick(self, lanes: &[u32; 16]) -> Self {
        from_fn(|i| self[lanes[i] as usize])
    }
    #[inline(always)]
    fn no_codes(self) -> [u8; 8] {
        [0; 8]
    }
    #[inline(always)]
    fn least(self, codes: [u8; 8], other: Self, code: usize) -> (Self, [u8; 8]) {
        let less: [bool; 8] = from_fn(|i| other[i] < self[i]);
        let codes = from_fn(|i| if less[i] { code as u8 } else { codes[i] });
        (from_fn(|i| if less[i] { other[i] } else { self[i] }), codes)
    }
    #[inline(always)]
    fn store_codes(codes: [u8; 8], to: &mut [u8]) {
        to[..8].copy_from_slice(&codes);
    }
}

/// Vectors of x86-64.
#[cfg(target_arch = "x86_64")]
#[allow(clippy::undocumented_unsafe_blocks, reason = "instructions that the processor has, and slices of their length")]
mod x86 {
    use std::arch::x86_64::*;

    #[derive(Clone, Copy)]
    pub(super) struct Avx512(__m512);

    impl super::Lanes for Avx512 {
        const COUNT: usize = 16;
        type Codes = __m512i;

        #[inline(always)]
        unsafe fn load(from: &[f32]) -> Self {
            Avx512(unsafe { _mm512_loadu_ps(from[..16].as_ptr()) })
        }
        #[inline(always)]
        fn store(self, to: &mut [f32]) {
            unsafe { _mm512_storeu_ps(to[..16].as_mut_ptr(), self.0) }
        }
        #[inline(always)]
        unsafe fn splat(x: f32) -> Self {
            Avx512(unsafe { _mm512_set1_ps(x) })
        }
        #[inline(always)]
        fn add(self, other: Self) -> Self {
            Avx512(unsafe { _mm512_add_ps(self.0, other.0) })
        }
        #[inline(always)]
        fn sub(self, other: Self) -> Self {
            Avx512(unsafe { _mm512_sub_ps(self.0, other.0) })
        }
        #[inline(always)]
        fn mul(self, other: Self) -> Self {
            Avx512(unsafe { _mm512_mul_ps(self.0, other.0) })
        }
        #[inline(always)]
        fn pick(self, lanes: &[u32; 16]) -> Self {
            Avx512(unsafe { _mm512_permutexvar_ps(_mm512_loadu_si512(lanes.as_ptr().cast()), self.0) })
        }
        #[inline(always)]
        fn no_codes(self) -> __m512i {
            unsafe { _mm512_setzero_si512() }
        }
        #[inline(always)]
        fn least(self, codes: __m512i, other: Self, code: usize) -> (Self, __m512i) {
            unsafe {
                let less = _mm512_cmp_ps_mask::<_CMP_LT_OQ>(other.0, self.0);
                let codes = _mm512_mask_mov_epi32(codes, less, _mm512_set1_epi32(code as i32));
                (Avx512(_mm512_min_ps(other.0, self.0)), codes)
            }
        }
        #[inline(always)]
        fn store_codes(codes: __m512i, to: &mut [u8]) {
            unsafe { _mm_storeu_si128(to[..16].as_mut_ptr().cast(), _mm512_cvtepi32_epi8(codes)) }
        }
    }

    #[derive(Clone, Copy)]
    pub(super) struct Avx2(__m256);

    impl super::Lanes for Avx2 {
        const COUNT: usize = 8;
        type Codes = __m256;

        #[inline(always)]
        unsafe fn load(from: &[f32]) -> Self {
            Avx2(unsafe { _mm256_loadu_ps(from[..8].as_ptr()) })
        }
        #[inline(always)]
        fn store(self, to: &mut [f32]) {
            unsafe { _mm256_storeu_ps(to[..8].as_mut_ptr(), self.0) }
        }
        #[inline(always)]
        unsafe fn splat(x: f32) -> Self {
            Avx2(unsafe { _mm256_set1_ps(x) })
        }
        #[inline(always)]
        fn add(self, other: Self) -> Self {
            Avx2(unsafe { _mm256_add_ps(self.0, other.0) })
        }
        #[inline(always)]
        fn sub(self, other: Self) -> Self {
            Avx2(unsafe { _mm256_sub_ps(self.0, other.0) })
        }
        #[inline(always)]
        fn mul(self, other: Self) -> Self {
            Avx2(unsafe { _mm256_mul_ps(self.0, other.0) })
        }
        #[inline(always)]
        fn pick(self, lanes: &[u32; 16]) -> Self {
            Avx2(unsafe { _mm256_permutevar8x32_ps(self.0, _mm256_loadu_si256(lanes.as_ptr().cast())) })
        }
        #[inline(always)]
        fn no_codes(self) -> __m256 {
            unsafe { _mm256_setzero_ps() }
        }
        #[inline(always)]
        fn least(self, codes: __m256, other: Self, code: usize) -> (Self, __m256) {
            unsafe {
                let less = _mm256_cmp_ps::<_CMP_LT_OQ>(other.0, self.0);
                let code = _mm256_castsi256_ps(_mm256_set1_epi32(code as i32));
                (Avx2(_mm256_min_ps(other.0, self.0)), _mm256_blendv_ps(codes, code, less))
            }
        }
        #[inline(always)]
        fn store_codes(codes: __m256, to: &mut [u8]) {
            unsafe {
                let words = _mm256_castps_si256(codes);
                let shorts = _mm_packs_epi32(_mm256_castsi256_si128(words), _mm256_extracti128_si256::<1>(words));
                _mm_storel_epi64(to[..8].as_mut_ptr().cast(), _mm_packus_epi16(shorts, shorts));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::eval::fixture::random;

    /// All instruction sets of this processor find the same codes.
    #[test]
    fn instructions_do_not_matter() {
        let (x, weights) = (random(1, 256), random(2, 256));
        let column = |i: usize| Wanted { value: 3.0 * x[i], weight: if i < 250 { 1.0 + weights[i] } else { 0.0 } };
        let wanted: Vec<Wanted> = (0..256).map(column).collect();
        let values = random(3, STATES);
        // SAFETY: arrays need no instructions of their own.
        let arrays = unsafe { [search::<[f32; 8], 4>(&wanted, &values), search::<[f32; 8], 8>(&wanted, &values)] };
        assert_eq!([path::<4>(&wanted, &values), path::<8>(&wanted, &values)], arrays);
        #[cfg(target_arch = "x86_64")]
        if is_x86_feature_detected!("avx2") {
            #[target_feature(enable = "avx2")]
            fn avx2(wanted: &[Wanted], values: &[f32]) -> [Vec<u8>; 2] {
                // SAFETY: this function has the feature.
                unsafe { [search::<x86::Avx2, 4>(wanted, values), search::<x86::Avx2, 8>(wanted, values)] }
            }
            // SAFETY: the processor has this feature.
            let found = unsafe { avx2(&wanted, &values) };
            assert_eq!(found, arrays);
        }
    }
}
