//! Storage formats of weight matrices.
//!
//! [`FORMATS`] is the table: one file and one line per format. A quantized format cuts each row
//! into groups of columns (or leaves it whole), each with a scale (and a minimum if asymmetric) and
//! codes; its [`Encoding`] defines their meaning, and from it the byte layout, the evaluator and
//! every backend's generic lowering derive. A [`Packing`] orders the elements for a CPU or for
//! tensor cores. Byte layout: [`llmcc_abi::layout`].

mod codebook;
mod coded;
mod def;
pub mod fit;
mod fp4;
mod fp8;
mod fragment;
mod ggml;
mod nf4;
mod pack;
mod plain;
mod q4k;
mod scale;
pub mod table;
pub mod trellis;
mod w4;
mod w4a;
mod w4z;
mod w8;

pub use coded::{CodedRow, StoredRows};
use def::NO_GROUPS;
pub use def::{FormatDef, GROUPS, Quantize, QuantizeSuper, encode, round_f16};
pub use fp8::{E4M3_MAX, e4m3_from_f32};
pub use llmcc_abi::encoding::{Code, Encoding, Float, PAIRS_ZERO, Per, Scale, ScaleKind, e4m3_to_f32, e8m0_to_f32};
pub use llmcc_abi::layout::{BLOCK, Packing};
pub use pack::{PackError, check_finite, pack_block, pack_codes, unpack_codes, unpack_row};

use llmcc_abi::layout::{self, Block};
use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};

/// All storage formats.
pub const FORMATS: &[FormatDef] = &[
    plain::F32,
    plain::F16,
    plain::BF16,
    w8::W8,
    w4::W4,
    w4a::W4A,
    fp8::FP8,
    nf4::NF4,
    q4k::Q4K,
    w4z::W4Z,
    w4z::W8Z,
    fp8::FP8B,
    fp4::FP4,
    fp4::MXFP4,
    ggml::W5,
    ggml::W5A,
    ggml::Q2K,
    ggml::Q3K,
    ggml::Q5K,
    ggml::Q6K,
    ggml::Q8K,
    ggml::IQ4NL,
    ggml::IQ4XS,
    ggml::TERNARY,
    w4z::W2Z,
    w4z::W3Z,
    ggml::TERNARY_ROW,
    fp4::NVFP4,
    ggml::IQ2,
    ggml::IQ3,
    ggml::IQ3S,
    codebook::C4,
    codebook::C3,
    trellis::T3,
    trellis::T2,
    w4::W4S,
];

pub use llmcc_abi::encoding::ROW_GROUPS;

impl FormatDef {
    /// The formats of the line: one for each group it may have, as panels.
    pub fn formats(&'static self) -> impl Iterator<Item = Format> {
        self.groups.iter().map(move |group| Format::new(Elem(self), *group as u16))
    }
}

/// A line of [`FORMATS`]; ordered as they are.
#[derive(Clone, Copy)]
pub struct Elem(&'static FormatDef);

impl Elem {
    /// IEEE binary32.
    pub const F32: Elem = Elem(&plain::F32);
    /// IEEE binary16.
    pub const F16: Elem = Elem(&plain::F16);
    /// bfloat16.
    pub const BF16: Elem = Elem(&plain::BF16);
    /// 8 bits, symmetric, one f16 scale per group.
    pub const W8: Elem = Elem(&w8::W8);
    /// 4 bits, symmetric, one f16 scale per group.
    pub const W4: Elem = Elem(&w4::W4);
    /// 4 bits, symmetric, two of each four columns, one f16 scale per group.
    pub const W4S: Elem = Elem(&w4::W4S);
    /// 4 bits, asymmetric, one f16 scale and one f16 minimum per group.
    pub const W4A: Elem = Elem(&w4a::W4A);
    /// 8-bit floats, e4m3, one f16 scale per row.
    pub const FP8: Elem = Elem(&fp8::FP8);

    /// That of a format, which need not be in the table.
    pub const fn of(def: &'static FormatDef) -> Elem {
        Elem(def)
    }

    /// That of the line of [`FORMATS`] with this name.
    ///
    /// # Panics
    /// When there is none: for names that are written down in code.
    pub const fn named(name: &str) -> Elem {
        let mut i = 0;
        while i < FORMATS.len() {
            if same(FORMATS[i].name.as_bytes(), name.as_bytes()) {
                return Elem(&FORMATS[i]);
            }
            i += 1;
        }
        panic!("no storage format has this name")
    }

    fn place(self) -> usize {
        FORMATS.iter().position(|d| d.name == self.0.name).unwrap_or(FORMATS.len())
    }
}

const fn same(a: &[u8], b: &[u8]) -> bool {
    let mut i = 0;
    while i < a.len() && i < b.len() && a[i] == b[i] {
        i += 1;
    }
    i == a.len() && i == b.len()
}

impl PartialEq for Elem {
    fn eq(&self, other: &Elem) -> bool {
        self.0.name == other.0.name
    }
}

impl Eq for Elem {}

impl Hash for Elem {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.name.hash(state);
    }
}

