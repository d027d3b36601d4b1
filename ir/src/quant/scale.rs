//! Scales and minima as bytes.

use super::ScaleKind;
use half::{bf16, f16};
use llmcc_abi::encoding::{e4m3_to_f32, e8m0_to_f32};
use llmcc_abi::layout::{SIX_LOW, six_places};

/// Writes a factor, which is exact in `kind`, to the start of `out`; one that is
/// a code is that.
pub(super) fn put(kind: ScaleKind, x: f32, out: &mut [u8]) {
    match kind {
        ScaleKind::F32 => out[..4].copy_from_slice(&x.to_le_bytes()),
        ScaleKind::F16 => out[..2].copy_from_slice(&f16::from_f32(x).to_le_bytes()),
        ScaleKind::Bf16 => out[..2].copy_from_slice(&bf16::from_f32(x).to_le_bytes()),
        ScaleKind::E8m0 => out[0] = (x.to_bits() >> 23) as u8,
        ScaleKind::E4m3 => out[0] = super::e4m3_from_f32(x),
        ScaleKind::Unsigned { .. } => out[0] = x as u8,
        ScaleKind::Signed { .. } | ScaleKind::Six => out[0] = x as i8 as u8,
    }
}

/// The inverse of [`put`].
pub(super) fn get(kind: ScaleKind, bytes: &[u8]) -> f32 {
    match kind {
        ScaleKind::F32 => f32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]),
        ScaleKind::F16 => f16::from_le_bytes([bytes[0], bytes[1]]).to_f32(),
        ScaleKind::Bf16 => bf16::from_le_bytes([bytes[0], bytes[1]]).to_f32(),
        ScaleKind::E8m0 => e8m0_to_f32(bytes[0]),
        ScaleKind::E4m3 => e4m3_to_f32(bytes[0]),
        ScaleKind::Unsigned { .. } => bytes[0].into(),
        ScaleKind::Signed { .. } | ScaleKind::Six => f32::from(bytes[0] as i8),
    }
}

/// Writes scale `x` of [`ScaleKind::Six`], of a row and a group of a record, to the zeros of its planes: `at` is where
/// the lower one begins.
pub(super) fn put_six(x: f32, (row, group): (usize, usize), at: usize, out: &mut [u8]) {
    let [(low, low_bit), (high, high_bit)] = six_places(row, group);
    let code = x as i8 as u8;
    out[at + low] |= (code & 15) << low_bit;
    out[at - SIX_LOW + high] |= (code >> 4 & 3) << high_bit;
}

/// The inverse of [`put_six`].
pub(super) fn get_six((row, group): (usize, usize), at: usize, bytes: &[u8]) -> f32 {
    let [(low, low_bit), (high, high_bit)] = six_places(row, group);
    let code = bytes[at + low] >> low_bit & 15 | (bytes[at - SIX_LOW + high] >> high_bit & 3) << 4;
    f32::from(((code << 2) as i8) >> 2)
}
