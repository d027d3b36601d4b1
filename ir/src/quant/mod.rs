//! Storage formats of weight matrices.
//!
//! [`FORMATS`] is the table: one file and one line per format. A quantized format cuts each row into groups of columns, each with an f16
//! scale (and an f16 minimum if asymmetric) and unsigned codes; a code stands for the value of its [`Decode`] expression, from which the evaluator and every
//! backend derive their generic lowering. Byte layout: [`llmcc_abi::layout`].

mod pack;
mod plain;
mod w4;
mod w4a;
mod w8;

pub use llmcc_abi::layout::{BLOCK, Elem};
pub use pack::{PackError, pack_block, unpack_row};

use llmcc_abi::layout;
use std::fmt;

/// One storage format: a line of [`FORMATS`].
pub struct FormatDef {
    /// Name in text and options, without the group.
    pub name: &'static str,
    /// Element storage.
    pub elem: Elem,
    /// Bits per code or element.
    pub bits: u32,
    /// How codes become values; `None` for plain floats.
    pub decode: Option<Decode>,
    /// Quantizes one group of a row: writes a code per element and returns `(scale, min)`, both exactly representable in f16.
    pub quantize: fn(x: &[f32], codes: &mut [u8]) -> (f32, f32),
}

/// The value of an unsigned code `u`: `scale·(u − zero)`, plus the group's minimum if `min`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decode {
    /// Subtracted from the code.
    pub zero: i32,
    /// Whether a minimum is added (asymmetric format).
    pub min: bool,
}

impl Decode {
    /// The decoded value in f32: `scale·(u − zero)` rounded once; with a minimum, `fma(scale, u − zero, min)`.
    pub fn value(self, u: u8, scale: f32, min: f32) -> f32 {
        let q = (i32::from(u) - self.zero) as f32;
        if self.min { scale.mul_add(q, min) } else { scale * q }
    }
}

/// All storage formats.
pub const FORMATS: &[FormatDef] = &[plain::F32, plain::F16, plain::BF16, w8::W8, w4::W4, w4a::W4A];

/// Groups a quantized format may have.
pub const GROUPS: &[usize] = &[32, 64, 128];

/// A format with its group size. Text: `bf16`, `w4g32`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Format {
    /// Element storage.
    pub elem: Elem,
    /// Columns per scale; 0 for plain floats.
    pub group: u16,
}

impl Format {
    /// Plain f32.
    pub const F32: Format = Format { elem: Elem::F32, group: 0 };
    /// Plain f16.
    pub const F16: Format = Format { elem: Elem::F16, group: 0 };
    /// Plain bf16.
    pub const BF16: Format = Format { elem: Elem::Bf16, group: 0 };

    /// The table line.
    pub fn def(self) -> &'static FormatDef {
        FORMATS.iter().find(|d| d.elem == self.elem).unwrap_or(&plain::F32)
    }

    /// Whether values are quantized.
    pub fn is_quantized(self) -> bool {
        self.def().decode.is_some()
    }

    /// Reads `bf16`, `w4g32`...
    pub fn parse(text: &str) -> Option<Format> {
        for d in FORMATS {
            let Some(rest) = text.strip_prefix(d.name) else { continue };
            match (d.decode.is_some(), rest.strip_prefix('g')) {
                (false, None) if rest.is_empty() => return Some(Format { elem: d.elem, group: 0 }),
                (true, Some(g)) => {
                    if let Some(g) = g.parse().ok().filter(|g| GROUPS.contains(g)) {
                        return Some(Format { elem: d.elem, group: g as u16 });
                    }
                }
                _ => {}
            }
        }
        None
    }

    /// Bytes of a packed `[n, k]` matrix.
    pub fn packed_bytes(self, n: usize, k: usize) -> usize {
        layout::packed_bytes(self.elem, n, k, self.group.into())
    }

    /// Bytes of one block of 16 rows.
    pub fn block_bytes(self, k: usize) -> usize {
        layout::block(self.elem, k, self.group.into()).bytes
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.def().name)?;
        if self.is_quantized() { write!(f, "g{}", self.group) } else { Ok(()) }
    }
}

/// Bytes of an int8 activation row.
pub fn q8_row_bytes(cols: usize, group: usize) -> usize {
    layout::q8_row(cols, group).bytes
}

/// Rounds to f16 and back.
pub(crate) fn round_f16(x: f32) -> f32 {
    half::f16::from_f32(x).to_f32()
}

/// Quantizes with a given scale and offset: `clamp(round_half_even((x − min)/scale), lo, hi) + bias`; 0 scale gives code `bias`.
pub(crate) fn encode(x: &[f32], codes: &mut [u8], scale: f32, min: f32, lo: f32, hi: f32, bias: f32) {
    if scale == 0.0 {
        codes.fill(bias as u8);
        return;
    }
    // Adding 1.5·2²³ leaves the integer nearest to a small number (ties to even) in the lowest bits: vector code on every target.
    const ROUND: f32 = 12_582_912.0;
    for (c, v) in codes.iter_mut().zip(x) {
        let q = ((v - min) / scale).clamp(lo, hi);
        *c = ((q + ROUND).to_bits() as u8).wrapping_add(bias as u8);
    }
}
