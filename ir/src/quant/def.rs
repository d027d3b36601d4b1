//! Lines of the table of storage formats, and what their quantizers share.

use super::Encoding;

/// One storage format: a line of `FORMATS`.
pub struct FormatDef {
    /// Name in text and options, without the group.
    pub name: &'static str,
    /// Encoding of codes and scales. Where [`FormatDef::groups`] lists several sizes, it is the
    /// encoding for one of them.
    pub encoding: Encoding,
    /// Columns to a scale that it may have; 0 where there are no groups.
    pub groups: &'static [usize],
    /// How f32 become codes.
    pub quantize: Quantize,
}

/// Quantizes one super-block of a row. Writes a code per element, and the scale and minimum of each
/// group as small numbers; returns the factors of scales and of minima.
pub type QuantizeSuper = fn(x: &[f32], codes: &mut [u8], factors: &mut [(u8, u8)]) -> (f32, f32);

/// How f32 become codes and scales. Scales and minima that are returned are exact in the kind in
/// which they are stored.
pub enum Quantize {
    /// Floats: each is rounded to nearest even.
    Round,
    /// Each group of a row by itself (the whole row where there are no groups): writes a code per
    /// element and returns `(scale, minimum)`.
    Group(fn(x: &[f32], codes: &mut [u8]) -> (f32, f32)),
    /// All groups that share a scale of scales: writes a code per element, the codes of
    /// `(scale, minimum)` of each group, and returns the scales of those.
    Super(QuantizeSuper),
}

/// Groups a quantized format of integers may have.
pub const GROUPS: &[usize] = &[32, 64, 128];

/// No groups.
pub(super) const NO_GROUPS: &[usize] = &[0];

impl FormatDef {
    /// Whether there is one scale per row.
    pub const fn by_row(&self) -> bool {
        self.encoding.by_row()
    }

    /// Bits per code or element.
    pub const fn bits(&self) -> u32 {
        self.encoding.bits()
    }
}

/// Rounds to f16 and back.
pub fn round_f16(x: f32) -> f32 {
    half::f16::from_f32(x).to_f32()
}

/// Quantizes with a given scale and offset:
/// `clamp(round_half_even((x − min)/scale), lo, hi) + bias`; 0 scale gives code `bias`.
pub fn encode(x: &[f32], codes: &mut [u8], scale: f32, min: f32, lo: f32, hi: f32, bias: f32) {
    if scale == 0.0 {
        codes.fill(bias as u8);
        return;
    }
    // Adding 1.5·2²³ leaves the integer nearest to a small number (ties to even) in the lowest
    // bits: vector code on every target.
    const ROUND: f32 = 12_582_912.0;
    for (c, v) in codes.iter_mut().zip(x) {
        let q = ((v - min) / scale).clamp(lo, hi);
        *c = ((q + ROUND).to_bits() as u8).wrapping_add(bias as u8);
    }
}
