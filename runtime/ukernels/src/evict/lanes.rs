//! Inner loops over vectors of an instruction set.

use core::marker::PhantomData;

use llmcc_abi::evict::EVICT_PLACES;

use crate::attend::exp;
use crate::isa::Isa;

/// The loops that a token's attention takes its time in. Chains of additions are as in
/// [`EvictArgs`](llmcc_abi::evict::EvictArgs).
pub(crate) trait Lanes {
    /// The scores of a block of 16 places.
    ///
    /// # Safety
    /// `q` has `d` numbers, `keys` `[d][16]`, `out` 16; the processor has the features.
    unsafe fn scores(q: *const f32, keys: *const f32, d: usize, scale: f32, out: *mut f32);

    /// `e^(x − most)` of `n` numbers, whole blocks, in their place; returns the sum.
    ///
    /// # Safety
    /// `x` has `n` numbers; the processor has the features.
    unsafe fn soften(x: *mut f32, n: usize, most: f32) -> f32;

    /// Multiplies `n` numbers, whole blocks.
    ///
    /// # Safety
    /// `x` has `n` numbers; the processor has the features.
    unsafe fn scale(x: *mut f32, n: usize, by: f32);

    /// The sum of values `[n][d]` by their weights, of places whose mark is not 0: `places` are weights, marks and `n`.
    ///
    /// # Safety
    /// Weights and marks have `n` numbers, `out` `d`; the processor has the features.
    unsafe fn weigh(places: (*const f32, *const f32, usize), values: *const f32, d: usize, out: *mut f32);

    /// The square of the distance of two values.
    ///
    /// # Safety
    /// Both have `d` numbers; the processor has the features.
    unsafe fn distance(a: *const f32, b: *const f32, d: usize) -> f32;
}

/// Adds 16 chains in halves.
pub(crate) fn halved(mut sums: [f32; EVICT_PLACES]) -> f32 {
    let mut half = EVICT_PLACES / 2;
    while half > 0 {
        for i in 0..half {
            sums[i] += sums[i + half];
        }
        half /= 2;
    }
    sums[0]
}

/// Vectors of an instruction set.
pub(crate) struct Vectors<I>(PhantomData<I>);

impl<I: Isa> Lanes for Vectors<I> {
    #[inline(always)]
    unsafe fn scores(q: *const f32, keys: *const f32, d: usize, scale: f32, out: *mut f32) {
        unsafe {
            // As many vectors as the shortest ones need.
            let mut sums = [I::splat(0.0); 4];
            for i in 0..d {
                let query = I::splat(q.add(i).read());
                for j in 0..EVICT_PLACES / I::LANES {
                    let key = I::load(keys.add(i * EVICT_PLACES + j * I::LANES).cast());
                    sums[j] = I::fma(key, query, sums[j]);
                }
            }
            for j in 0..EVICT_PLACES / I::LANES {
                I::store(out.add(j * I::LANES), I::mul(sums[j], I::splat(scale)));
            }
        }
    }

    #[inline(always)]
    unsafe fn soften(x: *mut f32, n: usize, most: f32) -> f32 {
        unsafe {
            let (mut sums, most) = ([I::splat(0.0); 4], I::splat(most));
            for first in (0..n).step_by(EVICT_PLACES) {
                for j in 0..EVICT_PLACES / I::LANES {
                    let at = x.add(first + j * I::LANES);
                    let e = exp::<I>(I::sub(I::load(at.cast()), most));
                    I::store(at, e);
                    sums[j] = I::add(sums[j], e);
                }
            }
            let mut lanes = [0.0; EVICT_PLACES];
            for j in 0..EVICT_PLACES / I::LANES {
                I::store(lanes.as_mut_ptr().add(j * I::LANES), sums[j]);
            }
            halved(lanes)
        }
    }

    #[inline(always)]
    unsafe fn scale(x: *mut f32, n: usize, by: f32) {
        unsafe {
            for at in (0..n).step_by(I::LANES) {
                let x = x.add(at);
                I::store(x, I::mul(I::load(x.cast()), I::splat(by)));
            }
        }
    }

    #[inline(always)]
    unsafe fn weigh(places: (*const f32, *const f32, usize), values: *const f32, d: usize, out: *mut f32) {
        unsafe {
            let mut at = 0;
            while d - at >= 4 * I::LANES {
                columns::<I, 4>(places, values.add(at), d, out.add(at));
                at += 4 * I::LANES;
            }
            while d - at >= I::LANES {
                columns::<I, 1>(places, values.add(at), d, out.add(at));
                at += I::LANES;
            }
            if at < d {
                rest(places, values.add(at), (d, d - at), out.add(at));
            }
        }
    }

    #[inline(always)]
    unsafe fn distance(a: *const f32, b: *const f32, d: usize) -> f32 {
        unsafe {
            let mut sums = [I::splat(0.0); 4];
            for first in (0..d).step_by(EVICT_PLACES) {
                let count = EVICT_PLACES.min(d - first);
                let mut both = [[0.0f32; EVICT_PLACES]; 2];
                for (to, from) in both.iter_mut().zip([a, b]) {
                    core::ptr::copy_nonoverlapping(from.add(first), to.as_mut_ptr(), count);
                }
                for j in 0..EVICT_PLACES / I::LANES {
                    let [a, b] = [0, 1].map(|i: usize| both[i].as_ptr().add(j * I::LANES));
                    let less = I::sub(I::load(a.cast()), I::load(b.cast()));
                    sums[j] = I::fma(less, less, sums[j]);
                }
            }
            let mut lanes = [0.0; EVICT_PLACES];
            for j in 0..EVICT_PLACES / I::LANES {
                I::store(lanes.as_mut_ptr().add(j * I::LANES), sums[j]);
            }
            halved(lanes)
        }
    }
}

/// `N` vectors of columns of the sum of values, rows of `stride`.
#[inline(always)]
unsafe fn columns<I: Isa, const N: usize>(
    (weights, seen, n): (*const f32, *const f32, usize),
    values: *const f32,
    stride: usize,
    out: *mut f32,
) {
    unsafe {
        let mut sums = [I::splat(0.0); N];
        for place in 0..n {
            if seen.add(place).read() == 0.0 {
                continue;
            }
            let weight = I::splat(weights.add(place).read());
            for j in 0..N {
                let value = I::load(values.add(place * stride + j * I::LANES).cast());
                sums[j] = I::fma(weight, value, sums[j]);
            }
        }
        for j in 0..N {
            I::store(out.add(j * I::LANES), sums[j]);
        }
    }
}

/// The last columns, fewer than a vector.
#[inline(always)]
unsafe fn rest(
    (weights, seen, n): (*const f32, *const f32, usize),
    values: *const f32,
    (stride, columns): (usize, usize),
    out: *mut f32,
) {
    unsafe {
        for column in 0..columns {
            let mut sum = 0.0;
            for place in (0..n).filter(|place| seen.add(*place).read() != 0.0) {
                sum = libm::fmaf(weights.add(place).read(), values.add(place * stride + column).read(), sum);
            }
            out.add(column).write(sum);
        }
    }
}
