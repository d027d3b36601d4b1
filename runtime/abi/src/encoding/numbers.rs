//! The numbers of codes and scales that are no integers.

/// The 16 numbers of GGML's non-linear formats.
pub const NON_LINEAR: [u32; 16] = integers([-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113]);

/// The codebook of `c4`, ascending: levels of least squared error (Lloyd 1982, "Least squares quantization in
/// PCM") of normally distributed groups of 32 numbers, each with the best scale of either sign.
pub const CODEBOOK_4: [u32; 16] = integers([-127, -95, -73, -56, -41, -28, -15, -3, 8, 20, 31, 43, 56, 72, 91, 115]);

/// The codebook of `c3`, made alike.
pub const CODEBOOK_3: [u32; 8] = integers([-105, -65, -35, -8, 17, 43, 76, 127]);

/// The levels of [`trellis::T2`](super::trellis::T2).
pub const T2_LEVELS: [u32; 16] = {
    let (mut out, mut i) = ([0; 16], 0);
    while i < 16 {
        out[i] = (super::trellis::T2.level_of(i) as f32).to_bits();
        i += 1;
    }
    out
};

/// Integers as bits of f32.
const fn integers<const N: usize>(numbers: [i32; N]) -> [u32; N] {
    let (mut out, mut i) = ([0; N], 0);
    while i < N {
        out[i] = (numbers[i] as f32).to_bits();
        i += 1;
    }
    out
}

/// The 16 numbers of NF4, ascending: quantiles of a normal distribution, as bitsandbytes has them.
pub const NORMAL_FLOAT: [u32; 16] = [
    (-1.0f32).to_bits(),
    (-0.696_192_8f32).to_bits(),
    (-0.525_073_05f32).to_bits(),
    (-0.394_917_5f32).to_bits(),
    (-0.284_441_38f32).to_bits(),
    (-0.184_773_43f32).to_bits(),
    (-0.091_050_036f32).to_bits(),
    0f32.to_bits(),
    0.079_580_3f32.to_bits(),
    0.160_930_2f32.to_bits(),
    0.246_112_3f32.to_bits(),
    0.337_915_24f32.to_bits(),
    0.440_709_83f32.to_bits(),
    0.562_617f32.to_bits(),
    0.722_956_84f32.to_bits(),
    1f32.to_bits(),
];

/// The numbers of bitsandbytes' FP4.
pub const FP4_VALUES: [u32; 16] =
    with_negatives([0.0, 0.005_208_333_5, 0.666_666_7, 1.0, 0.333_333_34, 0.5, 0.166_666_67, 0.25]);

/// The numbers of e2m1.
pub const E2M1: [u32; 16] = with_negatives([0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0]);

/// Eight numbers, and their negatives.
pub const fn with_negatives(numbers: [f32; 8]) -> [u32; 16] {
    let (mut out, mut i) = ([0; 16], 0);
    while i < 8 {
        out[i] = numbers[i].to_bits();
        out[i + 8] = (-numbers[i]).to_bits();
        i += 1;
    }
    out
}

/// The value of an e4m3 number, as the OCP 8-bit Floating Point Specification has it: sign, 4 bits
/// of exponent with bias 7, 3 of mantissa; subnormal numbers, no infinities, NaN for an exponent
/// and a mantissa of ones only.
pub const fn e4m3_to_f32(code: u8) -> f32 {
    let magnitude = code & 0x7f;
    if magnitude == 0x7f {
        return f32::NAN;
    }
    // The bits where f32 has its own, 120 exponents too low; the product is exact, also of
    // subnormal numbers.
    let x = f32::from_bits((magnitude as u32) << 20) * f32::from_bits((127 + 120) << 23);
    if code >> 7 == 1 { -x } else { x }
}

/// The value of an e8m0 number, as in the OCP Microscaling Formats 1.0: `2^(u − 127)`, whose least
/// is subnormal in f32. 255 is none; it becomes infinity, which packing refuses.
pub const fn e8m0_to_f32(code: u8) -> f32 {
    f32::from_bits(if code == 0 { 1 << 22 } else { (code as u32) << 23 })
}
