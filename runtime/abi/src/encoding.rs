//! Kinds of numbers: the one description of weights, rows of activations, caches and tensors of
//! checkpoints.
//!
//! A thing is stored as **codes**, one per element, and **scales** for runs of them. The value of
//! an element is
//!
//! - `number(code)` without scales,
//! - `scale · number(code)` with a scale, rounded to f32 once,
//! - `fma(scale, number(code), minimum)` with a scale and a minimum.
//!
//! Scales may be codes themselves: with two levels, `scale = above.scale · scale`,
//! `minimum = above.minimum · minimum`. Byte layouts ([`crate::layout`]), text, evaluation, packing
//! and the generic lowerings of backends derive from this.

mod numbers;
pub mod trellis;

pub use numbers::*;

use trellis::Trellis;

/// Storage of an element, and the meaning of its codes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Code {
    /// A float.
    Float(Float),
    /// An unsigned number `u` of 1 to 8 bits: `u − zero`.
    Int {
        /// Bits of a code.
        bits: u32,
        /// Subtracted from the code.
        zero: i32,
    },
    /// An integer in two's complement.
    Signed {
        /// Bits of a code.
        bits: u32,
    },
    /// An index of 1 to 8 bits.
    Table {
        /// Bits of a code.
        bits: u32,
        /// The numbers, as bits of f32; `2^bits` of them.
        values: &'static [u32],
    },
    /// A code whose number depends on the codes before it, too.
    Trellis(&'static Trellis),
    /// An unsigned number `u` of 4 bits: `u − 8`. Two of each four adjacent columns are stored, with their places among
    /// the four ([`crate::layout::pair_at`]), and the other two are 0: 3 bits for a column.
    Pairs,
}

/// Kinds of floats.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Float {
    /// IEEE binary32.
    F32,
    /// IEEE binary16.
    F16,
    /// bfloat16.
    Bf16,
    /// e4m3 of the OCP 8-bit Floating Point Specification ([`e4m3_to_f32`]).
    E4m3,
}

impl Float {
    /// Bytes of one.
    pub const fn bytes(self) -> usize {
        match self {
            Float::F32 => 4,
            Float::F16 | Float::Bf16 => 2,
            Float::E4m3 => 1,
        }
    }
}

/// The elements that share a scale.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Per {
    /// A row.
    Row,
    /// So many adjacent columns of a row; the last ones of a row may be fewer. For scales that are
    /// codes with scales of their own: the columns that share one of the outer scales, a multiple
    /// of the columns below.
    Group(u16),
    /// The elements of one head of one token.
    TokenHead,
}

/// How a scale is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ScaleKind {
    /// IEEE binary32.
    F32,
    /// IEEE binary16.
    F16,
    /// bfloat16.
    Bf16,
    /// A power of two: `2^(u − 127)`, 255 is none ([`e8m0_to_f32`]).
    E8m0,
    /// e4m3.
    E4m3,
    /// An unsigned number of up to 8 bits, in a byte: a code with a scale above it.
    Unsigned {
        /// Bits that are used.
        bits: u32,
    },
    /// The same in two's complement.
    Signed {
        /// Bits that are used.
        bits: u32,
    },
    /// Two's complement of 6 bits, eight of a row in 6 bytes of a panel ([`crate::layout`]), for
    /// super-groups of 256 columns in groups of 32. Such a scale multiplies the sum of its group's products with int8
    /// rows while that is an integer, and the sums of a super-group are added up as integers: what is above them
    /// multiplies once ([`Encoding::has_integer_scales`]).
    Six,
}

impl ScaleKind {
    /// Bytes of one; of [`ScaleKind::Six`] in fragment order.
    pub const fn bytes(self) -> usize {
        match self {
            ScaleKind::F32 => 4,
            ScaleKind::F16 | ScaleKind::Bf16 => 2,
            ScaleKind::E8m0
            | ScaleKind::E4m3
            | ScaleKind::Unsigned { .. }
            | ScaleKind::Signed { .. }
            | ScaleKind::Six => 1,
        }
    }

    /// Significant bits at most: of a product of numbers with no more than 24 together nothing is
    /// lost in f32.
    pub const fn significant(self) -> u32 {
        match self {
            ScaleKind::F32 => 24,
            ScaleKind::F16 => 11,
            ScaleKind::Bf16 => 8,
            ScaleKind::E8m0 => 1,
            ScaleKind::E4m3 => 4,
            ScaleKind::Unsigned { bits } | ScaleKind::Signed { bits } => bits,
            ScaleKind::Six => 6,
        }
    }
}

