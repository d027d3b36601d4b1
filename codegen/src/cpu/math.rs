//! Elementary functions on four f32.
//!
//! Their constants come from [`llmcc_abi::math`]: the microkernel `Map` computes the same bits,
//! more lanes at a time. The error bounds are those the tests of this module check against f64 on
//! the whole range, in units of the last place (ulp) of the result.

use super::emit::Emit;
use cranelift_codegen::ir::condcodes::FloatCC;
use cranelift_codegen::ir::{InstBuilder, Value};
use llmcc_abi::math::{
    ARTANH, EXP, EXP_LEAST, EXP_MOST, GELU_CUBIC, GELU_SLOPE, LN2_HIGH, LN2_LOW, PHI, PHI_HIGH, PHI_MOST, PHI_SMALL,
    PHI_SMALL_MOST, PHI_T, TANH, TANH_SMALL,
};
use llmcc_ir::graph::{BinaryOp, UnaryOp};

/// Exponent, as stored in f32, of the least normal number of e4m3.
const E4M3_LEAST: u32 = 127 - 6;

impl<'f> Emit<'f> {
    fn polynomial(&mut self, x: Value, coefficients: &[f32]) -> Value {
        let (last, rest) = coefficients.split_last().expect("polynomials are not empty");
        let mut y = self.floats(*last);
        for c in rest.iter().rev() {
            let c = self.floats(*c);
            y = self.fmul(y, x);
            y = self.fadd(y, c);
        }
        y
    }

    /// `eˣ`, within 2 ulp; 0 below −104, ∞ above 89, NaN for NaN.
    pub fn exp(&mut self, x: Value) -> Value {
        self.exp_sum(x, None)
    }

    /// `e^(x + tail)` for a small `tail`.
    fn exp_sum(&mut self, x: Value, tail: Option<Value>) -> Value {
        // Comparisons with NaN are false, which keeps it.
        let (low, high) = (self.floats(EXP_LEAST), self.floats(EXP_MOST));
        let below = self.lanes_where(FloatCC::LessThan, x, low);
        let x = self.choose(below, low, x);
        let above = self.lanes_where(FloatCC::GreaterThan, x, high);
        let x = self.choose(above, high, x);

        let log2e = self.floats(std::f32::consts::LOG2_E);
        let scaled = self.fmul(x, log2e);
        let (n, exponent) = self.round(scaled);
        let (ln2_high, ln2_low) = (self.floats(LN2_HIGH), self.floats(LN2_LOW));
        let part = self.fmul(n, ln2_high);
        let r = self.fsub(x, part);
        let part = self.fmul(n, ln2_low);
        let mut r = self.fsub(r, part);
        if let Some(tail) = tail {
            r = self.fadd(r, tail);
        }
        let q = self.polynomial(r, &EXP);
        let square = self.fmul(r, r);
        let q = self.fmul(q, square);
        let q = self.fadd(q, r);
        let one = self.floats(1.0);
        let y = self.fadd(q, one);

        // 2ⁿ in two steps: n reaches 128 and −150.
        let half = self.b.ins().sshr_imm_s(exponent, 1);
        let rest = self.sub(exponent, half);
        let (a, b) = (self.power_of_two(half), self.power_of_two(rest));
        let y = self.fmul(y, a);
        self.fmul(y, b)
    }

    /// `2ⁿ` for −126 ≤ n ≤ 127.
    fn power_of_two(&mut self, n: Value) -> Value {
        let bias = self.ints(127);
        let biased = self.add(n, bias);
        let bits = self.b.ins().ishl_imm_u(biased, 23);
        self.as_floats(bits)
    }

    /// `1 + e⁻ˣ`.
    fn sigmoid_denominator(&mut self, x: Value) -> Value {
        let negative = self.b.ins().fneg(x);
        let e = self.exp(negative);
        let one = self.floats(1.0);
        self.fadd(e, one)
    }

    /// `1/(1+e⁻ˣ)`, within 4 ulp while `e⁻ˣ` is finite (x ≥ −88), else 0.
    pub fn sigmoid(&mut self, x: Value) -> Value {
        let denominator = self.sigmoid_denominator(x);
        let one = self.floats(1.0);
        self.fdiv(one, denominator)
    }

