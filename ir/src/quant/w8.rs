//! 8 bits, symmetric: `scale = amax/127`, codes −127…127 stored plus 128.

use super::{Encoding, FormatDef, GROUPS, Quantize, encode, round_f16};

pub(super) const W8: FormatDef =
    FormatDef { name: "w8", encoding: Encoding::W8, groups: GROUPS, quantize: Quantize::Group(quantize) };

fn quantize(x: &[f32], codes: &mut [u8]) -> (f32, f32) {
    let amax = x.iter().fold(0f32, |m, v| m.max(v.abs()));
    let scale = round_f16(amax / 127.0);
    encode(x, codes, scale, 0.0, -127.0, 127.0, 128.0);
    (scale, 0.0)
}
