//! Integers from a zero of each group: `scale·(u − zero)`, as GPTQ and AWQ have them. The product
//! `scale·zero` of an f16 and a small integer is exact in f32, so it is kept as a minimum in f32
//! beside a scale in f32, and no value is rounded a second time.

use super::{Encoding, FormatDef, GROUPS, Quantize, encode, round_f16};

pub(super) const W4Z: FormatDef = FormatDef {
    name: "w4z",
    encoding: Encoding::from_zero(4),
    groups: GROUPS,
    quantize: Quantize::Group(|x, codes| quantize(x, codes, 15.0)),
};

pub(super) const W2Z: FormatDef = FormatDef {
    name: "w2z",
    encoding: Encoding::from_zero(2),
    groups: GROUPS,
    quantize: Quantize::Group(|x, codes| quantize(x, codes, 3.0)),
};

pub(super) const W3Z: FormatDef = FormatDef {
    name: "w3z",
    encoding: Encoding::from_zero(3),
    groups: GROUPS,
    quantize: Quantize::Group(|x, codes| quantize(x, codes, 7.0)),
};

pub(super) const W8Z: FormatDef = FormatDef {
    name: "w8z",
    encoding: Encoding::from_zero(8),
    groups: GROUPS,
    quantize: Quantize::Group(|x, codes| quantize(x, codes, 255.0)),
};

/// A scale as f16, as long as its rounding error is at most a quarter of a step of the largest
/// code.
fn f16_or_wider(scale: f32, most: f32) -> f32 {
    // Half of the least f16, times four.
    const LEAST: f32 = 1.0 / 8_388_608.0;
    let half = round_f16(scale);
    if half.is_finite() && scale >= most * LEAST { half } else { scale }
}

fn quantize(x: &[f32], codes: &mut [u8], most: f32) -> (f32, f32) {
    let (lo, hi) = x.iter().fold((0f32, 0f32), |(l, h), v| (l.min(*v), h.max(*v)));
    let scale = f16_or_wider((hi - lo) / most, most);
    let zero = if scale == 0.0 { 0.0 } else { (-lo / scale).round_ties_even().clamp(0.0, most) };
    encode(x, codes, scale, -scale * zero, 0.0, most, 0.0);
    (scale, -scale * zero)
}
