//! Values in register slots, and the rounding of floating point formats.
//!
//! A slot holds 64 bits per lane; narrower values are zero-extended. f32 and f64 results that are
//! NaN take the canonical pattern of PTX.

use half::{bf16, f16};

/// A value of a register slot.
pub(crate) trait Bits: Copy + Send + Sync + 'static {
    fn get(bits: u64) -> Self;
    fn put(self) -> u64;
}

macro_rules! int_bits {
    ($($t:ty as $u:ty),*) => {$(
        impl Bits for $t {
            #[inline(always)]
            fn get(bits: u64) -> Self {
                bits as $t
            }
            #[inline(always)]
            fn put(self) -> u64 {
                self as $u as u64
            }
        }
    )*};
}
int_bits!(u8 as u8, i8 as u8, u16 as u16, i16 as u16, u32 as u32, i32 as u32, u64 as u64, i64 as u64);

impl Bits for bool {
    #[inline(always)]
    fn get(bits: u64) -> Self {
        bits != 0
    }
    #[inline(always)]
    fn put(self) -> u64 {
        u64::from(self)
    }
}

impl Bits for f32 {
    #[inline(always)]
    fn get(bits: u64) -> Self {
        f32::from_bits(bits as u32)
    }
    #[inline(always)]
    fn put(self) -> u64 {
        u64::from(if self.is_nan() { 0x7fff_ffff } else { self.to_bits() })
    }
}

impl Bits for f64 {
    #[inline(always)]
    fn get(bits: u64) -> Self {
        f64::from_bits(bits)
    }
    #[inline(always)]
    fn put(self) -> u64 {
        if self.is_nan() { 0x7fff_ffff_ffff_ffff } else { self.to_bits() }
    }
}

impl Bits for f16 {
    #[inline(always)]
    fn get(bits: u64) -> Self {
        f16::from_bits(bits as u16)
    }
    #[inline(always)]
    fn put(self) -> u64 {
        u64::from(if self.is_nan() { 0x7fff } else { self.to_bits() })
    }
}

impl Bits for bf16 {
    #[inline(always)]
    fn get(bits: u64) -> Self {
        bf16::from_bits(bits as u16)
    }
    #[inline(always)]
    fn put(self) -> u64 {
        u64::from(if self.is_nan() { 0x7fff } else { self.to_bits() })
    }
}

/// Two 16-bit values in 32 bits; the first is the low half.
#[derive(Clone, Copy)]
pub(crate) struct Two<T>(pub T, pub T);

impl<T: Bits> Bits for Two<T> {
    #[inline(always)]
    fn get(bits: u64) -> Self {
        Two(T::get(bits & 0xffff), T::get((bits >> 16) & 0xffff))
    }
    #[inline(always)]
    fn put(self) -> u64 {
        self.0.put() | (self.1.put() << 16)
    }
}

/// Direction of rounding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Round {
    /// To nearest, ties to even.
    Near,
    /// To nearest, ties away from zero.
    Away,
    Zero,
    Down,
    Up,
}

/// A binary floating point format of at most 52 mantissa bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Format {
    pub exponent: u32,
    pub mantissa: u32,
    /// e4m3: no infinity, NaN is all ones, overflow gives the largest finite value (`.satfinite`).
    pub finite: bool,
}

pub(crate) const F16: Format = Format { exponent: 5, mantissa: 10, finite: false };
pub(crate) const BF16: Format = Format { exponent: 8, mantissa: 7, finite: false };
pub(crate) const F32: Format = Format { exponent: 8, mantissa: 23, finite: false };
pub(crate) const TF32: Format = Format { exponent: 8, mantissa: 10, finite: false };
pub(crate) const E4M3: Format = Format { exponent: 4, mantissa: 3, finite: true };
pub(crate) const E5M2: Format = Format { exponent: 5, mantissa: 2, finite: false };

impl Format {
    fn bias(self) -> i32 {
        (1 << (self.exponent - 1)) - 1
    }

    fn nan(self) -> u64 {
        (1 << (self.exponent + self.mantissa)) - 1
    }

    /// Bits of the largest finite value.
    pub fn largest(self) -> u64 {
        if self.finite { self.nan() - 1 } else { (((1 << self.exponent) - 1) << self.mantissa) - 1 }
    }

    fn infinity(self) -> u64 {
        ((1 << self.exponent) - 1) << self.mantissa
    }

    /// The value of `bits`, exactly.
    pub fn decode(self, bits: u64) -> f64 {
        let sign = if bits >> (self.exponent + self.mantissa) & 1 == 1 { -1.0 } else { 1.0 };
        let magnitude = bits & self.nan();
        let (e, m) = ((magnitude >> self.mantissa) as i32, magnitude & ((1 << self.mantissa) - 1));
        if self.finite && magnitude == self.nan() {
            return f64::NAN;
        }
        if !self.finite && e == (1 << self.exponent) - 1 {
            return if m == 0 { sign * f64::INFINITY } else { f64::NAN };
        }
        let scale = |p: i32| f64::from_bits(((p + 1023) as u64) << 52);
        let unit = -(self.mantissa as i32);
        if e == 0 {
            return sign * m as f64 * scale(1 - self.bias() + unit);
        }
        sign * ((1u64 << self.mantissa) + m) as f64 * scale(e - self.bias() + unit)
    }

