//! Linear recurrences: some columns of a matrix, one token.

use llmcc_abi::recur::{RecurArgs, Update};

use crate::isa::Isa;
use crate::map::exp;

/// Lanes of the longest vector.
const LANES: usize = 16;

// Updates as constants of functions.
const PLAIN: u64 = Update::Plain as u64;
const DELTA: u64 = Update::Delta as u64;
const ERASE: u64 = Update::Erase as u64;
const BONUS: u64 = Update::Bonus as u64;
const SCAN: u64 = Update::Scan as u64;

/// See [`RecurArgs`].
///
/// # Safety
/// As [`RecurArgs`]; the processor has the features of `I`.
#[inline(always)]
pub(crate) unsafe fn recur<I: Isa>(a: &RecurArgs) {
    unsafe {
        match a.update {
            Update::Plain => updated::<I, PLAIN>(a),
            Update::Delta => updated::<I, DELTA>(a),
            Update::Erase => updated::<I, ERASE>(a),
            Update::Bonus => updated::<I, BONUS>(a),
            Update::Scan => updated::<I, SCAN>(a),
        }
    }
}

#[inline(always)]
unsafe fn updated<I: Isa, const UPDATE: u64>(a: &RecurArgs) {
    let cols = a.cols as usize;
    let mut at = 0;
    unsafe {
        // A column is a chain, so that several vectors keep the multipliers busy.
        while cols - at >= 4 * I::LANES {
            vectors::<I, 4, UPDATE, false>(a, at, 0);
            at += 4 * I::LANES;
        }
        if cols - at >= 2 * I::LANES {
            vectors::<I, 2, UPDATE, false>(a, at, 0);
            at += 2 * I::LANES;
        }
        if cols - at >= I::LANES {
            vectors::<I, 1, UPDATE, false>(a, at, 0);
            at += I::LANES;
        }
        if at < cols {
            vectors::<I, 1, UPDATE, true>(a, at, cols - at);
        }
    }
}

/// A vector; with `FEW` only its first `n` lanes, through a vector beside it.
#[inline(always)]
unsafe fn load<I: Isa, const FEW: bool>(p: *const f32, n: usize) -> I::F {
    unsafe {
        if !FEW {
            return I::load(p.cast());
        }
        let mut lanes = [0.0f32; LANES];
        core::ptr::copy_nonoverlapping(p, lanes.as_mut_ptr(), n);
        I::load(lanes.as_ptr().cast())
    }
}

/// As [`load`].
#[inline(always)]
unsafe fn store<I: Isa, const FEW: bool>(p: *mut f32, x: I::F, n: usize) {
    unsafe {
        if !FEW {
            return I::store(p, x);
        }
        let mut lanes = [0.0f32; LANES];
        I::store(lanes.as_mut_ptr(), x);
        core::ptr::copy_nonoverlapping(lanes.as_ptr(), p, n);
    }
}

/// `N` vectors of columns from column `at` on; with `FEW` the last `n` columns.
#[inline(always)]
unsafe fn vectors<I: Isa, const N: usize, const UPDATE: u64, const FEW: bool>(a: &RecurArgs, at: usize, n: usize) {
    unsafe {
        let (rows, stride) = (a.rows as usize, a.stride as usize);
        let (state, rates, zero) = (a.state.add(at), a.with.wrapping_add(at), I::splat(0.0));
        let (mut new, mut steps) = ([zero; N], [zero; N]);
        for j in 0..N {
            new[j] = load::<I, FEW>(a.v.add(at + j * I::LANES), n);
            if UPDATE == SCAN {
                steps[j] = load::<I, FEW>(a.decay.add(at + j * I::LANES), n);
            }
        }
        let erased = before::<I, N, UPDATE, FEW>(a, at, n, &mut new);
        let mut y = [zero; N];
        for i in 0..rows {
            let (key, query) = (I::splat(*a.k.add(i)), I::splat(*a.q.add(i)));
            let decay = if UPDATE == SCAN { zero } else { I::splat(*a.decay.add(i * a.decays as usize)) };
            let write = if UPDATE == ERASE { I::splat(*a.write.add(i)) } else { zero };
            let bonus = if UPDATE == BONUS { I::mul(I::splat(*a.with.add(i)), key) } else { zero };
            for j in 0..N {
                let at = i * stride + j * I::LANES;
                let old = load::<I, FEW>(state.add(at), n);
                let mut decay = decay;
                if UPDATE == SCAN {
                    decay = exp::<I>(I::mul(load::<I, FEW>(rates.add(at), n), steps[j]), None);
                }
                let mut s = I::mul(decay, old);
                if UPDATE == ERASE {
                    s = I::fma(write, erased[j], s);
                }
                s = I::fma(key, new[j], s);
                store::<I, FEW>(state.add(at), s, n);
                let read = if UPDATE == BONUS { I::fma(bonus, new[j], old) } else { s };
                y[j] = I::fma(query, read, y[j]);
            }
        }
        for j in 0..N {
            store::<I, FEW>(a.out.add(at + j * I::LANES), y[j], n);
        }
    }
}

/// The additions to the state: `new` (values at first, then less the state's value, times the
/// rate), and the erased part.
#[inline(always)]
unsafe fn before<I: Isa, const N: usize, const UPDATE: u64, const FEW: bool>(
    a: &RecurArgs,
    at: usize,
    n: usize,
    new: &mut [I::F; N],
) -> [I::F; N] {
    unsafe {
        let (rows, stride, zero) = (a.rows as usize, a.stride as usize, I::splat(0.0));
        let (state, mut held) = (a.state.add(at), [zero; N]);
        if UPDATE == DELTA || UPDATE == ERASE {
            let keys = if UPDATE == DELTA { a.k } else { a.with };
            for i in 0..rows {
                let (decay, key) = (I::splat(*a.decay.add(i * a.decays as usize)), I::splat(*keys.add(i)));
                for j in 0..N {
                    let old = load::<I, FEW>(state.add(i * stride + j * I::LANES), n);
                    // Multiplied once more in the end: stores are the scarcest resource.
                    held[j] = I::fma(key, I::mul(decay, old), held[j]);
                }
            }
        }
        for j in 0..N {
            if UPDATE == DELTA {
                new[j] = I::sub(new[j], held[j]);
            }
            if UPDATE == PLAIN || UPDATE == DELTA {
                new[j] = I::mul(I::splat(*a.with), new[j]);
            }
            held[j] = I::sub(zero, held[j]);
        }
        held
    }
}