/// A level of scales.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Scale {
    /// The elements that share one.
    pub per: Per,
    /// How they are stored.
    pub kind: ScaleKind,
    /// Whether there is a minimum beside each, stored alike (asymmetric).
    pub minimum: bool,
}

impl Scale {
    /// Scales without minima.
    pub const fn new(per: Per, kind: ScaleKind) -> Scale {
        Scale { per, kind, minimum: false }
    }

    /// Scales with minima.
    pub const fn with_minimum(per: Per, kind: ScaleKind) -> Scale {
        Scale { per, kind, minimum: true }
    }

    /// Factors beside each other: scale, and minimum.
    pub const fn factors(self) -> usize {
        if self.minimum { 2 } else { 1 }
    }
}

/// The description.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Encoding {
    /// Code of an element.
    pub code: Code,
    /// Levels of scales: that of the codes first, that of its scales second.
    pub scales: [Option<Scale>; 2],
}

impl Encoding {
    /// Floats as they are.
    pub const F32: Encoding = Encoding::plain(Float::F32);
    /// Floats as they are.
    pub const F16: Encoding = Encoding::plain(Float::F16);
    /// Floats as they are.
    pub const BF16: Encoding = Encoding::plain(Float::Bf16);
    /// Weights of 8 bits, symmetric; groups of any number of columns ([`Encoding::in_groups`]), as
    /// in those below.
    pub const W8: Encoding =
        Encoding::scaled(Code::Int { bits: 8, zero: 128 }, Scale::new(Per::Group(0), ScaleKind::F16));
    /// Weights of 4 bits, symmetric.
    pub const W4: Encoding =
        Encoding::scaled(Code::Int { bits: 4, zero: 8 }, Scale::new(Per::Group(0), ScaleKind::F16));
    /// Weights of 4 bits, symmetric, two of each four columns.
    pub const W4S: Encoding = Encoding::scaled(Code::Pairs, Scale::new(Per::Group(0), ScaleKind::F16));
    /// Weights of 4 bits, asymmetric.
    pub const W4A: Encoding =
        Encoding::scaled(Code::Int { bits: 4, zero: 0 }, Scale::with_minimum(Per::Group(0), ScaleKind::F16));
    /// Weights of 4 bits, asymmetric, with scales and minima that are codes: GGML's `Q4_K`.
    pub const Q4K: Encoding = Encoding {
        code: Code::Int { bits: 4, zero: 0 },
        scales: [
            Some(Scale::with_minimum(Per::Group(0), ScaleKind::Unsigned { bits: 6 })),
            Some(Scale::with_minimum(Per::Group(256), ScaleKind::F16)),
        ],
    };
    /// Weights of 5 bits, symmetric: GGML's `Q5_0`.
    pub const W5: Encoding =
        Encoding::scaled(Code::Int { bits: 5, zero: 16 }, Scale::new(Per::Group(0), ScaleKind::F16));
    /// Weights of 5 bits, asymmetric: GGML's `Q5_1`.
    pub const W5A: Encoding =
        Encoding::scaled(Code::Int { bits: 5, zero: 0 }, Scale::with_minimum(Per::Group(0), ScaleKind::F16));
    /// GGML's `Q2_K`.
    pub const Q2K: Encoding = Encoding::two_levels(
        Code::Int { bits: 2, zero: 0 },
        Scale::with_minimum(Per::Group(16), ScaleKind::Unsigned { bits: 4 }),
    );
    /// GGML's `Q3_K`.
    pub const Q3K: Encoding =
        Encoding::two_levels(Code::Int { bits: 3, zero: 4 }, Scale::new(Per::Group(16), ScaleKind::Signed { bits: 6 }));
    /// GGML's `Q5_K`.
    pub const Q5K: Encoding = Encoding::two_levels(
        Code::Int { bits: 5, zero: 0 },
        Scale::with_minimum(Per::Group(32), ScaleKind::Unsigned { bits: 6 }),
    );
    /// GGML's `Q6_K`.
    pub const Q6K: Encoding = Encoding::two_levels(
        Code::Int { bits: 6, zero: 32 },
        Scale::new(Per::Group(16), ScaleKind::Signed { bits: 8 }),
    );
    /// GGML's `IQ4_NL`.
    pub const IQ4NL: Encoding =
        Encoding::scaled(Code::Table { bits: 4, values: &NON_LINEAR }, Scale::new(Per::Group(32), ScaleKind::F16));
    /// GGML's `IQ4_XS`.
    pub const IQ4XS: Encoding = Encoding::two_levels(
        Code::Table { bits: 4, values: &NON_LINEAR },
        Scale::new(Per::Group(32), ScaleKind::Signed { bits: 6 }),
    );
    /// A codebook of 16 integers.
    pub const C4: Encoding =
        Encoding::two_levels(Code::Table { bits: 4, values: &CODEBOOK_4 }, Scale::new(Per::Group(32), ScaleKind::Six));
    /// A codebook of 8 integers.
    pub const C3: Encoding =
        Encoding::two_levels(Code::Table { bits: 3, values: &CODEBOOK_3 }, Scale::new(Per::Group(32), ScaleKind::Six));
    /// Trellis codes of 2 bits.
    pub const T2: Encoding = Encoding::scaled(Code::Trellis(&trellis::T2), Scale::new(Per::Group(256), ScaleKind::F16));
    /// Trellis codes of 3 bits.
    pub const T3: Encoding = Encoding::scaled(Code::Trellis(&trellis::T3), Scale::new(Per::Group(256), ScaleKind::F16));
    /// e2m1 with powers of two as scales: MXFP4 of the OCP Microscaling Formats 1.0.
    pub const MXFP4: Encoding =
        Encoding::scaled(Code::Table { bits: 4, values: &E2M1 }, Scale::new(Per::Group(32), ScaleKind::E8m0));
    /// −1, 0 and 1: GGML's `TQ1_0` and `TQ2_0`.
    pub const TERNARY: Encoding =
        Encoding::scaled(Code::Int { bits: 2, zero: 1 }, Scale::new(Per::Group(256), ScaleKind::F16));
    /// The same with one scale for a row: BitNet's.
    pub const TERNARY_ROW: Encoding =
        Encoding::scaled(Code::Int { bits: 2, zero: 1 }, Scale::new(Per::Row, ScaleKind::F32));
    /// QLoRA's NormalFloat of 4 bits (Dettmers et al. 2023, arXiv 2305.14314).
    pub const NF4: Encoding =
        Encoding::scaled(Code::Table { bits: 4, values: &NORMAL_FLOAT }, Scale::new(Per::Group(64), ScaleKind::F32));
    /// bitsandbytes' floats of 4 bits.
    pub const FP4: Encoding =
        Encoding::scaled(Code::Table { bits: 4, values: &FP4_VALUES }, Scale::new(Per::Group(64), ScaleKind::F32));
    /// Weights of 8-bit floats.
    pub const FP8: Encoding = Encoding::scaled(Code::Float(Float::E4m3), Scale::new(Per::Row, ScaleKind::F16));
    /// The same with scales of blocks of rows and columns: a row has one for each 128 columns.
    pub const FP8B: Encoding = Encoding::scaled(Code::Float(Float::E4m3), Scale::new(Per::Group(128), ScaleKind::F32));
    /// e2m1 with e4m3 scales, and above them a number that files have for a whole matrix: NVIDIA's.
    pub const NVFP4: Encoding = Encoding {
        code: Code::Table { bits: 4, values: &E2M1 },
        scales: [Some(Scale::new(Per::Group(16), ScaleKind::E4m3)), Some(Scale::new(Per::Group(256), ScaleKind::F32))],
    };

