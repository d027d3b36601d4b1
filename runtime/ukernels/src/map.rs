//! Elementwise functions of rows, on the results of a product: vectors of generated code have only
//! four lanes.

mod math;

pub(crate) use math::exp;

use llmcc_abi::math::{Binary, Unary};

use crate::isa::Isa;

/// Elements that one function after the other is applied to: so few that they stay in the
/// first-level cache, so many that finding the functions costs nothing.
const CHUNK: usize = 256;

/// Lanes of the longest vector.
const LANES: usize = 16;

/// See [`llmcc_abi::MapFn`].
///
/// # Safety
/// As [`llmcc_abi::MapFn`]; the processor has the features of `I`.
#[inline(always)]
pub(crate) unsafe fn map<I: Isa>(unary: Unary, binary: Binary, n: usize, a: *const f32, b: *const f32, out: *mut f32) {
    let mut last = ([0.0f32; LANES], [0.0f32; LANES]);
    let (mut a, mut b, mut out, mut rest) = (a, b, out, n);
    unsafe {
        while rest > 0 {
            let mut count = CHUNK.min(rest / I::LANES * I::LANES);
            let mut to = out;
            if count == 0 {
                // The last elements, filled up to a vector.
                core::ptr::copy_nonoverlapping(a, last.0.as_mut_ptr(), rest);
                if !matches!(binary, Binary::First) {
                    core::ptr::copy_nonoverlapping(b, last.1.as_mut_ptr(), rest);
                }
                to = last.0.as_mut_ptr();
                (a, b, count) = (to, last.1.as_ptr(), I::LANES);
            }
            chunk::<I>(unary, binary, count, a, b, to);
            if rest < count {
                core::ptr::copy_nonoverlapping(to, out, rest);
                return;
            }
            // Without a second operand its address means nothing.
            (a, b, out, rest) = (a.add(count), b.wrapping_add(count), out.add(count), rest - count);
        }
    }
}

/// A function of each vector of `n` elements (whole vectors) from `x`, stored at `out`.
macro_rules! each {
    ($I:ident, $n:ident, $x:ident, $out:expr, |$v:ident, $at:ident| $f:expr) => {{
        let out = $out;
        let mut $at = 0;
        while $at < $n {
            let $v = $I::load($x.add($at).cast());
            $I::store(out.add($at), $f);
            $at += $I::LANES;
        }
    }};
}

/// At most [`CHUNK`] elements, whole vectors.
#[inline(always)]
unsafe fn chunk<I: Isa>(unary: Unary, binary: Binary, n: usize, a: *const f32, b: *const f32, out: *mut f32) {
    let mut results = core::mem::MaybeUninit::<[f32; CHUNK]>::uninit();
    let first = matches!(binary, Binary::First);
    unsafe {
        // `out` may be `b`, which is still needed.
        let to = if first { out } else { results.as_mut_ptr().cast() };
        match unary {
            Unary::Same if !first => {}
            Unary::Same => each!(I, n, a, to, |x, at| x),
            Unary::Gelu => each!(I, n, a, to, |x, at| math::gelu::<I>(x)),
            Unary::Relu => each!(I, n, a, to, |x, at| I::max(I::splat(0.0), x)),
            Unary::Exp => each!(I, n, a, to, |x, at| exp::<I>(x, None)),
            Unary::Sigmoid => each!(I, n, a, to, |x, at| math::gated::<I>(I::splat(1.0), x)),
            Unary::Tanh => each!(I, n, a, to, |x, at| math::tanh::<I>(x)),
            Unary::Softplus => each!(I, n, a, to, |x, at| math::softplus::<I>(x)),
            Unary::Silu | Unary::GeluTanh => {
                // One loop for both: their exponential is most of the code.
                let mut u = a;
                if let Unary::GeluTanh = unary {
                    u = results.as_mut_ptr().cast();
                    each!(I, n, a, u.cast_mut(), |x, at| math::gelu_slope::<I>(x));
                }
                each!(I, n, a, to, |x, at| math::gated::<I>(x, I::load(u.add(at).cast())));
            }
        }
        let a = if matches!(unary, Unary::Same) { a } else { to.cast_const() };
        match binary {
            Binary::First => {}
            Binary::Add => each!(I, n, a, out, |x, at| I::add(x, I::load(b.add(at).cast()))),
            Binary::Mul => each!(I, n, a, out, |x, at| I::mul(x, I::load(b.add(at).cast()))),
        }
    }
}
