//! The rows that targets multiply, and the rates.

use crate::kernel::RowElem;
use crate::quant::{Code, Encoding, Format, GROUPS, Packing};
use llmcc_abi::{FLOAT_PANELS, FloatRows, INT8_PANELS, Uk};
use std::fmt;

/// A kind of rows, as products multiply them: a [`RowElem`] without the differences between rows of
/// a kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum RowKind {
    /// f32.
    F32,
    /// f16.
    F16,
    /// bf16.
    Bf16,
    /// int8, a scale per group of columns.
    Int8,
    /// e4m3, a scale per row.
    Fp8,
}

impl RowKind {
    /// The kind of a name, as they are printed.
    pub fn parse(name: &str) -> Option<RowKind> {
        let all = [RowKind::F32, RowKind::F16, RowKind::Bf16, RowKind::Int8, RowKind::Fp8];
        all.into_iter().find(|kind| kind.to_string() == name)
    }

    /// Storage of the rows that a product with weights of `format` reads, if activations are
    /// rounded to this: to int8 with the weight's own group if that is quantized to integers, to
    /// e4m3 for fp8 weights and to bf16 for others, else f32.
    pub fn rows(self, format: Format) -> RowElem {
        match self {
            RowKind::Int8 => format.encoding().integer_group().map_or(RowElem::F32, |group| RowElem::Q8 { group }),
            RowKind::F16 => RowElem::F16,
            RowKind::Fp8 if format.encoding() == Encoding::FP8 => RowElem::Fp8,
            // CPUs multiply bf16 rows by bf16 weights only.
            RowKind::Bf16 if format.packing == Packing::Panel && format.encoding() != Encoding::BF16 => RowElem::F32,
            RowKind::Bf16 | RowKind::Fp8 => RowElem::Bf16,
            RowKind::F32 => RowElem::F32,
        }
    }
}

/// Storage of rows of integers of −128 to 127 by which weights of `format` are multiplied without
/// rounding them, where there is one: weights that are integers times a scale for groups of columns.
pub fn integer_rows(format: Format) -> Option<RowElem> {
    let encoding = format.encoding();
    let group = encoding.integer_group().filter(|_| matches!(encoding.code, Code::Int { .. }))?;
    Some(RowElem::I8 { group })
}

/// The microkernel of CPUs that multiplies weights by such rows, where there is one; else their
/// products take the generic path, which is several times slower.
pub fn microkernel_of(weights: Format, rows: RowElem) -> Option<Uk> {
    let (encoding, group) = (weights.encoding(), usize::from(weights.group));
    let reads = match rows {
        RowElem::F32 => FloatRows::F32,
        RowElem::Bf16 => FloatRows::Bf16,
        RowElem::Q8 { .. } | RowElem::I8 { .. } => {
            let line = INT8_PANELS.iter().find(|(_, e)| e.in_groups(group) == encoding);
            return line.map(|(uk, _)| *uk);
        }
        RowElem::F16 | RowElem::Fp8 => return None,
    };
    // Where the group may be any, it is one of those that are whole chains.
    let is = |e: &Encoding| {
        *e == encoding || e.group() == Some(0) && GROUPS.contains(&group) && e.in_groups(group) == encoding
    };
    FLOAT_PANELS.iter().find(|(_, e, r)| *r == reads && is(e)).map(|(uk, ..)| *uk)
}

impl From<RowElem> for RowKind {
    fn from(elem: RowElem) -> RowKind {
        match elem {
            RowElem::F32 => RowKind::F32,
            RowElem::F16 => RowKind::F16,
            RowElem::Bf16 => RowKind::Bf16,
            RowElem::Q8 { .. } | RowElem::I8 { .. } => RowKind::Int8,
            RowElem::Fp8 => RowKind::Fp8,
        }
    }
}

impl fmt::Display for RowKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            RowKind::F32 => "f32",
            RowKind::F16 => "f16",
            RowKind::Bf16 => "bf16",
            RowKind::Int8 => "int8",
            RowKind::Fp8 => "fp8",
        })
    }
}

