//! The block formats of GGML that no one else has: the content of a GGUF file is kept. Where GGML
//! packs small scales tightly they are bytes here, which vector code reads without shifts.
//!
//! Super-groups have 256 columns; their scales are codes of the given bits, times an f16.

use super::{Code, Encoding, FormatDef, NO_GROUPS, Per, Quantize, Scale, ScaleKind, encode, round_f16};
use llmcc_abi::encoding::{NON_LINEAR, with_negatives};

/// Columns that share a scale of scales.
const SUPER: u16 = 256;

/// The magnitudes of GGML's grids of `IQ2` types, then of its `IQ1` types (whose numbers are −1, 0
/// and 1, moved by an eighth), in eighths of the former's unit.
static GRID_OF_2: [u32; 16] = with_negatives([1.0, 3.125, 5.375, 0.125, 0.875, 1.125, 0.0, 0.0]);

/// The magnitudes of its grid of `IQ3_XXS`, in quarters.
static GRID_OF_3: [u32; 16] = with_negatives([1.0, 3.0, 5.0, 7.0, 9.0, 11.0, 13.0, 15.5]);

/// The magnitudes of its grid of `IQ3_S`.
static ODD: [u32; 16] = with_negatives([1.0, 3.0, 5.0, 7.0, 9.0, 11.0, 13.0, 15.0]);

/// Numbers of a table of 16, with scales of 6 bits for so many columns.
const fn table_of(values: &'static [u32; 16], group: u16) -> Encoding {
    let scale = Scale::new(Per::Group(group), ScaleKind::Signed { bits: 6 });
    Encoding::two_levels(Code::Table { bits: 4, values }, scale)
}

/// `Q5_0`
pub(super) const W5: FormatDef = FormatDef {
    name: "w5",
    encoding: Encoding::W5,
    groups: &[32],
    quantize: Quantize::Group(|x, codes| {
        let scale = round_f16(extreme(x) / -16.0);
        encode(x, codes, scale, 0.0, -16.0, 15.0, 16.0);
        (scale, 0.0)
    }),
};

/// `Q5_1`
pub(super) const W5A: FormatDef = FormatDef {
    name: "w5a",
    encoding: Encoding::W5A,
    groups: &[32],
    quantize: Quantize::Group(|x, codes| {
        let (lo, hi) = x.iter().fold((0f32, 0f32), |(l, h), v| (l.min(*v), h.max(*v)));
        let (min, scale) = (round_f16(lo), round_f16((hi - lo) / 31.0));
        encode(x, codes, scale, min, 0.0, 31.0, 0.0);
        (scale, min)
    }),
};

/// `Q2_K`
pub(super) const Q2K: FormatDef = FormatDef {
    name: "q2k",
    encoding: Encoding::Q2K,
    groups: &[16],
    quantize: Quantize::Super(|x, codes, factors| asymmetric((x, codes), factors, 16, (3.0, 15.0))),
};

/// `Q3_K`
pub(super) const Q3K: FormatDef = FormatDef {
    name: "q3k",
    encoding: Encoding::Q3K,
    groups: &[16],
    quantize: Quantize::Super(|x, codes, factors| symmetric((x, codes), factors, 16, (4.0, 31.0))),
};

/// `Q5_K`
pub(super) const Q5K: FormatDef = FormatDef {
    name: "q5k",
    encoding: Encoding::Q5K,
    groups: &[32],
    quantize: Quantize::Super(|x, codes, factors| asymmetric((x, codes), factors, 32, (31.0, 63.0))),
};

/// `Q6_K`
pub(super) const Q6K: FormatDef = FormatDef {
    name: "q6k",
    encoding: Encoding::Q6K,
    groups: &[16],
    quantize: Quantize::Super(|x, codes, factors| symmetric((x, codes), factors, 16, (32.0, 127.0))),
};

/// `Q8_K`
pub(super) const Q8K: FormatDef = FormatDef {
    name: "q8k",
    encoding: Encoding::scaled(Code::Signed { bits: 8 }, Scale::new(Per::Group(SUPER), ScaleKind::F32)),
    groups: &[SUPER as usize],
    quantize: Quantize::Group(|x, codes| {
        let scale = extreme(x).abs() / 127.0;
        encode(x, codes, scale, 0.0, -127.0, 127.0, 0.0);
        (scale, 0.0)
    }),
};

/// `IQ4_NL`
pub(super) const IQ4NL: FormatDef = FormatDef {
    name: "iq4nl",
    encoding: Encoding::IQ4NL,
    groups: &[32],
    quantize: Quantize::Group(|x, codes| {
        let scale = round_f16(extreme(x) / -127.0);
        nearest(x, codes, scale, &NON_LINEAR);
        (scale, 0.0)
    }),
};

/// `IQ4_XS`
pub(super) const IQ4XS: FormatDef = FormatDef {
    name: "iq4xs",
    encoding: Encoding::IQ4XS,
    groups: &[32],
    quantize: Quantize::Super(|x, codes, factors| of_table((x, codes), factors, 32, (127.0, &NON_LINEAR))),
};

/// `IQ1_S`, `IQ1_M`, `IQ2_XXS`, `IQ2_XS` and `IQ2_S`, whose numbers stand in grids.
pub(super) const IQ2: FormatDef = FormatDef {
    name: "iq2",
    encoding: table_of(&GRID_OF_2, 16),
    groups: &[16],
    quantize: Quantize::Super(|x, codes, factors| of_table((x, codes), factors, 16, (5.375, &GRID_OF_2))),
};

