//! 4 bits, NormalFloat: quantiles of a normal distribution, scaled by the largest magnitude of 64
//! columns (QLoRA, Dettmers et al. 2023, arXiv 2305.14314). The table is that of bitsandbytes,
//! whose scales are f32.

use super::{Encoding, FormatDef, Quantize};
use llmcc_abi::encoding::NORMAL_FLOAT as VALUES;

pub(super) const NF4: FormatDef =
    FormatDef { name: "nf4", encoding: Encoding::NF4, groups: &[64], quantize: Quantize::Group(quantize) };

fn quantize(x: &[f32], codes: &mut [u8]) -> (f32, f32) {
    let scale = x.iter().fold(0f32, |m, v| m.max(v.abs()));
    for (c, v) in codes.iter_mut().zip(x) {
        let v = if scale == 0.0 { 0.0 } else { v / scale };
        // The first number that is nearer than the next one.
        let nearer = |w: &[u32]| v <= (f32::from_bits(w[0]) + f32::from_bits(w[1])) / 2.0;
        *c = VALUES.windows(2).position(nearer).unwrap_or(VALUES.len() - 1) as u8;
    }
    (scale, 0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The table as bitsandbytes publishes it, in f64.
    #[test]
    fn the_table_is_that_of_bitsandbytes() {
        let published = [
            -1.0,
            -0.6961928009986877,
            -0.5250730514526367,
            -0.39491748809814453,
            -0.28444138169288635,
            -0.18477343022823334,
            -0.09105003625154495,
            0.0,
            0.07958029955625534,
            0.16093020141124725,
            0.24611230194568634,
            0.33791524171829224,
            0.44070982933044434,
            0.5626170039176941,
            0.7229568362236023,
            1.0f64,
        ];
        for (bits, value) in VALUES.iter().zip(published) {
            assert_eq!(f64::from(f32::from_bits(*bits)), value);
        }
    }

    #[test]
    fn codes_are_the_nearest_numbers() {
        let x: Vec<f32> = (0..=400).map(|i| i as f32 / 100.0 - 2.0).collect();
        let mut codes = vec![0; x.len()];
        let (scale, _) = quantize(&x, &mut codes);
        assert_eq!(scale, 2.0);
        for (x, c) in x.iter().zip(codes) {
            let distance = |c: usize| (f32::from_bits(VALUES[c]) * 2.0 - x).abs();
            let least = (0..16).map(distance).fold(f32::INFINITY, f32::min);
            assert!(distance(c.into()) <= least + 1e-6, "{x} got code {c}");
        }
    }
}
