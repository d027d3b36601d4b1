//! 4 bits, symmetric: the element of largest magnitude gets code −8, so that all 16 codes are used;
//! stored plus 8.

use super::{Encoding, FormatDef, GROUPS, Quantize, encode, round_f16};

pub(super) const W4: FormatDef =
    FormatDef { name: "w4", encoding: Encoding::W4, groups: GROUPS, quantize: Quantize::Group(quantize) };

fn quantize(x: &[f32], codes: &mut [u8]) -> (f32, f32) {
    let extreme = x.iter().fold(0f32, |m, v| if v.abs() > m.abs() { *v } else { m });
    let scale = round_f16(extreme / -8.0);
    encode(x, codes, scale, 0.0, -8.0, 7.0, 8.0);
    (scale, 0.0)
}