/// `IQ3_XXS`
pub(super) const IQ3: FormatDef = FormatDef {
    name: "iq3",
    encoding: table_of(&GRID_OF_3, 32),
    groups: &[32],
    quantize: Quantize::Super(|x, codes, factors| of_table((x, codes), factors, 32, (15.5, &GRID_OF_3))),
};

/// `IQ3_S`
pub(super) const IQ3S: FormatDef = FormatDef {
    name: "iq3s",
    encoding: table_of(&ODD, 32),
    groups: &[32],
    quantize: Quantize::Super(|x, codes, factors| of_table((x, codes), factors, 32, (15.0, &ODD))),
};

/// `TQ1_0` and `TQ2_0`: −1, 0 and 1.
pub(super) const TERNARY: FormatDef = FormatDef {
    name: "ternary",
    encoding: Encoding::TERNARY,
    groups: &[SUPER as usize],
    quantize: Quantize::Group(|x, codes| {
        let scale = round_f16(extreme(x).abs());
        encode(x, codes, scale, 0.0, -1.0, 1.0, 1.0);
        (scale, 0.0)
    }),
};

/// BitNet's: the same with one scale for a row, which its checkpoints have in common.
pub(super) const TERNARY_ROW: FormatDef = FormatDef {
    name: "ternaryr",
    encoding: Encoding::TERNARY_ROW,
    groups: NO_GROUPS,
    quantize: Quantize::Group(|x, codes| {
        let scale = extreme(x).abs();
        encode(x, codes, scale, 0.0, -1.0, 1.0, 1.0);
        (scale, 0.0)
    }),
};

/// The number of largest magnitude.
fn extreme(x: &[f32]) -> f32 {
    x.iter().fold(0f32, |m, v| if v.abs() > m.abs() { *v } else { m })
}

/// Codes of the numbers of a table that are nearest.
pub(super) fn nearest(x: &[f32], codes: &mut [u8], scale: f32, table: &[u32]) {
    for (c, v) in codes.iter_mut().zip(x) {
        let distance = |i: &usize| (f32::from_bits(table[*i]) * scale - v).abs();
        *c = (0..table.len()).min_by(|a, b| distance(a).total_cmp(&distance(b))).unwrap_or(0) as u8;
    }
}

/// A super-group with minima: steps from the least number (or 0, if all are above) of each group.
/// `top` is the largest code, `most` that of a scale.
pub(super) fn asymmetric(
    (x, codes): (&[f32], &mut [u8]),
    factors: &mut [(u8, u8)],
    group: usize,
    (top, most): (f32, f32),
) -> (f32, f32) {
    factors.fill((0, 0));
    let of = |x: &[f32]| {
        let (low, high) = x.iter().fold((0f32, 0f32), |(l, h), v| (l.min(*v), h.max(*v)));
        ((high - low) / top, low)
    };
    let groups: Vec<(f32, f32)> = x.chunks(group).map(of).collect();
    let largest = groups.iter().fold((0f32, 0f32), |m, g| (m.0.max(g.0), m.1.min(g.1)));
    let (scale, min) = (round_f16(largest.0 / most), round_f16(largest.1 / most));
    let code = |x: f32, unit: f32| if unit == 0.0 { 0.0 } else { (x / unit).round_ties_even().clamp(0.0, most) };
    for (((step, low), factor), (x, codes)) in
        groups.into_iter().zip(factors).zip(x.chunks(group).zip(codes.chunks_mut(group)))
    {
        let (s, m) = (code(step, scale), code(low, min));
        *factor = (s as u8, m as u8);
        encode(x, codes, scale * s, min * m, 0.0, top, 0.0);
    }
    (scale, min)
}

/// A super-group without minima. The extreme of each group gets the code `−zero`, before its scale
/// is rounded to a code from `−most` to `most`.
fn symmetric(
    (x, codes): (&[f32], &mut [u8]),
    factors: &mut [(u8, u8)],
    group: usize,
    (zero, most): (f32, f32),
) -> (f32, f32) {
    let (scale, coded) = scales(x, factors, group, (zero, most));
    for ((x, codes), s) in x.chunks(group).zip(codes.chunks_mut(group)).zip(coded) {
        encode(x, codes, scale * s, 0.0, -zero, zero - 1.0, zero);
    }
    (scale, 0.0)
}

/// A super-group of numbers of a table whose largest magnitude is `top`; scales are codes of 6
/// bits.
fn of_table(
    (x, codes): (&[f32], &mut [u8]),
    factors: &mut [(u8, u8)],
    group: usize,
    (top, table): (f32, &[u32]),
) -> (f32, f32) {
    let (scale, coded) = scales(x, factors, group, (top, 31.0));
    for ((x, codes), s) in x.chunks(group).zip(codes.chunks_mut(group)).zip(coded) {
        nearest(x, codes, scale * s, table);
    }
    (scale, 0.0)
}

/// The scale of scales, and the scale of each group as a multiple of it, which are written down as
/// codes.
fn scales(x: &[f32], factors: &mut [(u8, u8)], group: usize, (zero, most): (f32, f32)) -> (f32, Vec<f32>) {
    factors.fill((0, 0));
    let steps: Vec<f32> = x.chunks(group).map(|x| extreme(x) / -zero).collect();
    let scale = round_f16(extreme(&steps).abs() / most);
    let code = |step: f32| if scale == 0.0 { 0.0 } else { (step / scale).round_ties_even().clamp(-most, most) };
    let coded: Vec<f32> = steps.into_iter().map(code).collect();
    factors.iter_mut().zip(&coded).for_each(|(f, s)| *f = (*s as i8 as u8, 0));
    (scale, coded)
}
