//! 8-bit floats, e4m3 of the OCP 8-bit Floating Point Specification (OFP8, 2023):
//! `scale = amax/448` of the whole row, 448 being the largest number.

use super::{Encoding, FormatDef, NO_GROUPS, Quantize, round_f16};

pub(super) const FP8: FormatDef =
    FormatDef { name: "fp8", encoding: Encoding::FP8, groups: NO_GROUPS, quantize: Quantize::Group(quantize) };

/// The largest e4m3 number.
pub const E4M3_MAX: f32 = 448.0;

/// With f32 scales of blocks of rows and columns, as DeepSeek's checkpoints have them: a row sees a
/// scale for each group of columns.
pub(super) const FP8B: FormatDef = FormatDef {
    name: "fp8b",
    encoding: Encoding::FP8B,
    groups: &[128],
    quantize: Quantize::Group(|x, codes| {
        let scale = x.iter().fold(0f32, |m, v| m.max(v.abs())) / E4M3_MAX;
        let code = |v: &f32| if scale == 0.0 { 0 } else { e4m3_from_f32(v / scale) };
        codes.iter_mut().zip(x).for_each(|(c, v)| *c = code(v));
        (scale, 0.0)
    }),
};

fn quantize(x: &[f32], codes: &mut [u8]) -> (f32, f32) {
    let amax = x.iter().fold(0f32, |m, v| m.max(v.abs()));
    let scale = round_f16(amax / E4M3_MAX);
    if scale == 0.0 {
        codes.fill(0);
    } else {
        codes.iter_mut().zip(x).for_each(|(c, v)| *c = e4m3_from_f32(v / scale));
    }
    (scale, 0.0)
}

/// The e4m3 number nearest to `x`, of two equally near ones that with an even mantissa; numbers
/// beyond the largest become the largest (as `cvt.rn.satfinite` does), NaN stays NaN.
pub fn e4m3_from_f32(x: f32) -> u8 {
    let sign = (x.to_bits() >> 24) as u8 & 0x80;
    let magnitude = x.abs().min(E4M3_MAX);
    // From 2⁻⁶ on: 20 bits of the mantissa are rounded away, a carry goes to the exponent, which is
    // 120 too high.
    let bits = magnitude.to_bits();
    let normal = (bits + 0x7_ffff + (bits >> 20 & 1)) >> 20;
    // Below: multiples of 2⁻⁹. Adding 1.5·2¹⁴ leaves them, rounded, in the lowest bits.
    let subnormal = (magnitude + 24576.0).to_bits() & 0xf;
    let code = if magnitude < 0.015625 { subnormal } else { normal.wrapping_sub(120 << 3) };
    if x.is_nan() { 0x7f | sign } else { code as u8 | sign }
}

#[cfg(test)]
mod tests {
    use super::super::e4m3_to_f32;
    use super::*;

    /// The value of a code by the table of the specification; `None`: NaN.
    fn specified(code: u8) -> Option<f64> {
        let (sign, exponent, mantissa) = (code >> 7, i32::from(code >> 3 & 15), f64::from(code & 7));
        let magnitude = match (exponent, code & 7) {
            (15, 7) => return None,
            (0, _) => mantissa / 8.0 * 2f64.powi(-6),
            _ => (1.0 + mantissa / 8.0) * 2f64.powi(exponent - 7),
        };
        Some(if sign == 1 { -magnitude } else { magnitude })
    }

    #[test]
    fn all_codes_are_those_of_the_specification() {
        for code in 0..=255u8 {
            let x = e4m3_to_f32(code);
            match specified(code) {
                Some(value) => {
                    assert_eq!(f64::from(x), value, "{code:#04x}");
                    assert_eq!(x.is_sign_negative(), code >= 0x80);
                    assert_eq!(e4m3_from_f32(x), code);
                }
                None => assert!(x.is_nan() && e4m3_from_f32(x) & 0x7f == 0x7f),
            }
        }
        assert_eq!(e4m3_to_f32(0x7e), E4M3_MAX);
    }

    /// Every number is rounded to the nearest of all 254, ties to an even code.
    #[test]
    fn rounding_is_to_nearest_even() {
        let values: Vec<(f64, u8)> = (0..0x7f).map(|c| (specified(c).unwrap(), c)).collect();
        let nearest = |x: f64| {
            let by = |a: &&(f64, u8), b: &&(f64, u8)| {
                (a.0 - x).abs().total_cmp(&(b.0 - x).abs()).then((a.1 & 1).cmp(&(b.1 & 1)))
            };
            values.iter().min_by(by).unwrap().1
        };
        // All numbers with 12 bits of mantissa from far below the least to beyond the largest: ties
        // and their neighbours among them.
        for bits in (0x2f00_0000u32..0x4500_0000).step_by(1 << 11) {
            let x = f32::from_bits(bits);
            for x in [x, f32::from_bits(bits + 1), f32::from_bits(bits - 1)] {
                assert_eq!(e4m3_from_f32(x), nearest(x.into()), "{x:e}");
                assert_eq!(e4m3_from_f32(-x), nearest(x.into()) | 0x80);
            }
        }
        for (x, code) in [
            (0.0, 0),
            (-0.0, 0x80),
            (f32::INFINITY, 0x7e),
            (f32::NEG_INFINITY, 0xfe),
            (1e-40, 0),
            (464.0, 0x7e),
            (1e9, 0x7e),
        ] {
            assert_eq!(e4m3_from_f32(x), code, "{x}");
        }
    }
}
