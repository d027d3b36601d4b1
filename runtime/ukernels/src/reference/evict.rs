//! Inner loops of attention to a cache that drops tokens.

use llmcc_abi::evict::{EVICT_PLACES, EvictArgs};

use super::exp;
use crate::evict::{Lanes, evict_by, halved};

/// One number after the other.
struct Scalar;

impl Lanes for Scalar {
    unsafe fn scores(q: *const f32, keys: *const f32, d: usize, scale: f32, out: *mut f32) {
        unsafe {
            for place in 0..EVICT_PLACES {
                let term = |sum, i: usize| libm::fmaf(keys.add(i * EVICT_PLACES + place).read(), q.add(i).read(), sum);
                out.add(place).write((0..d).fold(0.0, term) * scale);
            }
        }
    }

    unsafe fn soften(x: *mut f32, n: usize, most: f32) -> f32 {
        let mut sums = [0.0; EVICT_PLACES];
        for place in 0..n {
            unsafe {
                let e = exp(x.add(place).read() - most);
                x.add(place).write(e);
                sums[place % EVICT_PLACES] += e;
            }
        }
        halved(sums)
    }

    unsafe fn scale(x: *mut f32, n: usize, by: f32) {
        (0..n).for_each(|i| unsafe { x.add(i).write(x.add(i).read() * by) });
    }

    unsafe fn weigh((weights, seen, n): (*const f32, *const f32, usize), values: *const f32, d: usize, out: *mut f32) {
        unsafe {
            for column in 0..d {
                let term = |sum, place: usize| {
                    libm::fmaf(weights.add(place).read(), values.add(place * d + column).read(), sum)
                };
                out.add(column).write((0..n).filter(|place| seen.add(*place).read() != 0.0).fold(0.0, term));
            }
        }
    }

    unsafe fn distance(a: *const f32, b: *const f32, d: usize) -> f32 {
        let mut sums = [0.0; EVICT_PLACES];
        for i in 0..d {
            let less = unsafe { a.add(i).read() - b.add(i).read() };
            sums[i % EVICT_PLACES] = libm::fmaf(less, less, sums[i % EVICT_PLACES]);
        }
        halved(sums)
    }
}

/// See [`EvictArgs`].
pub(crate) unsafe extern "C" fn evict(a: *const EvictArgs) {
    unsafe { evict_by::<Scalar>(&*a) }
}
