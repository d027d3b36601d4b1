//! Tables of 4-bit floats: bitsandbytes' FP4, and e2m1 with powers of two as scales (MXFP4, OCP
//! Microscaling Formats 1.0), or with e4m3 ones (NVFP4).

use super::ggml::nearest;
use super::{Code, E4M3_MAX, Encoding, FormatDef, Per, Quantize, Scale, ScaleKind, e4m3_from_f32, e4m3_to_f32};

/// Scales are the largest magnitude of 64 columns.
pub(super) const FP4: FormatDef = FormatDef {
    name: "fp4",
    encoding: Encoding::scaled(Code::Table { bits: 4, values: &VALUES }, Scale::new(Per::Group(0), ScaleKind::F32)),
    groups: &[64],
    quantize: Quantize::Group(|x, codes| {
        let scale = x.iter().fold(0f32, |m, v| m.max(v.abs()));
        nearest(x, codes, scale, &VALUES);
        (scale, 0.0)
    }),
};

pub(super) const MXFP4: FormatDef = FormatDef {
    name: "mxfp4",
    encoding: Encoding::scaled(Code::Table { bits: 4, values: &E2M1 }, Scale::new(Per::Group(0), ScaleKind::E8m0)),
    groups: &[32],
    quantize: Quantize::Group(|x, codes| {
        let largest = x.iter().fold(f32::MIN_POSITIVE, |m, v| m.max(v.abs()));
        let scale = (largest / 6.0).log2().ceil().exp2();
        nearest(x, codes, scale, &E2M1);
        (scale, 0.0)
    }),
};

/// NVIDIA's: e4m3 scales for 16 columns, and above them a number that files have for a whole matrix.
pub(super) const NVFP4: FormatDef = FormatDef {
    name: "nvfp4",
    encoding: Encoding {
        code: Code::Table { bits: 4, values: &E2M1 },
        scales: [Some(Scale::new(Per::Group(0), ScaleKind::E4m3)), Some(Scale::new(Per::Group(256), ScaleKind::F32))],
    },
    groups: &[16],
    quantize: Quantize::Super(|x, codes, factors| {
        let largest = |x: &[f32]| x.iter().fold(0f32, |m, v| m.max(v.abs()));
        let above = largest(x) / (6.0 * E4M3_MAX);
        factors.fill((0, 0));
        for ((x, codes), factor) in x.chunks(16).zip(codes.chunks_mut(16)).zip(factors) {
            factor.0 = if above == 0.0 { 0 } else { e4m3_from_f32(largest(x) / 6.0 / above) };
            nearest(x, codes, above * e4m3_to_f32(factor.0), &E2M1);
        }
        (above, 0.0)
    }),
};

/// Of bitsandbytes: eight numbers, and their negatives.
const VALUES: [u32; 16] =
    with_negatives([0.0, 0.005_208_333_5, 0.666_666_7, 1.0, 0.333_333_34, 0.5, 0.166_666_67, 0.25]);

const E2M1: [u32; 16] = with_negatives([0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0]);

const fn with_negatives(numbers: [f32; 8]) -> [u32; 16] {
    let (mut out, mut i) = ([0; 16], 0);
    while i < 8 {
        out[i] = numbers[i].to_bits();
        out[i + 8] = (-numbers[i]).to_bits();
        i += 1;
    }
    out
}
