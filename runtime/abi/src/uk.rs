//! The microkernels that generated code calls: their table, and the signatures of its entries.

use crate::encoding::Encoding;
use crate::math;
/// The microkernels a generated kernel may call. The numeric value is the index in [`UkTable`].
#[repr(u32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Uk {
    /// f32 weights × f32 rows.
    PanelF32 = 0,
    /// f16 weights × f32 rows.
    PanelF16 = 1,
    /// bf16 weights × f32 rows.
    PanelBf16 = 2,
    /// 8-bit weights × f32 rows.
    PanelW8 = 3,
    /// 4-bit symmetric weights × f32 rows.
    PanelW4 = 4,
    /// 4-bit asymmetric weights × f32 rows.
    PanelW4a = 5,
    /// 8-bit weights × int8 rows.
    PanelW8A8 = 6,
    /// 4-bit symmetric weights × int8 rows.
    PanelW4A8 = 7,
    /// 4-bit asymmetric weights × int8 rows.
    PanelW4aA8 = 8,
    /// Cosine/sine table for RoPE ([`RopeTableFn`]).
    RopeTable = 9,
    /// int8 quantization of columns of a row ([`QuantRowsFn`]).
    QuantRows = 10,
    /// Attention of tokens of one sequence to its cache ([`AttendFn`](crate::AttendFn)).
    Attend = 11,
    /// bf16 weights × bf16 rows.
    PanelBf16Rows = 12,
    /// Elementwise functions of rows ([`MapFn`]).
    Map = 13,
    /// Rounding of columns of a row to floats of 16 bits ([`RoundHalvesFn`]).
    RoundHalves = 14,
    /// Attention that needs [`AttendMore`](crate::AttendMore) ([`AttendWithFn`](crate::AttendWithFn)).
    AttendWith = 15,
    /// Choice of experts for a token ([`route::RouteFn`](crate::route::RouteFn)).
    Route = 16,
    /// 4-bit weights with two levels of scales × int8 rows.
    PanelQ4kA8 = 17,
    /// A token of a linear recurrence ([`recur::RecurFn`](crate::recur::RecurFn)).
    Recur = 18,
    /// 5-bit symmetric weights × int8 rows.
    PanelW5A8 = 19,
    /// 5-bit asymmetric weights × int8 rows.
    PanelW5aA8 = 20,
    /// `Q2_K` × int8 rows.
    PanelQ2kA8 = 21,
    /// `Q3_K` × int8 rows.
    PanelQ3kA8 = 22,
    /// `Q5_K` × int8 rows.
    PanelQ5kA8 = 23,
    /// `Q6_K` × int8 rows.
    PanelQ6kA8 = 24,
    /// 2-bit weights of any zero × int8 rows.
    PanelW2zA8 = 25,
    /// 3-bit weights of any zero × int8 rows.
    PanelW3zA8 = 26,
    /// 4-bit weights of any zero × int8 rows.
    PanelW4zA8 = 27,
    /// 8-bit weights of any zero × int8 rows.
    PanelW8zA8 = 28,
    /// Ternary weights × int8 rows.
    PanelTernaryA8 = 29,
    /// Ternary weights with a scale for each row × int8 rows.
    PanelTernaryRowA8 = 30,
    /// `IQ4_NL` × int8 rows.
    PanelIq4nlA8 = 31,
    /// `IQ4_XS` × int8 rows.
    PanelIq4xsA8 = 32,
    /// MXFP4 × int8 rows.
    PanelMxfp4A8 = 33,
    /// NF4 × f32 rows.
    PanelNf4 = 34,
    /// bitsandbytes' FP4 × f32 rows.
    PanelFp4 = 35,
    /// 8-bit floats with a scale for each row × f32 rows.
    PanelFp8 = 36,
    /// 8-bit floats with a scale for each 128 columns × f32 rows.
    PanelFp8b = 37,
    /// NVFP4 × f32 rows.
    PanelNvfp4 = 38,
    /// NVFP4 × int8 rows.
    PanelNvfp4A8 = 39,
    /// Choice of rows of a cache ([`SelectFn`](crate::SelectFn)).
    Select = 40,
    /// `c4` × int8 rows.
    PanelC4A8 = 41,
    /// `c3` × int8 rows.
    PanelC3A8 = 42,
    /// `t3` × int8 rows.
    PanelT3A8 = 43,
    /// `t2` × int8 rows.
    PanelT2A8 = 44,
    /// 4-bit weights, two of each four columns, × int8 rows.
    PanelW4sA8 = 45,
    /// Attention of a token to a cache that drops tokens ([`evict::EvictFn`](crate::evict::EvictFn)).
    Evict = 46,
    /// Choice of windows of a cache ([`SelectWindowsFn`](crate::SelectWindowsFn)).
    SelectWindows = 47,
}

