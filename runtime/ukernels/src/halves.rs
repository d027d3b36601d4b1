//! Rounding of columns of a row to bf16 and f16: activation rows, keys and values.

use llmcc_abi::HalfKind;

use crate::isa::Isa;

/// Most lanes of a vector.
const LANES: usize = 16;

/// Where the results go, see [`llmcc_abi::RoundHalvesFn`].
pub(crate) struct Runs {
    pub out: *mut u16,
    pub first: usize,
    pub run: usize,
    pub jump: usize,
}

/// Rounds `n` f32 from `x`.
///
/// # Safety
/// As [`llmcc_abi::RoundHalvesFn`]; the processor has the features of `I`.
#[inline(always)]
pub(crate) unsafe fn round<I: Isa>(x: *const f32, n: usize, to: HalfKind, runs: &Runs) {
    let (mut x, mut rest) = (x, n);
    unsafe {
        let (mut out, mut at) = (runs.out.add(runs.first / runs.run * runs.jump), runs.first % runs.run);
        while rest > 0 {
            let count = rest.min(runs.run - at);
            if runs.run == 1 {
                return scatter::<I>(x, rest, to, out, runs.jump);
            }
            adjacent::<I>(x, count, to, out.add(at));
            (x, rest, at) = (x.add(count), rest - count, 0);
            out = out.wrapping_add(runs.jump);
        }
    }
}

/// Rounds a vector.
#[inline(always)]
unsafe fn vector<I: Isa>(x: I::F, to: HalfKind, out: *mut u16) {
    unsafe {
        match to {
            HalfKind::Bf16 => I::store_bf16(out, x),
            HalfKind::F16 => I::store_f16(out, x),
        }
    }
}

/// Rounds the last `n` elements, fewer than a vector has, which are filled up with zeros.
#[inline(always)]
unsafe fn last<I: Isa>(x: *const f32, n: usize, to: HalfKind) -> [u16; LANES] {
    let (mut all, mut halves) = ([0.0f32; LANES], [0u16; LANES]);
    unsafe {
        core::ptr::copy_nonoverlapping(x, all.as_mut_ptr(), n);
        vector::<I>(I::load(all.as_ptr().cast()), to, halves.as_mut_ptr());
    }
    halves
}

/// Results side by side.
#[inline(always)]
unsafe fn adjacent<I: Isa>(x: *const f32, n: usize, to: HalfKind, out: *mut u16) {
    let mut at = 0;
    unsafe {
        while n - at >= I::LANES {
            vector::<I>(I::load(x.add(at).cast()), to, out.add(at));
            at += I::LANES;
        }
        if at < n {
            let halves = last::<I>(x.add(at), n - at, to);
            core::ptr::copy_nonoverlapping(halves.as_ptr(), out.add(at), n - at);
        }
    }
}

/// Results `apart` elements from one another.
#[inline(always)]
unsafe fn scatter<I: Isa>(x: *const f32, n: usize, to: HalfKind, out: *mut u16, apart: usize) {
    let mut at = 0;
    unsafe {
        while n - at >= I::LANES {
            let mut halves = [0u16; LANES];
            vector::<I>(I::load(x.add(at).cast()), to, halves.as_mut_ptr());
            for lane in 0..I::LANES {
                out.add((at + lane) * apart).write(halves[lane]);
            }
            at += I::LANES;
        }
        let halves = last::<I>(x.add(at), n - at, to);
        for (lane, half) in halves.iter().enumerate().take(n - at) {
            out.add((at + lane) * apart).write(*half);
        }
    }
}