    /// Floats without scales.
    pub const fn plain(float: Float) -> Encoding {
        Encoding { code: Code::Float(float), scales: [None, None] }
    }

    /// Codes with one level of scales.
    pub const fn scaled(code: Code, scale: Scale) -> Encoding {
        Encoding { code, scales: [Some(scale), None] }
    }

    /// Integers of `bits` bits, with scales and minima in f32: `scale·(u − zero)` of any zero.
    pub const fn from_zero(bits: u32) -> Encoding {
        Encoding::scaled(Code::Int { bits, zero: 0 }, Scale::with_minimum(Per::Group(0), ScaleKind::F32))
    }

    /// Codes with scales that are codes, times an f16 (and minima alike) for 256 columns.
    pub const fn two_levels(code: Code, scale: Scale) -> Encoding {
        let above = Scale { per: Per::Group(256), kind: ScaleKind::F16, minimum: scale.minimum };
        Encoding { code, scales: [Some(scale), Some(above)] }
    }

    /// The same with `group` columns to a scale, where scales belong to groups that may be others.
    #[inline(always)]
    pub const fn in_groups(self, group: usize) -> Encoding {
        match self.scales[0] {
            Some(Scale { kind: ScaleKind::Six, .. }) => self,
            Some(Scale { per: Per::Group(_), kind, minimum }) => Encoding {
                scales: [Some(Scale { per: Per::Group(group as u16), kind, minimum }), self.scales[1]],
                ..self
            },
            _ => self,
        }
    }