impl PartialOrd for Elem {
    fn partial_cmp(&self, other: &Elem) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Elem {
    fn cmp(&self, other: &Elem) -> Ordering {
        (self.place(), self.0.name).cmp(&(other.place(), other.0.name))
    }
}

impl fmt::Debug for Elem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.name)
    }
}

/// A format with its group size and packing. Text: `bf16`, `w4g32`, `fp8`; with
/// [`Packing::Fragment`]: `bf16.frag`, `w4g32.frag`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Format {
    /// Element storage.
    pub elem: Elem,
    /// Columns per scale; 0 where there are no groups.
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
    pub const BF16: Format = Format::new(Elem::BF16, 0);

    /// e4m3 with a scale per row.
    pub const FP8: Format = Format::new(Elem::FP8, 0);

    /// A format in panels; `group` is 0 where there are none.
    pub const fn new(elem: Elem, group: u16) -> Format {
        Format { elem, group, packing: Packing::Panel }
    }

    /// Whether values have the same codes and scales, in whatever order.
    pub fn has_codes_of(self, other: Format) -> bool {
        (self.elem, self.group) == (other.elem, other.group)
    }

    /// The same values in another order.
    pub const fn with_packing(self, packing: Packing) -> Format {
        Format { packing, ..self }
    }

    /// The format of all values of a row, where this has some of each four.
    pub fn dense(self) -> Format {
        match self.encoding().code {
            Code::Pairs => Format { elem: Elem::W4, ..self },
            Code::Float(_) | Code::Int { .. } | Code::Signed { .. } | Code::Table { .. } | Code::Trellis(_) => self,
        }
    }

    /// The table line.
    pub fn def(self) -> &'static FormatDef {
        self.elem.0
    }

    /// The encoding of its numbers.
    pub fn encoding(self) -> Encoding {
        self.def().encoding.in_groups(self.group.into())
    }

    /// The encoding of the same numbers as its packing has them: in fragment order each element has a code of its own
    /// ([`Encoding::by_itself`]).
    pub fn packed_encoding(self) -> Encoding {
        match self.packing {
            Packing::Panel => self.encoding(),
            Packing::Fragment => self.encoding().by_itself(),
        }
    }

    /// Whether the packing has the codes of the format. It has none for plain floats, and others for the same values
    /// where it is in fragment order and the format a trellis.
    pub fn keeps_codes(self) -> bool {
        let other = matches!((self.packing, self.encoding().code), (Packing::Fragment, Code::Trellis(_)));
        self.is_quantized() && !other
    }

    /// Whether values are quantized.
    pub fn is_quantized(self) -> bool {
        self.def().encoding.is_quantized()
    }

    /// Whether the group is one that the format may have.
    pub fn has_its_group(self) -> bool {
        self.def().groups.contains(&usize::from(self.group))
    }

    /// Reads `bf16`, `w4g32.frag`...
    pub fn parse(text: &str) -> Option<Format> {
        let (text, packing) = match text.strip_suffix(FRAGMENT) {
            Some(text) => (text, Packing::Fragment),
            None => (text, Packing::Panel),
        };
        for d in FORMATS {
            let Some(rest) = text.strip_prefix(d.name) else { continue };
            let group = match (d.groups, rest.strip_prefix('g')) {
                ([only], None) if rest.is_empty() => Some(*only),
                ([_], _) => None,
                (_, group) => group.and_then(|g| g.parse().ok()),
            };
            if let Some(group) = group.filter(|g| d.groups.contains(g)) {
                return Some(Format { elem: Elem(d), group: group as u16, packing });
            }
        }
        None
    }

    /// Byte layout of one block of 16 rows of `k` columns.
    pub fn block(self, k: usize) -> Block {
        match self.packing {
            Packing::Panel => layout::block(&self.encoding(), k),
            Packing::Fragment => layout::fragment_block(&self.encoding(), k),
        }
    }

    /// Bytes of a tile of 16 rows and 64 columns in fragment order.
    pub fn tile_bytes(self) -> usize {
        layout::fragment_tile_bytes(&self.def().encoding)
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
        if self.def().groups.len() > 1 {
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