    /// `x/(1+e⁻ˣ)`, error as [`Emit::sigmoid`].
    pub fn silu(&mut self, x: Value) -> Value {
        let denominator = self.sigmoid_denominator(x);
        self.fdiv(x, denominator)
    }

    /// `tanh x`, within 4 ulp.
    pub fn tanh(&mut self, x: Value) -> Value {
        let square = self.fmul(x, x);
        let p = self.polynomial(square, &TANH);
        let p = self.fmul(p, square);
        let p = self.fmul(p, x);
        let small = self.fadd(p, x);

        // 1 − 2/(e^(2|x|) + 1), with the sign of x.
        let magnitude = self.b.ins().fabs(x);
        let double = self.fadd(magnitude, magnitude);
        let e = self.exp(double);
        let (one, two) = (self.floats(1.0), self.floats(2.0));
        let e = self.fadd(e, one);
        let q = self.fdiv(two, e);
        let large = self.fsub(one, q);
        let sign = self.ints(0x8000_0000);
        let bits = self.bits(x);
        let sign = self.b.ins().band(bits, sign);
        let large = self.bits(large);
        let large = self.b.ins().bor(large, sign);
        let large = self.as_floats(large);
        let limit = self.floats(TANH_SMALL);
        let is_small = self.lanes_where(FloatCC::LessThan, magnitude, limit);
        self.choose(is_small, small, large)
    }

    /// `ln(1 + eˣ) = max(x, 0) + ln(1 + z)`, `z = e^(−|x|)`, within 3 ulp; and `ln(1 + z) =
    /// 2·artanh(s)`, `s = z/(2 + z)`, a series in a number up to 1/3. Its first term is `2s = z −
    /// s·z`, so an error of `s` counts a third.
    pub fn softplus(&mut self, x: Value) -> Value {
        let magnitude = self.b.ins().fabs(x);
        let negative = self.b.ins().fneg(magnitude);
        let z = self.exp(negative);
        let two = self.floats(2.0);
        let denominator = self.fadd(z, two);
        let s = self.fdiv(z, denominator);
        let square = self.fmul(s, s);
        let p = self.polynomial(square, &ARTANH[1..]);
        let p = self.fmul(p, square);
        let part = self.fsub(z, p);
        let part = self.fmul(part, s);
        let log = self.fsub(z, part);
        let zero = self.floats(0.0);
        let positive = self.fmax(zero, x);
        self.fadd(positive, log)
    }

    /// `x·Φ(x)`, within 8 ulp for x ≥ −13 (below, Φ nears the subnormal numbers). One formula
    /// serves both signs: `Φ(−|x|)` has a small relative error everywhere, and
    /// `Φ(|x|) = 1 − Φ(−|x|)` loses nothing since it is at least ½. Near 0, where most numbers are,
    /// it would be off by the product's roundings: there `Φ` is ½ and a small series, within 3 ulp.
    pub fn gelu(&mut self, x: Value) -> Value {
        // Beyond the range of the polynomial Φ(−|x|) is 0 in f32, and 1 − Φ is 1.
        let (magnitude, limit) = (self.b.ins().fabs(x), self.floats(PHI_MOST));
        let beyond = self.lanes_where(FloatCC::GreaterThan, magnitude, limit);
        let magnitude = self.choose(beyond, limit, magnitude);
        let (one, scale) = (self.floats(1.0), self.floats(PHI_T));
        let t = self.fmul(magnitude, scale);
        let t = self.fadd(t, one);
        let t = self.fdiv(one, t);
        let p = self.polynomial(t, &PHI);
        let p = self.fmul(p, t);
        // x² needs more bits than f32 has: x² = h² + (x − h)(x + h), h being the upper 12 bits of
        // x.
        let bits = self.bits(magnitude);
        let mask = self.ints(PHI_HIGH);
        let high = self.b.ins().band(bits, mask);
        let high = self.as_floats(high);
        let minus_half = self.floats(-0.5);
        let main = self.fmul(high, high);
        let main = self.fmul(main, minus_half);
        let (difference, sum) = (self.fsub(magnitude, high), self.fadd(magnitude, high));
        let tail = self.fmul(difference, sum);
        let tail = self.fmul(tail, minus_half);
        let e = self.exp_sum(main, Some(tail));
        let lower = self.fmul(p, e);
        let upper = self.fsub(one, lower);
        let zero = self.floats(0.0);
        let negative = self.lanes_where(FloatCC::LessThan, x, zero);
        let phi = self.choose(negative, lower, upper);
        let square = self.fmul(x, x);
        let series = self.polynomial(square, &PHI_SMALL);
        let series = self.fmul(series, x);
        let half = self.floats(0.5);
        let near = self.fadd(series, half);
        let limit = self.floats(PHI_SMALL_MOST);
        let is_small = self.lanes_where(FloatCC::LessThan, magnitude, limit);
        let phi = self.choose(is_small, near, phi);
        self.fmul(x, phi)
    }

