//! Storage of matrices of rows.

use crate::quant::{Code, Encoding, Float, Per, Scale, ScaleKind};
use llmcc_abi::layout::K_PAD;
use std::fmt;

/// Storage of a matrix of rows. Text: `f32`, `q8g32`, `i8g32`, `f16`, `bf16`, `fp8`.
/// [`RowElem::encoding`] describes its numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum RowElem {
    /// f32, row-major, rows adjacent.
    F32,
    /// int8 codes, then one f32 scale and one i32 sum of codes per `group` columns
    /// (`scale = amax/127`, code = round-half-even(x·127/amax)).
    Q8 {
        /// Columns per scale.
        group: usize,
    },
    /// The same with scales of 1: the codes are the values, each rounded to the nearest integer of −128
    /// to 127 (ties to even) as [`UnaryOp::RoundI8`](crate::graph::UnaryOp::RoundI8) does. So such rows
    /// hold the inputs of products that a checkpoint rounds by scales of its own without loss. A group
    /// with something that is no number has a scale that is none.
    I8 {
        /// Columns per scale.
        group: usize,
    },
    /// f16, row-major, each row rounded up to 16 bytes; a stored f32 is rounded to nearest even.
    F16,
    /// bfloat16, as [`RowElem::F16`].
    Bf16,
    /// e4m3 codes with one f32 scale per row (`scale = amax/448`, code = nearest to x·448/amax).
    Fp8,
}

impl RowElem {
    /// Those without a parameter, with their names in text.
    pub const NAMED: &[(RowElem, &'static str)] =
        &[(RowElem::F32, "f32"), (RowElem::F16, "f16"), (RowElem::Bf16, "bf16"), (RowElem::Fp8, "fp8")];

    /// The encoding of the numbers.
    pub const fn encoding(self) -> Encoding {
        match self {
            RowElem::F32 => Encoding::F32,
            RowElem::F16 => Encoding::F16,
            RowElem::Bf16 => Encoding::BF16,
            RowElem::Q8 { group } | RowElem::I8 { group } => {
                Encoding::scaled(Code::Signed { bits: 8 }, Scale::new(Per::Group(group as u16), ScaleKind::F32))
            }
            RowElem::Fp8 => Encoding::scaled(Code::Float(Float::E4m3), Scale::new(Per::Row, ScaleKind::F32)),
        }
    }

    /// The storage named `name` in text.
    pub fn parse(name: &str) -> Option<RowElem> {
        let group = |prefix: &str| name.strip_prefix(prefix).map(str::parse::<usize>);
        match (group("q8g"), group("i8g")) {
            (Some(group), _) => group.ok().map(|group| RowElem::Q8 { group }),
            (_, Some(group)) => group.ok().map(|group| RowElem::I8 { group }),
            (None, None) => RowElem::NAMED.iter().find(|(_, n)| *n == name).map(|(elem, _)| *elem),
        }
    }

    /// Columns per scale of int8 rows.
    pub const fn group(self) -> Option<usize> {
        match self {
            RowElem::Q8 { group } | RowElem::I8 { group } => Some(group),
            RowElem::F32 | RowElem::F16 | RowElem::Bf16 | RowElem::Fp8 => None,
        }
    }

    /// Columns that are stored together, but for the last of a row: groups of int8 rows, and of smaller
    /// groups slices, which a store fills up with zeros.
    pub const fn run(self) -> usize {
        match self {
            RowElem::Q8 { group } | RowElem::I8 { group } if group < K_PAD => K_PAD,
            RowElem::Q8 { group } | RowElem::I8 { group } => group,
            RowElem::F32 | RowElem::F16 | RowElem::Bf16 | RowElem::Fp8 => 1,
        }
    }

    /// The kind of floats without scales.
    pub const fn float(self) -> Option<Float> {
        self.encoding().float()
    }

    /// Whether a scale belongs to a whole row, so that only who has all of it can store it.
    pub const fn by_row(self) -> bool {
        self.encoding().by_row()
    }

    /// Whether elements have a scale of their row or group.
    pub const fn is_quantized(self) -> bool {
        self.encoding().is_quantized()
    }

    /// Whether elements are 16-bit floats.
    pub const fn is_half(self) -> bool {
        matches!(self.float(), Some(Float::F16 | Float::Bf16))
    }

    /// Whether elements are e4m3 numbers.
    pub const fn is_e4m3(self) -> bool {
        matches!(self.encoding().code, Code::Float(Float::E4m3))
    }

    /// A float element as it reads back once `x` is stored; int8 and fp8 rows quantize by groups,
    /// not by element, and leave `x` as it is.
    pub fn round(self, x: f32) -> f32 {
        match self.float() {
            Some(Float::F16) => half::f16::from_f32(x).to_f32(),
            Some(Float::Bf16) => half::bf16::from_f32(x).to_f32(),
            Some(Float::F32 | Float::E4m3) | None => x,
        }
    }
}

impl fmt::Display for RowElem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RowElem::Q8 { group } => write!(f, "q8g{group}"),
            RowElem::I8 { group } => write!(f, "i8g{group}"),
            named => f.write_str(RowElem::NAMED.iter().find(|(elem, _)| elem == named).map_or("?", |(_, name)| name)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_round_trip() {
        for elem in
            RowElem::NAMED.iter().map(|(elem, _)| *elem).chain([RowElem::Q8 { group: 32 }, RowElem::I8 { group: 128 }])
        {
            assert_eq!(RowElem::parse(&elem.to_string()), Some(elem));
        }
        for wrong in ["", "q8", "q8g", "w4g32", "fp8g32", "i8", "i8g-1"] {
            assert_eq!(RowElem::parse(wrong), None, "{wrong}");
        }
    }
}
