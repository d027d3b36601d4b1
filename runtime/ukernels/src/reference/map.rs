//! Elementwise functions, one number at a time, with the same operations as in
//! `codegen/src/cpu/math.rs`.

use llmcc_abi::math::*;

/// See [`llmcc_abi::MapFn`].
pub(crate) unsafe extern "C" fn map(unary: Unary, binary: Binary, n: u64, a: *const f32, b: *const f32, out: *mut f32) {
    for i in 0..n as usize {
        let x = apply(unary, unsafe { a.add(i).read() });
        let y = if binary == Binary::First { 0.0 } else { unsafe { b.add(i).read() } };
        unsafe { out.add(i).write(join(binary, x, y)) };
    }
}

fn apply(op: Unary, x: f32) -> f32 {
    match op {
        Unary::Same => x,
        Unary::Silu => gated(x, x),
        Unary::Gelu => gelu(x),
        Unary::GeluTanh => gated(x, (x * x * GELU_CUBIC + 1.0) * x * GELU_SLOPE),
        Unary::Relu => larger(0.0, x),
        Unary::Exp => exp_and_tail(x, 0.0),
        Unary::Sigmoid => gated(1.0, x),
        Unary::Tanh => tanh(x),
        Unary::Softplus => softplus(x),
    }
}

fn join(op: Binary, a: f32, b: f32) -> f32 {
    match op {
        Binary::First => a,
        Binary::Add => a + b,
        Binary::Mul => a * b,
    }
}

/// `b` if either is NaN.
fn larger(a: f32, b: f32) -> f32 {
    if a > b { a } else { b }
}

/// As [`larger`].
fn smaller(a: f32, b: f32) -> f32 {
    if a < b { a } else { b }
}

fn polynomial(x: f32, c: &[f32]) -> f32 {
    c.iter().rev().copied().reduce(|y, c| y * x + c).unwrap_or(0.0)
}

/// `e^(x + tail)` for a small `tail`.
pub(crate) fn exp_and_tail(x: f32, tail: f32) -> f32 {
    let x = smaller(EXP_MOST, larger(EXP_LEAST, x));
    let n = libm::rintf(x * core::f32::consts::LOG2_E);
    let r = x - n * LN2_HIGH - n * LN2_LOW + tail;
    let y = polynomial(r, &EXP) * (r * r) + r + 1.0;
    // In two steps, the first exact: n reaches 128 and -150.
    let half = n as i32 >> 1;
    let power = |n: i32| f32::from_bits(((n + 127) << 23) as u32);
    y * power(half) * power(n as i32 - half)
}

fn gated(x: f32, u: f32) -> f32 {
    x / (exp_and_tail(-u, 0.0) + 1.0)
}

fn tanh(x: f32) -> f32 {
    let (magnitude, square) = (x.abs(), x * x);
    if magnitude < TANH_SMALL {
        return polynomial(square, &TANH) * square * x + x;
    }
    (1.0 - 2.0 / (exp_and_tail(magnitude + magnitude, 0.0) + 1.0)).copysign(x)
}

fn softplus(x: f32) -> f32 {
    let z = exp_and_tail(-x.abs(), 0.0);
    let s = z / (z + 2.0);
    larger(0.0, x) + (z - (z - polynomial(s * s, &ARTANH[1..]) * (s * s)) * s)
}

fn gelu(x: f32) -> f32 {
    let magnitude = smaller(PHI_MOST, x.abs());
    let t = 1.0 / (magnitude * PHI_T + 1.0);
    // x² needs more bits than f32 has: x² = h² + (x − h)(x + h).
    let high = f32::from_bits(magnitude.to_bits() & PHI_HIGH);
    let tail = (magnitude - high) * (magnitude + high) * -0.5;
    let lower = polynomial(t, &PHI) * t * exp_and_tail(high * high * -0.5, tail);
    let near = polynomial(x * x, &PHI_SMALL) * x + 0.5;
    x * match x {
        _ if magnitude < PHI_SMALL_MOST => near,
        _ if x < 0.0 => lower,
        _ => 1.0 - lower,
    }
}
