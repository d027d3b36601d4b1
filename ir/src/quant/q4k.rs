//! 4 bits, asymmetric, with two levels of scales, as GGML's `Q4_K`: super-groups of 256 columns are
//! 8 groups of 32, whose scales and minima are codes of 6 bits; the super-group has an f16 scale
//! for the scales and one for the minima. `w = (d·s)·u + (e·m)`, where `e` is what GGML calls
//! `dmin`, negated.
//!
//! GGML packs the 6-bit codes tightly (4.5 bits per weight); here they are bytes (4.625), which
//! vector code reads without shifts.

use super::{Code, Encoding, FormatDef, Per, Quantize, Scale, ScaleKind, encode, round_f16};

pub(super) const Q4K: FormatDef = FormatDef {
    name: "q4k",
    encoding: Encoding {
        code: Code::Int { bits: 4, zero: 0 },
        scales: [
            Some(Scale::with_minimum(Per::Group(0), ScaleKind::Unsigned { bits: 6 })),
            Some(Scale::with_minimum(Per::Group(256), ScaleKind::F16)),
        ],
    },
    groups: &[GROUP],
    quantize: Quantize::Super(quantize),
};

const GROUP: usize = 32;
/// The largest code of a scale.
const MOST: f32 = 63.0;

fn quantize(x: &[f32], codes: &mut [u8], factors: &mut [(u8, u8)]) -> (f32, f32) {
    factors.fill((0, 0));
    // The least number (or 0, if all are above) and a step for each group.
    let of = |x: &[f32]| {
        let (low, high) = x.iter().fold((0f32, 0f32), |(l, h), v| (l.min(*v), h.max(*v)));
        ((high - low) / 15.0, low)
    };
    let groups: Vec<(f32, f32)> = x.chunks(GROUP).map(of).collect();
    let most = groups.iter().fold((0f32, 0f32), |m, g| (m.0.max(g.0), m.1.min(g.1)));
    let (scale, min) = (round_f16(most.0 / MOST), round_f16(most.1 / MOST));
    let code = |x: f32, unit: f32| if unit == 0.0 { 0.0 } else { (x / unit).round_ties_even().clamp(0.0, MOST) };
    for (((step, low), factor), (x, codes)) in
        groups.into_iter().zip(factors).zip(x.chunks(GROUP).zip(codes.chunks_mut(GROUP)))
    {
        let (s, m) = (code(step, scale), code(low, min));
        *factor = (s as u8, m as u8);
        encode(x, codes, scale * s, min * m, 0.0, 15.0, 0.0);
    }
    (scale, min)
}