/// Number of entries of [`UkTable`].
pub const UK_COUNT: usize = 48;

/// Floats in the rows that a microkernel multiplies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FloatRows {
    /// IEEE binary32.
    F32,
    /// bfloat16.
    Bf16,
}

/// The microkernels that multiply rows of floats, and their weights: of any group where theirs is 0.
/// A format with a description of this table has a fast kernel.
pub const FLOAT_PANELS: [(Uk, Encoding, FloatRows); 12] = [
    (Uk::PanelF32, Encoding::F32, FloatRows::F32),
    (Uk::PanelF16, Encoding::F16, FloatRows::F32),
    (Uk::PanelBf16, Encoding::BF16, FloatRows::F32),
    (Uk::PanelW8, Encoding::W8, FloatRows::F32),
    (Uk::PanelW4, Encoding::W4, FloatRows::F32),
    (Uk::PanelW4a, Encoding::W4A, FloatRows::F32),
    (Uk::PanelBf16Rows, Encoding::BF16, FloatRows::Bf16),
    (Uk::PanelNf4, Encoding::NF4, FloatRows::F32),
    (Uk::PanelFp4, Encoding::FP4, FloatRows::F32),
    (Uk::PanelFp8, Encoding::FP8, FloatRows::F32),
    (Uk::PanelFp8b, Encoding::FP8B, FloatRows::F32),
    (Uk::PanelNvfp4, Encoding::NVFP4, FloatRows::F32),
];

/// The microkernels that multiply int8 rows, and their weights: of any group where theirs is 0. A
/// format with a description of this table has a fast kernel.
pub const INT8_PANELS: [(Uk, Encoding); 25] = [
    (Uk::PanelW8A8, Encoding::W8),
    (Uk::PanelW4A8, Encoding::W4),
    (Uk::PanelW4aA8, Encoding::W4A),
    (Uk::PanelQ4kA8, Encoding::Q4K.in_groups(32)),
    (Uk::PanelC4A8, Encoding::C4),
    (Uk::PanelC3A8, Encoding::C3),
    (Uk::PanelT3A8, Encoding::T3),
    (Uk::PanelT2A8, Encoding::T2),
    (Uk::PanelW5A8, Encoding::W5.in_groups(32)),
    (Uk::PanelW5aA8, Encoding::W5A.in_groups(32)),
    (Uk::PanelQ2kA8, Encoding::Q2K),
    (Uk::PanelQ3kA8, Encoding::Q3K),
    (Uk::PanelQ5kA8, Encoding::Q5K),
    (Uk::PanelQ6kA8, Encoding::Q6K),
    (Uk::PanelW2zA8, Encoding::from_zero(2)),
    (Uk::PanelW3zA8, Encoding::from_zero(3)),
    (Uk::PanelW4zA8, Encoding::from_zero(4)),
    (Uk::PanelW8zA8, Encoding::from_zero(8)),
    (Uk::PanelTernaryA8, Encoding::TERNARY),
    (Uk::PanelTernaryRowA8, Encoding::TERNARY_ROW),
    (Uk::PanelIq4nlA8, Encoding::IQ4NL),
    (Uk::PanelIq4xsA8, Encoding::IQ4XS),
    (Uk::PanelMxfp4A8, Encoding::MXFP4),
    (Uk::PanelNvfp4A8, Encoding::NVFP4),
    (Uk::PanelW4sA8, Encoding::W4S),
];

/// Addresses of the microkernels chosen for this machine; generated code loads entry [`Uk`] and
/// calls it with that entry's signature.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct UkTable {
    /// Function addresses.
    pub f: [usize; UK_COUNT],
}

