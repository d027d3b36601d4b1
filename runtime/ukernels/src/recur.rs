//! Linear recurrences: some columns of a matrix, one token.

use llmcc_abi::recur::RecurArgs;

use crate::isa::Isa;

/// Lanes of the longest vector.
const LANES: usize = 16;

/// See [`RecurArgs`].
///
/// # Safety
/// As [`RecurArgs`]; the processor has the features of `I`.
#[inline(always)]
pub(crate) unsafe fn recur<I: Isa>(a: &RecurArgs) {
    let cols = a.cols as usize;
    let mut at = 0;
    unsafe {
        // A column is a chain, so that several vectors keep the multipliers busy.
        while cols - at >= 4 * I::LANES {
            vectors::<I, 4>(a, at);
            at += 4 * I::LANES;
        }
        if cols - at >= 2 * I::LANES {
            vectors::<I, 2>(a, at);
            at += 2 * I::LANES;
        }
        if cols - at >= I::LANES {
            vectors::<I, 1>(a, at);
            at += I::LANES;
        }
        if at < cols {
            last::<I>(a, at, cols - at);
        }
    }
}

/// `N` vectors of columns from column `at` on.
#[inline(always)]
unsafe fn vectors<I: Isa, const N: usize>(a: &RecurArgs, at: usize) {
    unsafe {
        let (rows, stride) = (a.rows as usize, a.stride as usize);
        let (state, v, out) = (a.state.add(at), a.v.add(at), a.out.add(at));
        let (decays, zero) = (a.decays as usize, I::splat(0.0));
        let mut new = [zero; N];
        for n in 0..N {
            new[n] = I::load(v.add(n * I::LANES).cast());
        }
        if a.delta != 0 {
            let mut held = [zero; N];
            for i in 0..rows {
                let (row, decay, key) =
                    (state.add(i * stride), I::splat(*a.decay.add(i * decays)), I::splat(*a.k.add(i)));
                for n in 0..N {
                    // Multiplied once more below: stores are what there is least of.
                    held[n] = I::fma(key, I::mul(decay, I::load(row.add(n * I::LANES).cast())), held[n]);
                }
            }
            for n in 0..N {
                new[n] = I::sub(new[n], held[n]);
            }
        }
        let rate = I::splat(*a.rate);
        for n in 0..N {
            new[n] = I::mul(rate, new[n]);
        }
        let mut y = [zero; N];
        for i in 0..rows {
            let (row, decay) = (state.add(i * stride), I::splat(*a.decay.add(i * decays)));
            let (key, query) = (I::splat(*a.k.add(i)), I::splat(*a.q.add(i)));
            for n in 0..N {
                let p = row.add(n * I::LANES);
                let s = I::fma(key, new[n], I::mul(decay, I::load(p.cast())));
                I::store(p, s);
                y[n] = I::fma(query, s, y[n]);
            }
        }
        for n in 0..N {
            I::store(out.add(n * I::LANES), y[n]);
        }
    }
}

/// The last `n` columns, fewer than a vector has, from column `at` on: through vectors beside them.
#[inline(always)]
unsafe fn last<I: Isa>(a: &RecurArgs, at: usize, n: usize) {
    let load = |p: *const f32| {
        let mut lanes = [0.0f32; LANES];
        unsafe {
            core::ptr::copy_nonoverlapping(p, lanes.as_mut_ptr(), n);
            I::load(lanes.as_ptr().cast())
        }
    };
    let store = |p: *mut f32, x: I::F| {
        let mut lanes = [0.0f32; LANES];
        unsafe {
            I::store(lanes.as_mut_ptr(), x);
            core::ptr::copy_nonoverlapping(lanes.as_ptr(), p, n);
        }
    };
    unsafe {
        let (rows, stride, decays) = (a.rows as usize, a.stride as usize, a.decays as usize);
        let state = a.state.add(at);
        let mut new = load(a.v.add(at));
        if a.delta != 0 {
            let mut held = I::splat(0.0);
            for i in 0..rows {
                let s = I::mul(I::splat(*a.decay.add(i * decays)), load(state.add(i * stride)));
                held = I::fma(I::splat(*a.k.add(i)), s, held);
            }
            new = I::sub(new, held);
        }
        new = I::mul(I::splat(*a.rate), new);
        let mut y = I::splat(0.0);
        for i in 0..rows {
            let p = state.add(i * stride);
            let s = I::mul(I::splat(*a.decay.add(i * decays)), load(p));
            let s = I::fma(I::splat(*a.k.add(i)), new, s);
            store(p, s);
            y = I::fma(I::splat(*a.q.add(i)), s, y);
        }
        store(a.out.add(at), y);
    }
}
