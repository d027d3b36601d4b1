//! Types and values.

use std::fmt;

/// Scalar types.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Elem {
    I1,
    I8,
    I16,
    I32,
    I64,
    F16,
    Bf16,
    F32,
    F64,
}

/// Types of values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ty {
    /// A scalar.
    S(Elem),
    /// A vector of so many scalars.
    Vec(u8, Elem),
    /// A structure of so many equal scalars or vectors: the result of multi-result instructions.
    Struct(u8, StructElem),
    /// Pointer to global memory.
    Global,
    /// Pointer to shared memory.
    Shared,
}

/// Members of [`Ty::Struct`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StructElem {
    /// Scalars.
    S(Elem),
    /// Vectors of two.
    Pair(Elem),
}

/// `i1`.
pub const I1: Ty = Ty::S(Elem::I1);
/// `i8`.
pub const I8: Ty = Ty::S(Elem::I8);
/// `i16`.
pub const I16: Ty = Ty::S(Elem::I16);
/// `i32`.
pub const I32: Ty = Ty::S(Elem::I32);
/// `i64`.
pub const I64: Ty = Ty::S(Elem::I64);
/// `f16`.
pub const F16: Ty = Ty::S(Elem::F16);
/// `bf16`.
pub const BF16: Ty = Ty::S(Elem::Bf16);
/// `f32`.
pub const F32: Ty = Ty::S(Elem::F32);
/// `f64`.
pub const F64: Ty = Ty::S(Elem::F64);
/// Four 32-bit words: a 16-byte load.
pub const V4I32: Ty = Ty::Vec(4, Elem::I32);

impl fmt::Display for Elem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Elem::I1 => "i1",
            Elem::I8 => "i8",
            Elem::I16 => "i16",
            Elem::I32 => "i32",
            Elem::I64 => "i64",
            Elem::F16 => "f16",
            Elem::Bf16 => "bf16",
            Elem::F32 => "f32",
            Elem::F64 => "f64",
        })
    }
}

impl fmt::Display for Ty {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Ty::S(e) => write!(f, "{e}"),
            Ty::Vec(n, e) => write!(f, "vector<{n}x{e}>"),
            Ty::Struct(n, e) => {
                let e = match e {
                    StructElem::S(e) => Ty::S(*e),
                    StructElem::Pair(e) => Ty::Vec(2, *e),
                };
                let all: Vec<String> = (0..*n).map(|_| e.to_string()).collect();
                write!(f, "!llvm.struct<({})>", all.join(", "))
            }
            Ty::Global => f.write_str("!llvm.ptr<1>"),
            Ty::Shared => f.write_str("!llvm.ptr<3>"),
        }
    }
}

/// A value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct V {
    pub(super) id: u32,
    /// Which result of an operation with several.
    pub(super) part: Option<u16>,
    /// Its type.
    pub ty: Ty,
}

impl fmt::Display for V {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.part {
            Some(p) => write!(f, "%{}#{p}", self.id),
            None => write!(f, "%{}", self.id),
        }
    }
}

impl Elem {
    /// Bytes in memory.
    pub fn bytes(self) -> usize {
        match self {
            Elem::I1 | Elem::I8 => 1,
            Elem::I16 | Elem::F16 | Elem::Bf16 => 2,
            Elem::I32 | Elem::F32 => 4,
            Elem::I64 | Elem::F64 => 8,
        }
    }
}

impl Ty {
    /// Bytes in memory.
    pub fn bytes(self) -> usize {
        match self {
            Ty::S(e) => e.bytes(),
            Ty::Vec(n, e) => usize::from(n) * e.bytes(),
            Ty::Struct(n, StructElem::S(e)) => usize::from(n) * e.bytes(),
            Ty::Struct(n, StructElem::Pair(e)) => 2 * usize::from(n) * e.bytes(),
            Ty::Global => 8,
            Ty::Shared => 4,
        }
    }
}