    /// `x` rounded into this format, correctly. With `saturate` (or in a format without infinities)
    /// overflow gives the largest finite value.
    pub fn encode(self, x: f64, round: Round, saturate: bool) -> u64 {
        let sign = u64::from(x.is_sign_negative()) << (self.exponent + self.mantissa);
        if x.is_nan() {
            return self.nan();
        }
        let limit = |r: Round| match (saturate || self.finite, r, x > 0.0) {
            (true, ..) | (_, Round::Zero, _) | (_, Round::Down, true) | (_, Round::Up, false) => self.largest(),
            _ => self.infinity(),
        };
        if x.is_infinite() {
            return sign | limit(Round::Near);
        }
        let bits = x.abs().to_bits();
        if bits == 0 {
            return sign;
        }
        let (exp, man) = match (bits >> 52, bits & ((1 << 52) - 1)) {
            (0, m) => (-1022, m),
            (e, m) => (e as i32 - 1023, m | 1 << 52),
        };
        // The unit in the last place is 2^(exp - mantissa), or that of the subnormals.
        let low = exp.max(1 - self.bias());
        let drop = (52 - self.mantissa as i32 + (low - exp)) as u32;
        let (kept, rest, half) =
            if drop > 63 { (0, man, u64::MAX) } else { (man >> drop, man & ((1 << drop) - 1), (1u64 << drop) >> 1) };
        let up = match round {
            Round::Near => rest > half || (rest == half && rest != 0 && kept & 1 == 1),
            Round::Away => rest >= half && rest != 0,
            Round::Zero => false,
            Round::Down => rest != 0 && sign != 0,
            Round::Up => rest != 0 && sign == 0,
        };
        // A carry out of the mantissa moves into the exponent by itself.
        let kept = kept + u64::from(up);
        let magnitude = (((low + self.bias()) as u64) << self.mantissa) + kept - (1 << self.mantissa);
        sign | if magnitude > self.largest() { limit(round) } else { magnitude }
    }
}

/// `a * b + c` in f64, rounded to odd: rounding it once more to a format of at most 50 mantissa
/// bits gives the correctly rounded result. `a * b` must be exact in f64.
pub(crate) fn fma_odd(a: f64, b: f64, c: f64) -> f64 {
    sum_odd(a * b, c)
}

/// `x + y` rounded to odd.
pub(crate) fn sum_odd(x: f64, y: f64) -> f64 {
    let s = x + y;
    if !s.is_finite() {
        return s;
    }
    let t = s - x;
    let err = (x - (s - t)) + (y - t);
    if err == 0.0 || s.to_bits() & 1 == 1 {
        return s;
    }
    // The exact sum lies beside `s`, on the side of `err`: of the two neighbours around it, take
    // the odd one.
    if (err > 0.0) == (s > 0.0) { f64::from_bits(s.to_bits() + 1) } else { f64::from_bits(s.to_bits() - 1) }
}

/// A subnormal becomes a zero of the same sign (`.ftz`).
#[inline(always)]
pub(crate) fn flush(x: f32) -> f32 {
    if x.is_subnormal() { 0f32.copysign(x) } else { x }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every 16-bit pattern survives a round trip; every f32 of a sample rounds as `half` does.
    #[test]
    fn formats_round_like_half() {
        for b in 0..=u16::MAX {
            let (h, w) = (f16::from_bits(b), bf16::from_bits(b));
            assert!(h.is_nan() || F16.decode(u64::from(b)) == h.to_f64());
            assert!(w.is_nan() || BF16.decode(u64::from(b)) == w.to_f64());
            assert!(h.is_nan() || F16.encode(h.to_f64(), Round::Near, false) == u64::from(b));
        }
        let mut x = 1u32;
        for _ in 0..200_000 {
            x = x.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let v = f32::from_bits(x);
            if v.is_nan() {
                continue;
            }
            assert_eq!(F16.encode(f64::from(v), Round::Near, false), u64::from(f16::from_f32(v).to_bits()), "{v:e}");
            assert_eq!(BF16.encode(f64::from(v), Round::Near, false), u64::from(bf16::from_f32(v).to_bits()), "{v:e}");
            assert_eq!(F32.encode(f64::from(v), Round::Near, false), u64::from(x), "{v:e}");
        }
    }

    #[test]
    fn e4m3_saturates_and_has_no_infinity() {
        assert_eq!(E4M3.encode(1e9, Round::Near, true), 0x7e);
        assert_eq!(E4M3.decode(0x7e), 448.0);
        assert_eq!(E4M3.encode(-0.001, Round::Near, true), 0x80 | 1);
        for b in 0..127u64 {
            assert_eq!(E4M3.encode(E4M3.decode(b), Round::Near, true), b);
        }
    }

    #[test]
    fn directed_rounding() {
        let third = 1.0 / 3.0;
        assert_eq!(
            F16.decode(F16.encode(third, Round::Up, false)) - F16.decode(F16.encode(third, Round::Down, false)),
            2f64.powi(-12)
        );
        assert_eq!(F16.encode(-1e9, Round::Zero, false), 0xfbff);
        assert_eq!(F16.encode(1e9, Round::Up, false), 0x7c00);
        assert_eq!(
            TF32.encode(1.0 + 2f64.powi(-11), Round::Away, false),
            TF32.encode(1.0 + 2f64.powi(-10), Round::Near, false)
        );
    }

    #[test]
    fn sums_to_odd_keep_the_rest() {
        let (a, b) = (1.0 + 2f64.powi(-10), 2f64.powi(-11));
        // Exactly half way plus something tiny must round up in f16.
        assert_eq!(
            F16.encode(sum_odd(a + b, 2f64.powi(-60)), Round::Near, false),
            F16.encode(1.0 + 2f64.powi(-9), Round::Near, false)
        );
    }
}