/// How a processor multiplies rows of a kind.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CpuRows {
    /// The kind.
    pub kind: RowKind,
    /// Multiply-adds per second and core.
    pub macs: f64,
    /// Columns' worth of products that scaling a group of quantized weights costs.
    pub group: f64,
    /// Unpacking of quantized weights.
    pub unpack: Unpack,
    /// The matrix unit that does them, where there is one.
    pub unit: Option<MatrixUnit>,
    /// Products with weights for which there is no [microkernel](microkernel_of).
    pub generic: Generic,
}

/// Rates of the generic path, 128-bit vectors that decode the weights anew for every row:
/// multiply-adds per second and core, of codes whose numbers are found by arithmetic and of codes
/// whose numbers stand in a table. Measured on Zen 4 (docs/cost-model.md).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Generic {
    /// By arithmetic.
    pub computed: f64,
    /// From a table.
    pub table: f64,
}

impl Generic {
    /// f32 rows, with fused multiply-adds.
    pub const F32: Generic = Generic { computed: 3.2e9, table: 0.63e9 };
    /// f32 rows on processors without, whose bits are made of f64 arithmetic.
    pub const F32_SSE2: Generic = Generic { computed: 0.5e9, table: 0.29e9 };
    /// int8 rows.
    pub const INT8: Generic = Generic { computed: 2.3e9, table: 2.3e9 };

    /// The rate for weights of a format.
    pub fn rate(&self, weights: Format) -> f64 {
        match weights.encoding().code {
            Code::Table { .. } | Code::Trellis(_) | Code::Pairs => self.table,
            Code::Float(_) | Code::Int { .. } | Code::Signed { .. } => self.computed,
        }
    }
}

impl CpuRows {
    /// The matrix unit, if it multiplies `m` such rows.
    pub fn unit_for(&self, m: usize) -> Option<MatrixUnit> {
        self.unit.filter(|u| m >= u.from)
    }
}

/// How fast codes of quantized weights are unpacked for products.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Unpack {
    /// Most rows for which they are unpacked once.
    pub rows: usize,
    /// Codes per second and core.
    pub rate: f64,
}

/// How a GPU multiplies rows of a kind.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GpuRows {
    /// The kind.
    pub kind: RowKind,
    /// Dense operations per second of the whole device, a multiply-add being two: tensor cores with
    /// f32 accumulation; f32 rows, outside them.
    pub flops: f64,
    /// Whether `mma.sync` multiplies them. sm90 has an instruction of its own for e4m3 only in
    /// `wgmma`.
    pub mma: bool,
}

/// A unit of a CPU that multiplies tiles.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MatrixUnit {
    /// Fewest rows that it is used for. Fewer are as good as bound by memory.
    pub from: usize,
    /// Rows that it computes at least.
    pub least: usize,
    /// How much of the shorter of streaming and computing is not hidden behind the longer.
    pub exposed: f64,
}

/// Products of f32 and bf16 rows unpack codes to f32, at half the rate of multiply-adds, for up to
/// 128 rows at once.
pub(super) const fn float_rows(kind: RowKind, macs: f64, f32_macs: f64) -> CpuRows {
    CpuRows {
        kind,
        macs,
        group: 0.0,
        unpack: Unpack { rows: 128, rate: f32_macs * 0.5 },
        unit: None,
        generic: Generic::F32,
    }
}

/// int8 rows without a matrix unit.
pub(super) const fn int8_rows(macs: f64, group: f64, unpack: Unpack) -> CpuRows {
    CpuRows { kind: RowKind::Int8, macs, group, unpack, unit: None, generic: Generic::INT8 }
}

/// Rows that `mma.sync` multiplies, but for f32.
pub(super) const fn gpu_rows(kind: RowKind, flops: f64) -> GpuRows {
    GpuRows { kind, flops, mma: !matches!(kind, RowKind::F32) }
}
