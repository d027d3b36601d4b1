//! 4 bits, asymmetric: codes 0…15 from the group's minimum to its maximum.

use super::{Encoding, FormatDef, GROUPS, Quantize, encode, round_f16};

pub(super) const W4A: FormatDef =
    FormatDef { name: "w4a", encoding: Encoding::W4A, groups: GROUPS, quantize: Quantize::Group(quantize) };

fn quantize(x: &[f32], codes: &mut [u8]) -> (f32, f32) {
    let (lo, hi) = x.iter().fold((f32::INFINITY, f32::NEG_INFINITY), |(l, h), v| (l.min(*v), h.max(*v)));
    if x.is_empty() {
        return (0.0, 0.0);
    }
    let min = round_f16(lo);
    let scale = round_f16((hi - lo) / 15.0);
    encode(x, codes, scale, min, 0.0, 15.0, 0.0);
    (scale, min)
}