/// Arguments of a panel microkernel: `c[m, 16 * blocks] = a[m, k] · w[16 * blocks, k]ᵀ`. See
/// [`layout`](crate::layout) for `w` and int8 `a`.
///
/// Every output is accumulated over `k` in ascending order (f32: one fused multiply-add per `k`, in
/// chains of [`CHAIN`](crate::layout::CHAIN) columns, each from 0, which are added up, or, where weights have a
/// [unit of chains](crate::layout::chain_unit), added by one fused multiply-add with their scale; in one chain
/// bf16 rows: one per `k`, the second of each pair `2i, 2i + 1` first; and int8: one i32 sum per
/// group, of [integer scales](Encoding::has_integer_scales) with them, then one f32 fused multiply-add per group), for
/// any `m` and `blocks`: a token's result
/// never depends on the rest of the batch, and is the same on every instruction set.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct PanelArgs {
    /// First 16-row block.
    pub w: *const u8,
    /// Bytes from one block to the next.
    pub w_stride: u64,
    /// Blocks.
    pub blocks: u64,
    /// First activation row: f32 or bf16 `[k]`, or an int8 row (see [`layout::Q8Row`](crate::layout::Q8Row)).
    pub a: *const u8,
    /// Bytes from one activation row to the next.
    pub a_stride: u64,
    /// Activation rows.
    pub m: u64,
    /// Output, f32, row-major.
    pub c: *mut f32,
    /// f32 elements from one output row to the next.
    pub c_stride: u64,
    /// Columns (real, not padded).
    pub k: u64,
    /// Columns that share a scale in int8 rows ([`ROW_GROUPS`](crate::encoding::ROW_GROUPS)), and in quantized weights
    /// unless [their scales are integers](Encoding::has_integer_scales); 0 for others.
    pub group: u64,
}

/// Signature of the `Panel*` entries.
pub type PanelFn = unsafe extern "C" fn(*const PanelArgs);
/// Signature of [`Uk::RopeTable`]: for each of `n` tokens writes `half` cosines, then `half`
/// sines, each times `scale`: `out[i, j] = scale·cos(angle)`, `out[i, half + j] = scale·sin(angle)`.
/// The angle is the sum of `f32(pos[i, a]·inv_freq[a, j])` over the `axes`, in f32 and in their order; it is rounded
/// as Transformers does, its cosine is not.
pub type RopeTableFn = unsafe extern "C" fn(
    pos: *const i32,
    n: u64,
    inv_freq: *const f32,
    half: u64,
    axes: u64,
    scale: f32,
    out: *mut f32,
);
/// Signature of [`Uk::QuantRows`]: quantizes `k` f32 from `x`, which are whole groups or the end of
/// a row, to the codes, scales and sums of a [`layout::Q8Row`](crate::layout::Q8Row); codes are written up to the next
/// multiple of [`layout::K_PAD`](crate::layout::K_PAD), zeros beyond `k`.
pub type QuantRowsFn =
    unsafe extern "C" fn(x: *const f32, k: u64, group: u64, codes: *mut i8, scales: *mut f32, sums: *mut i32);
/// The floats of [`Uk::RoundHalves`].
#[repr(u32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HalfKind {
    /// bf16; NaN keeps its upper bits, and becomes quiet.
    Bf16 = 0,
    /// f16; NaN becomes the quiet NaN without a payload, of the same sign.
    F16 = 1,
}
/// Signature of [`Uk::RoundHalves`]: rounds `n` f32 from `x` to 16 bits, to nearest even. They go
/// to runs of `run` elements, `jump` elements apart, the first of them at `out`: the number with
/// index `i` becomes element `first + i`. (Keys of a token are runs of 1, its values are runs of a
/// head.)
pub type RoundHalvesFn =
    unsafe extern "C" fn(x: *const f32, n: u64, to: HalfKind, out: *mut u16, first: u64, run: u64, jump: u64);
/// Signature of [`Uk::Map`]: `out[i] = binary(unary(a[i]), b[i])` for `n` f32, with the bits of
/// [`math`]. `out` may be `a` or `b`, but overlap neither otherwise; without a `binary`
/// ([`math::Binary::First`]), `b` is not read.
pub type MapFn =
    unsafe extern "C" fn(unary: math::Unary, binary: math::Binary, n: u64, a: *const f32, b: *const f32, out: *mut f32);
