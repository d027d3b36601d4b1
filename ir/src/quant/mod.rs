//! Storage formats of weight matrices.
//!
//! [`FORMATS`] is the table: one file and one line per format. A quantized format cuts each row into groups of columns (or leaves it whole), each with an f16
//! scale (and an f16 minimum if asymmetric) and codes; a code stands for the value of its [`Decode`] expression, from which the evaluator and every
//! backend derive their generic lowering. A [`Packing`] orders the elements for a CPU or for tensor cores. Byte layout: [`llmcc_abi::layout`].

mod fp8;
mod fragment;
mod pack;
mod plain;
mod w4;
mod w4a;
mod w8;

pub use fp8::{E4M3_MAX, e4m3_from_f32, e4m3_to_f32};
pub use llmcc_abi::layout::{BLOCK, Elem, Packing};
pub use pack::{PackError, pack_block, unpack_row};

use llmcc_abi::layout::{self, Block};
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
    /// Quantizes one group of a row (the whole row where formats have no groups): writes a code per element and returns `(scale, min)`, both exactly representable in f16.
    pub quantize: fn(x: &[f32], codes: &mut [u8]) -> (f32, f32),
}

/// The value of a code `u`: `scale·(u − zero)`, plus the group's minimum if `min`; of a float, `scale·e4m3(u)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decode {
    /// Subtracted from the code.
    pub zero: i32,
    /// Whether a minimum is added (asymmetric format).
    pub min: bool,
    /// Whether codes are e4m3 numbers, and there is a scale per row.
    pub float: bool,
}

impl Decode {
    /// The decoded value in f32: `scale·(u − zero)` or `scale·e4m3(u)` rounded once; with a minimum, `fma(scale, u − zero, min)`.
    pub fn value(self, u: u8, scale: f32, min: f32) -> f32 {
        if self.float {
            return scale * e4m3_to_f32(u);
        }
        let q = (i32::from(u) - self.zero) as f32;
        if self.min { scale.mul_add(q, min) } else { scale * q }
    }
}

/// All storage formats.
pub const FORMATS: &[FormatDef] = &[plain::F32, plain::F16, plain::BF16, w8::W8, w4::W4, w4a::W4A, fp8::FP8];

/// Groups a quantized format of integers may have.
pub const GROUPS: &[usize] = &[32, 64, 128];

impl FormatDef {
    /// Groups it may have; 0 where there are none.
    pub fn groups(&self) -> &'static [usize] {
        if self.decode.is_some_and(|d| !d.float) { GROUPS } else { &[0] }
    }

    /// Whether there is one scale per row.
    pub fn by_row(&self) -> bool {
        self.decode.is_some_and(|d| d.float)
    }
}

/// A format with its group size and packing. Text: `bf16`, `w4g32`, `fp8`; with [`Packing::Fragment`]: `bf16.frag`, `w4g32.frag`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Format {
    /// Element storage.
    pub elem: Elem,
    /// Columns per scale; 0 for plain floats, and where there is a scale per row.
    pub group: u16,
    /// Order of the elements. The values stored do not depend on it.
    pub packing: Packing,
}

/// Suffix of formats in fragment order.
const FRAGMENT: &str = ".frag";

impl Format {
    /// Plain f32.
    pub const F32: Format = Format::new(Elem::F32, 0);
    /// Plain f16.
    pub const F16: Format = Format::new(Elem::F16, 0);
    /// Plain bf16.
    pub const BF16: Format = Format::new(Elem::Bf16, 0);

    /// e4m3 with a scale per row.
    pub const FP8: Format = Format::new(Elem::Fp8, 0);

    /// A format in panels; `group` is 0 where there are none.
    pub const fn new(elem: Elem, group: u16) -> Format {
        Format { elem, group, packing: Packing::Panel }
    }

    /// The same values in another order.
    pub const fn with_packing(self, packing: Packing) -> Format {
        Format { packing, ..self }
    }

    /// The table line.
    pub fn def(self) -> &'static FormatDef {
        FORMATS.iter().find(|d| d.elem == self.elem).unwrap_or(&plain::F32)
    }

    /// Whether values are quantized.
    pub fn is_quantized(self) -> bool {
        self.def().decode.is_some()
    }

    /// Reads `bf16`, `w4g32.frag`...
    pub fn parse(text: &str) -> Option<Format> {
        let (text, packing) = match text.strip_suffix(FRAGMENT) {
            Some(text) => (text, Packing::Fragment),
            None => (text, Packing::Panel),
        };
        for d in FORMATS {
            let Some(rest) = text.strip_prefix(d.name) else { continue };
            let group = match rest.strip_prefix('g') {
                None if rest.is_empty() => Some(0),
                Some(g) if g != "0" => g.parse().ok(),
                _ => None,
            };
            if let Some(group) = group.filter(|g| d.groups().contains(g)) {
                return Some(Format { elem: d.elem, group: group as u16, packing });
            }
        }
        None
    }

    /// Byte layout of one block of 16 rows of `k` columns.
    pub fn block(self, k: usize) -> Block {
        match self.packing {
            Packing::Panel => layout::block(self.elem, k, self.group.into()),
            Packing::Fragment => layout::fragment_block(self.elem, k, self.group.into()),
        }
    }

    /// Columns stored per row: `k` and its padding.
    pub fn padded_k(self, k: usize) -> usize {
        match self.packing {
            Packing::Fragment => layout::round_up(k, layout::FRAGMENT_K),
            Packing::Panel if self.is_quantized() => layout::padded_k(k),
            Packing::Panel => k,
        }
    }

    /// Bytes of a packed `[n, k]` matrix.
    pub fn packed_bytes(self, n: usize, k: usize) -> usize {
        n.div_ceil(BLOCK) * self.block_bytes(k)
    }

    /// Bytes of one block of 16 rows.
    pub fn block_bytes(self, k: usize) -> usize {
        self.block(k).bytes
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.def().name)?;
        if self.is_quantized() && !self.def().by_row() {
            write!(f, "g{}", self.group)?;
        }
        match self.packing {
            Packing::Panel => Ok(()),
            Packing::Fragment => f.write_str(FRAGMENT),
        }
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
