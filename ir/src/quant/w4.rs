//! 4 bits, symmetric: the element of largest magnitude gets code −8, so that all 16 codes are used;
//! stored plus 8. With two of each four columns the ones of larger magnitude are kept, of equal ones the first.

use super::{Encoding, FormatDef, GROUPS, Quantize, encode, round_f16};
use std::cmp::Reverse;

pub(super) const W4: FormatDef =
    FormatDef { name: "w4", encoding: Encoding::W4, groups: GROUPS, quantize: Quantize::Group(quantize) };

fn quantize(x: &[f32], codes: &mut [u8]) -> (f32, f32) {
    let extreme = x.iter().fold(0f32, |m, v| if v.abs() > m.abs() { *v } else { m });
    let scale = round_f16(extreme / -8.0);
    encode(x, codes, scale, 0.0, -8.0, 7.0, 8.0);
    (scale, 0.0)
}

pub(super) const W4S: FormatDef =
    FormatDef { name: "w4s", encoding: Encoding::W4S, groups: GROUPS, quantize: Quantize::Group(quantize_pairs) };

fn quantize_pairs(x: &[f32], codes: &mut [u8]) -> (f32, f32) {
    quantize(&two_of_four(x), codes)
}

/// Columns with zeros in place of the two of least magnitude of each four.
pub(super) fn two_of_four(x: &[f32]) -> Vec<f32> {
    let mut kept = x.to_vec();
    for four in kept.chunks_mut(4) {
        let mut order = [0, 1, 2, 3];
        let order = &mut order[..four.len()];
        order.sort_by_key(|i| Reverse(four[*i].to_bits() & 0x7fff_ffff));
        order.iter().skip(2).for_each(|i| four[*i] = 0.0);
    }
    kept
}