    /// Bits of an element, as panels store it.
    pub const fn bits(&self) -> u32 {
        match self.code {
            Code::Float(f) => f.bytes() as u32 * 8,
            Code::Int { bits, .. } | Code::Signed { bits } | Code::Table { bits, .. } => bits,
            Code::Trellis(of) => of.bits,
            Code::Pairs => 3,
        }
    }

    /// Bits of the planes in which a panel stores codes, the lowest bits of a code in the first: as many planes as
    /// there are powers of two in the bits; of a trellis one for each bit.
    pub const fn planes(&self) -> ([u32; 3], usize) {
        match self.code {
            Code::Trellis(of) => ([1; 3], of.bits as usize),
            // (Two planes of numbers and one of places, which have an order of their own.)
            Code::Pairs => ([2, 1, 0], 2),
            Code::Float(_) | Code::Int { .. } | Code::Signed { .. } | Code::Table { .. } => planes(self.bits()),
        }
    }

    /// The number subtracted from a code.
    pub const fn zero(&self) -> i32 {
        match self.code {
            Code::Int { zero, .. } => zero,
            Code::Pairs => PAIRS_ZERO,
            Code::Float(_) | Code::Signed { .. } | Code::Table { .. } | Code::Trellis(_) => 0,
        }
    }

    /// The kind of floats without scales; `None` for everything quantized.
    pub const fn float(&self) -> Option<Float> {
        match (self.code, self.scales[0]) {
            (Code::Float(f), None) => Some(f),
            _ => None,
        }
    }

    /// Whether elements have a scale.
    pub const fn is_quantized(&self) -> bool {
        self.scales[0].is_some()
    }

    /// Whether values have a minimum added.
    pub const fn has_minimum(&self) -> bool {
        matches!(self.scales[0], Some(Scale { minimum: true, .. }))
    }

    /// Whether there is one scale per row.
    pub const fn by_row(&self) -> bool {
        matches!(self.scales[0], Some(Scale { per: Per::Row, .. }))
    }

    /// Columns that share a scale, where groups of them do.
    pub const fn group(&self) -> Option<usize> {
        match self.scales[0] {
            Some(Scale { per: Per::Group(n), .. }) => Some(n as usize),
            _ => None,
        }
    }

    /// Columns that share a scale of scales.
    pub const fn super_group(&self) -> Option<usize> {
        match self.scales[1] {
            Some(Scale { per: Per::Group(n), .. }) => Some(n as usize),
            _ => None,
        }
    }

    /// The common unit of all codes' numbers, in which they are integers of 8 bits: products with
    /// integers are exact sums then. `None` where there is no such unit.
    pub const fn unit(&self) -> Option<f32> {
        match self.code {
            Code::Int { .. } | Code::Signed { .. } | Code::Trellis(_) | Code::Pairs => Some(1.0),
            Code::Table { values, .. } if values.len() <= 16 => {
                if multiples(values, 1.0) {
                    Some(1.0)
                } else if multiples(values, 0.5) {
                    Some(0.5)
                } else {
                    None
                }
            }
            Code::Table { .. } | Code::Float(_) => None,
        }
    }

    /// The [number](Encoding::number) of a code in [units](Encoding::unit); 0 where there are none.
    pub const fn integer(&self, u: u8) -> i32 {
        match self.unit() {
            Some(unit) => (self.number(u) / unit) as i32,
            None => 0,
        }
    }

    /// Whether scales are integers that multiply sums of integers ([`ScaleKind::Six`]).
    pub const fn has_integer_scales(&self) -> bool {
        matches!(self.scales[0], Some(Scale { kind: ScaleKind::Six, .. }))
    }

    /// Columns of an int8 row that share a scale when it is multiplied by such weights: those that
    /// share a weight's, or that of [integer scales](Encoding::has_integer_scales). The sums of products of
    /// [integers](Encoding::unit) over them are exact, and one scale multiplies them. `None` where there are no
    /// integers, or no such groups ([`ROW_GROUPS`]).
    pub const fn integer_group(&self) -> Option<usize> {
        if self.unit().is_none() {
            return None;
        }
        if self.has_integer_scales() {
            return self.super_group();
        }
        match self.scales[0] {
            Some(Scale { per: Per::Group(group), .. }) if is_row_group(group as usize) => Some(group as usize),
            Some(Scale { per: Per::Row, .. }) => Some(128),
            _ => None,
        }
    }

