//! Tables of 4-bit floats: bitsandbytes' FP4, and e2m1 with powers of two as scales (MXFP4, OCP
//! Microscaling Formats 1.0), or with e4m3 ones (NVFP4).

use super::ggml::nearest;
use super::{E4M3_MAX, Encoding, FormatDef, Quantize, e4m3_from_f32, e4m3_to_f32};
use llmcc_abi::encoding::{E2M1, FP4_VALUES as VALUES};

/// Scales are the largest magnitude of 64 columns.
pub(super) const FP4: FormatDef = FormatDef {
    name: "fp4",
    encoding: Encoding::FP4,
    groups: &[64],
    quantize: Quantize::Group(|x, codes| {
        let scale = x.iter().fold(0f32, |m, v| m.max(v.abs()));
        nearest(x, codes, scale, &VALUES);
        (scale, 0.0)
    }),
};

pub(super) const MXFP4: FormatDef = FormatDef {
    name: "mxfp4",
    encoding: Encoding::MXFP4,
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
    encoding: Encoding::NVFP4,
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
