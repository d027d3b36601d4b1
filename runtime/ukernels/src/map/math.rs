//! Elementary functions, with the same operations as in `codegen/src/cpu/math.rs`: constants and
//! meaning are in [`llmcc_abi::math`].

use llmcc_abi::math::*;

use crate::isa::Isa;

/// The polynomial with coefficients `c`, lowest power first.
#[inline(always)]
unsafe fn polynomial<I: Isa, const N: usize>(x: I::F, c: [f32; N]) -> I::F {
    unsafe {
        let mut y = I::splat(c[N - 1]);
        for i in 1..N {
            y = I::add(I::mul(y, x), I::splat(c[N - 1 - i]));
        }
        y
    }
}

/// `e^(x + tail)` for a small `tail`.
#[inline(always)]
pub(crate) unsafe fn exp<I: Isa>(x: I::F, tail: Option<I::F>) -> I::F {
    unsafe {
        // NaN passes: it is the second operand.
        let x = I::min(I::splat(EXP_MOST), I::max(I::splat(EXP_LEAST), x));
        let exponent = I::round(I::mul(x, I::splat(core::f32::consts::LOG2_E)));
        let n = I::to_f32(exponent);
        let r = I::sub(I::sub(x, I::mul(n, I::splat(LN2_HIGH))), I::mul(n, I::splat(LN2_LOW)));
        let r = if let Some(tail) = tail { I::add(r, tail) } else { r };
        let q = I::mul(polynomial::<I, 5>(r, EXP), I::mul(r, r));
        let y = I::add(I::add(q, r), I::splat(1.0));
        I::scale(y, exponent)
    }
}

/// `x/(1 + e⁻ᵘ)`.
#[inline(always)]
pub(super) unsafe fn gated<I: Isa>(x: I::F, u: I::F) -> I::F {
    unsafe { I::div(x, I::add(exp::<I>(I::sub(I::splat(-0.0), u), None), I::splat(1.0))) }
}

/// `tanh x`.
#[inline(always)]
pub(super) unsafe fn tanh<I: Isa>(x: I::F) -> I::F {
    unsafe {
        let (zero, one) = (I::splat(0.0), I::splat(1.0));
        let square = I::mul(x, x);
        let p = I::mul(I::mul(polynomial::<I, 5>(square, TANH), square), x);
        let small = I::add(p, x);
        let magnitude = I::keep_bits(x, 0x7fff_ffff);
        let e = I::add(exp::<I>(I::add(magnitude, magnitude), None), one);
        let large = I::sub(one, I::div(I::splat(2.0), e));
        let large = I::where_less(x, zero, I::sub(I::splat(-0.0), large), large);
        I::where_less(magnitude, I::splat(TANH_SMALL), small, large)
    }
}

/// `ln(1 + eˣ)`.
#[inline(always)]
pub(super) unsafe fn softplus<I: Isa>(x: I::F) -> I::F {
    unsafe {
        let z = exp::<I>(I::sub(I::splat(-0.0), I::keep_bits(x, 0x7fff_ffff)), None);
        let s = I::div(z, I::add(z, I::splat(2.0)));
        let [_, rest @ ..] = ARTANH;
        let square = I::mul(s, s);
        let p = I::mul(polynomial::<I, 7>(square, rest), square);
        let log = I::sub(z, I::mul(I::sub(z, p), s));
        I::add(I::max(I::splat(0.0), x), log)
    }
}

/// `x·Φ(x)`.
#[inline(always)]
pub(super) unsafe fn gelu<I: Isa>(x: I::F) -> I::F {
    unsafe {
        let one = I::splat(1.0);
        let magnitude = I::min(I::splat(PHI_MOST), I::keep_bits(x, 0x7fff_ffff));
        let t = I::div(one, I::add(I::mul(magnitude, I::splat(PHI_T)), one));
        let p = I::mul(polynomial::<I, 10>(t, PHI), t);
        let high = I::keep_bits(magnitude, PHI_HIGH);
        let main = I::mul(I::mul(high, high), I::splat(-0.5));
        let tail = I::mul(I::mul(I::sub(magnitude, high), I::add(magnitude, high)), I::splat(-0.5));
        let lower = I::mul(p, exp::<I>(main, Some(tail)));
        let upper = I::sub(one, lower);
        let phi = I::where_less(x, I::splat(0.0), lower, upper);
        let near = I::add(I::mul(polynomial::<I, 5>(I::mul(x, x), PHI_SMALL), x), I::splat(0.5));
        I::mul(x, I::where_less(magnitude, I::splat(PHI_SMALL_MOST), near, phi))
    }
}

/// `2√(2/π)·(x+0.044715x³)`: the argument `u` of [`gated`] for the tanh approximation of GELU.
#[inline(always)]
pub(super) unsafe fn gelu_slope<I: Isa>(x: I::F) -> I::F {
    unsafe {
        let u = I::add(I::mul(I::mul(x, x), I::splat(GELU_CUBIC)), I::splat(1.0));
        I::mul(I::mul(u, x), I::splat(GELU_SLOPE))
    }
}