    /// Whether the product of a scale and a number is exact in f32, so that adding a minimum rounds
    /// once with or without a fused multiply-add.
    pub const fn exact_products(&self) -> bool {
        let number = match self.code {
            Code::Float(Float::E4m3) => 4,
            Code::Float(Float::Bf16) => 8,
            Code::Float(Float::F16) => 11,
            Code::Float(Float::F32) | Code::Table { .. } => 24,
            Code::Int { bits, .. } | Code::Signed { bits } => bits,
            Code::Trellis(_) => 8,
            Code::Pairs => 4,
        };
        let scale = match self.scales {
            [Some(a), Some(b)] => a.kind.significant() + b.kind.significant(),
            [Some(a), None] => a.kind.significant(),
            _ => 0,
        };
        number + scale <= 24
    }

    /// The number that an unsigned code of up to 8 bits stands for, without its scale.
    ///
    /// # Panics
    /// Where it depends on other codes ([`Code::Trellis`]): see [`Encoding::decode_each`].
    pub const fn number(&self, u: u8) -> f32 {
        match self.code {
            Code::Int { zero, .. } => (u as i32 - zero) as f32,
            Code::Pairs => (u as i32 - PAIRS_ZERO) as f32,
            Code::Signed { bits } => (((u as i8) << (8 - bits)) >> (8 - bits)) as f32,
            Code::Table { values, .. } => f32::from_bits(values[u as usize % values.len()]),
            Code::Float(_) => e4m3_to_f32(u),
            Code::Trellis(_) => panic!("a code of a trellis alone is no number"),
        }
    }

    /// The numbers of the codes of a group, or of all columns that are one after the other without one: `f(column,
    /// number)` for each, in any order.
    pub fn decode_each(&self, codes: &[u8], mut f: impl FnMut(usize, f32)) {
        match self.code {
            Code::Trellis(of) => of.each_state(codes, |column, state| f(column, of.level(state).into())),
            Code::Float(_) | Code::Int { .. } | Code::Signed { .. } | Code::Table { .. } | Code::Pairs => {
                codes.iter().enumerate().for_each(|(column, u)| f(column, self.number(*u)));
            }
        }
    }

    /// The encoding of the same values where each element has a code of its own: of tensor cores' fragments.
    pub const fn by_itself(self) -> Encoding {
        let code = match self.code {
            Code::Trellis(Trellis { bits: 2, .. }) => Code::Table { bits: 4, values: &T2_LEVELS },
            Code::Trellis(_) => Code::Int { bits: 8, zero: 128 },
            Code::Pairs => Code::Int { bits: 4, zero: PAIRS_ZERO },
            Code::Float(_) | Code::Int { .. } | Code::Signed { .. } | Code::Table { .. } => self.code,
        };
        Encoding { code, scales: self.scales }
    }

    /// The code of zero, as far as there is one: padding is filled with it.
    pub const fn zero_code(&self) -> u8 {
        match self.code {
            Code::Int { zero, .. } => zero as u8,
            Code::Pairs => PAIRS_ZERO as u8,
            Code::Float(_) | Code::Signed { .. } | Code::Trellis(_) => 0,
            Code::Table { values, .. } => {
                let mut i = 0;
                while i < values.len() && f32::from_bits(values[i]) != 0.0 {
                    i += 1;
                }
                if i < values.len() { i as u8 } else { 0 }
            }
        }
    }
}

/// The number subtracted from a code of [`Code::Pairs`].
pub const PAIRS_ZERO: i32 = 8;

/// Columns that may share a scale in int8 rows.
pub const ROW_GROUPS: &[usize] = &[16, 32, 64, 128, 256];

/// Whether so many do. (`contains` is not constant.)
const fn is_row_group(group: usize) -> bool {
    let mut i = 0;
    while i < ROW_GROUPS.len() {
        if ROW_GROUPS[i] == group {
            return true;
        }
        i += 1;
    }
    false
}

/// Whether all values are multiples of `unit` by integers of 8 bits.
const fn multiples(values: &[u32], unit: f32) -> bool {
    let mut i = 0;
    while i < values.len() {
        let x = f32::from_bits(values[i]) / unit;
        if x != (x as i32) as f32 || x < -128.0 || x > 127.0 {
            return false;
        }
        i += 1;
    }
    true
}

/// See [`Encoding::planes`].
const fn planes(bits: u32) -> ([u32; 3], usize) {
    let (mut out, mut count, mut left) = ([0; 3], 0, bits);
    let mut width = 8;
    while width > 0 {
        if left >= width {
            out[count] = width;
            count += 1;
            left -= width;
        }
        width /= 2;
    }
    (out, count)
}
