//! Element types, symbolic dimensions and tensor types.

use crate::quant::Format;
use std::fmt;

/// Element type of a tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum DType {
    /// IEEE binary64 (checkpoints only).
    F64,
    /// IEEE binary32: the type of every activation.
    F32,
    /// IEEE binary16.
    F16,
    /// bfloat16.
    Bf16,
    /// Signed 8-bit integer.
    I8,
    /// Unsigned 8-bit integer.
    U8,
    /// Signed 32-bit integer: token ids, positions, row numbers.
    I32,
    /// Signed 64-bit integer (checkpoints only).
    I64,
    /// Codes with scales, as a storage format has them: matrices of checkpoints that are quantized
    /// already. A number in computations like any other float.
    Coded(Format),
}

impl DType {
    /// Every element type except codes, with its name in `.lir` text.
    pub const ALL: &[(DType, &'static str)] = &[
        (DType::F64, "f64"),
        (DType::F32, "f32"),
        (DType::F16, "f16"),
        (DType::Bf16, "bf16"),
        (DType::I8, "i8"),
        (DType::U8, "u8"),
        (DType::I32, "i32"),
        (DType::I64, "i64"),
    ];

    /// Bytes of one element; `None` for codes, which share scales.
    pub const fn bytes(self) -> Option<usize> {
        match self {
            DType::I8 | DType::U8 => Some(1),
            DType::F16 | DType::Bf16 => Some(2),
            DType::F32 | DType::I32 => Some(4),
            DType::F64 | DType::I64 => Some(8),
            DType::Coded(_) => None,
        }
    }

    /// True for floating-point types, and for codes, which stand for such numbers.
    pub const fn is_float(self) -> bool {
        matches!(self, DType::F64 | DType::F32 | DType::F16 | DType::Bf16 | DType::Coded(_))
    }

    /// The format of codes.
    pub const fn coded(self) -> Option<Format> {
        match self {
            DType::Coded(format) => Some(format),
            DType::F64 | DType::F32 | DType::F16 | DType::Bf16 | DType::I8 | DType::U8 | DType::I32 | DType::I64 => {
                None
            }
        }
    }

    /// The type named `name` in `.lir` text: codes are called as their format.
    pub fn parse(name: &str) -> Option<DType> {
        let coded = || Format::parse(name).filter(|f| f.is_quantized()).map(DType::Coded);
        Self::ALL.iter().find(|(_, n)| *n == name).map(|(t, _)| *t).or_else(coded)
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self, Self::ALL.iter().find(|(t, _)| t == self)) {
            (DType::Coded(format), _) => format.fmt(f),
            (_, found) => f.write_str(found.expect("ALL lists every other type").1),
        }
    }
}

/// A dimension: a number, or one of the sizes known only when a step runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Dim {
    /// Known at compile time.
    Static(usize),
    /// `T`: tokens in the step.
    Tokens,
    /// `R`: rows whose logits are wanted (`R ≤ T`).
    Rows,
}

impl Dim {
    /// The value, if known at compile time.
    pub const fn known(self) -> Option<usize> {
        match self {
            Dim::Static(n) => Some(n),
            Dim::Tokens | Dim::Rows => None,
        }
    }

    /// The value in a step of the given size.
    pub const fn eval(self, env: Env) -> usize {
        match self {
            Dim::Static(n) => n,
            Dim::Tokens => env.tokens,
            Dim::Rows => env.rows,
        }
    }
}

impl From<usize> for Dim {
    fn from(n: usize) -> Dim {
        Dim::Static(n)
    }
}

impl fmt::Display for Dim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Dim::Static(n) => write!(f, "{n}"),
            Dim::Tokens => f.write_str("T"),
            Dim::Rows => f.write_str("R"),
        }
    }
}

/// Values of the symbolic dimensions in one step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Env {
    /// `T`.
    pub tokens: usize,
    /// `R`.
    pub rows: usize,
}

/// Element type and shape, row-major.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TensorType {
    /// Element type.
    pub dtype: DType,
    /// Dimensions, outermost first.
    pub shape: Vec<Dim>,
}

impl TensorType {
    /// A type from its parts.
    pub fn new(dtype: DType, shape: impl IntoIterator<Item = Dim>) -> TensorType {
        TensorType { dtype, shape: shape.into_iter().collect() }
    }

    /// f32 activations `[rows, cols]`.
    pub fn rows(rows: Dim, cols: usize) -> TensorType {
        TensorType::new(DType::F32, [rows, Dim::Static(cols)])
    }

    /// f32 vector `[n]`.
    pub fn vector(n: usize) -> TensorType {
        TensorType::new(DType::F32, [Dim::Static(n)])
    }

    /// Number of elements, if static.
    pub fn elements(&self) -> Option<usize> {
        self.shape.iter().try_fold(1usize, |n, d| d.known().and_then(|k| n.checked_mul(k)))
    }

    /// Last dimension, if static.
    pub fn cols(&self) -> Option<usize> {
        self.shape.last().and_then(|d| d.known())
    }
}

impl fmt::Display for TensorType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}[", self.dtype)?;
        for (i, d) in self.shape.iter().enumerate() {
            write!(f, "{}{d}", if i == 0 { "" } else { ", " })?;
        }
        f.write_str("]")
    }
}