    /// `x/2·(1+tanh u) = x/(1+e^(−2u))`, `u = √(2/π)·(x+0.044715x³)`; within 4 ulp plus the
    /// condition of `e^(2u)` (`|2u|` ulp).
    pub fn gelu_tanh(&mut self, x: Value) -> Value {
        let square = self.fmul(x, x);
        let (cubic, one) = (self.floats(GELU_CUBIC), self.floats(1.0));
        let u = self.fmul(square, cubic);
        let u = self.fadd(u, one);
        let u = self.fmul(u, x);
        let slope = self.floats(GELU_SLOPE);
        let double = self.fmul(u, slope);
        let denominator = self.sigmoid_denominator(double);
        self.fdiv(x, denominator)
    }

    /// Between two numbers; NaN stays.
    pub fn clamp(&mut self, x: Value, least: f32, most: f32) -> Value {
        let (least, most) = (self.floats(least), self.floats(most));
        let x = self.fmax(least, x);
        self.fmin(most, x)
    }

    /// The nearest number of 4 significant bits, ties to even, that is a multiple of 2⁻⁹; of
    /// magnitudes below 2¹⁰⁰. Adding 1.5 times the power of two that is 2²⁰ times that of `x` leaves
    /// these bits.
    fn round_e4m3(&mut self, x: Value) -> Value {
        let bits = self.bits(x);
        let (exponents, least) = (self.ints(0xff << 23), self.ints(E4M3_LEAST << 23));
        let exponent = self.b.ins().band(bits, exponents);
        let exponent = self.b.ins().smax(exponent, least);
        let up = self.ints((20 << 23) | (1 << 22));
        let magic = self.add(exponent, up);
        let magic = self.as_floats(magic);
        let shifted = self.fadd(x, magic);
        self.fsub(shifted, magic)
    }

    /// An elementwise function of four f32.
    pub fn unary(&mut self, op: UnaryOp, x: Value) -> Value {
        match op {
            UnaryOp::Neg => self.b.ins().fneg(x),
            UnaryOp::Exp => self.exp(x),
            UnaryOp::Sigmoid => self.sigmoid(x),
            UnaryOp::Silu => self.silu(x),
            UnaryOp::Gelu => self.gelu(x),
            UnaryOp::GeluTanh => self.gelu_tanh(x),
            UnaryOp::Relu => {
                let zero = self.floats(0.0);
                self.fmax(zero, x)
            }
            UnaryOp::Tanh => self.tanh(x),
            UnaryOp::Relu2 => {
                let x = self.unary(UnaryOp::Relu, x);
                self.fmul(x, x)
            }
            UnaryOp::Softplus => self.softplus(x),
            UnaryOp::Sqrt => {
                let x = self.unary(UnaryOp::Relu, x);
                self.b.ins().sqrt(x)
            }
            UnaryOp::RoundI8 => {
                let x = self.clamp(x, -128.0, 127.0);
                self.round(x).0
            }
            UnaryOp::RoundE4m3 => {
                let x = self.clamp(x, -448.0, 448.0);
                self.round_e4m3(x)
            }
        }
    }

    /// An elementwise function of two times four f32; each rounds once.
    pub fn binary(&mut self, op: BinaryOp, a: Value, b: Value) -> Value {
        match op {
            BinaryOp::Add => self.fadd(a, b),
            BinaryOp::Sub => self.fsub(a, b),
            BinaryOp::Mul => self.fmul(a, b),
            BinaryOp::Div => self.fdiv(a, b),
            BinaryOp::Max => self.fmax(a, b),
            BinaryOp::Min => self.fmin(a, b),
        }
    }
}
