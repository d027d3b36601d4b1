//! Parts of a product's schedule, and their sizes in memory.

use crate::gpu::weights::{FactorRun, factor_runs};
use crate::kernel::{Norm, Segment};
use crate::quant::Format;
use llmcc_abi::layout::fragment_bits;

/// How products are computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Variant {
    /// Tensor cores, weights streamed past the block, at most 8 rows: bound by memory.
    Gemv,
    /// f32 multiply-adds, at most 8 rows at a time: f32 weights or f32 input.
    Fma,
    /// Tensor cores (`mma.sync`), input tiles in shared memory.
    Mma,
    /// Tensor cores of sm90 (`wgmma`): weights in registers, input tiles in shared memory, both
    /// brought there by warps that do nothing else.
    Wgmma,
    /// The same for fp8 weights and fp8 rows.
    WgmmaFp8,
}

impl Variant {
    /// Whether it is a pipeline of warps that bring and warps that multiply (sm90).
    pub const fn is_wgmma(self) -> bool {
        matches!(self, Variant::Wgmma | Variant::WgmmaFp8)
    }

    /// Units of a stage: with `wgmma`, lines of 128 bytes of input.
    pub const fn stage_units(self) -> usize {
        match self {
            Variant::WgmmaFp8 => 2,
            _ => 1,
        }
    }
}

/// Where a block finds its input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Input {
    /// All columns of its rows in shared memory, copied or computed once.
    Whole,
    /// The same in blocks of at most so many rows, which is fewer than a block may have; in others
    /// as with [`Input::Global`].
    Fitting(usize),
    /// In global memory, through the first-level cache.
    Global,
    /// Column tiles in shared memory, copied as they are needed.
    Tiles,
}

/// Adjacent segments of equal shape, whose output tiles are numbered through.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Phase {
    /// First segment.
    pub first: usize,
    /// Segments.
    pub segments: usize,
    /// Output tiles of all of them.
    pub tiles: usize,
    /// Strips of one lane that a warp holds.
    pub strips: usize,
    /// Warps side by side over the columns of an output tile.
    pub columns: usize,
    /// Warps that share a column: each with every `parts`-th unit, or, with `Mma`, with its column
    /// tile of every unit where there are several, else with its rows.
    pub parts: usize,
    /// Whether output tiles may be cut between blocks.
    pub cut: bool,
    /// Units in a warp's ring of weights.
    pub stages: usize,
}

/// The schedule of a product.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MatmulSchedule {
    /// How it is computed.
    pub variant: Variant,
    /// Rows of a block.
    pub rows: usize,
    /// Warps of a block that compute.
    pub warps: usize,
    /// Further warps, which bring weights and input to shared memory ([`Variant::is_wgmma`]).
    pub producers: usize,
    /// Blocks that should fit on a multiprocessor.
    pub resident: usize,
    /// Blocks that share the units, for each tile of rows.
    pub blocks: usize,
    /// Where the input is.
    pub input: Input,
    /// Whether the sums have shared memory of their own, so that the next output tile's copies go
    /// on while one is finished; else they take the place of the input and weights.
    pub apart: bool,
    /// Columns of the input, padded to whole column tiles.
    pub k: usize,
    /// Column tiles of a unit: with `Mma` and few rows, one for each warp of a column; with `Gemv`, all
    /// of one warp.
    pub depth: usize,
    /// Whether streamed weights go to registers, a unit ahead of the products, without a stop in shared
    /// memory.
    pub direct: bool,
    /// One after the other.
    pub phases: Vec<Phase>,
    /// Set when another shape of kernel would be much faster: the reason.
    pub slow: Option<&'static str>,
}

/// Rows of a product whose weights are streamed: the columns of an `mma` of 16×8.
pub const GEMV_ROWS: usize = 8;

/// Warps of a `wgmma` kernel that bring weights and input: a group of four, so that they can give
/// registers to the others.
pub const WGMMA_PRODUCERS: usize = 4;

/// Rows of parts of an output tile of `wgmma` that are added at once: 32 sums of a thread.
pub const PART_ROWS: usize = 64;

/// Bytes from one 512-byte piece of a strip's 16-bit weights to the next in a stage of a `wgmma`
/// kernel: shifted, so that lanes which read from two of them do not meet in the banks.
pub const WGMMA_PIECE: usize = 512 + 32;

/// Bytes of a unit of one strip of a format in shared memory: codes, and scales and minima of the
/// groups in it.
pub fn unit_bytes(format: Format) -> usize {
    format.tile_bytes() + factor_runs(format).iter().map(FactorRun::bytes).sum::<usize>()
}

/// Bytes of so many units of one strip of a format in a stage of a `wgmma` kernel: [`unit_bytes`]
/// each, pieces of 16-bit weights [`WGMMA_PIECE`] apart.
pub fn wgmma_strip_bytes(format: Format, units: usize) -> usize {
    let shifts = if fragment_bits(&format.encoding()) == 16 { 3 * (WGMMA_PIECE - 512) } else { 0 };
    units * (unit_bytes(format) + shifts)
}

/// Lines of 32 bytes of scales and minima in a unit of weights whose factors enter as f16 (not
/// `has_f32_factors`): of scales of groups as f16, as many as there are groups, and as many again
/// of minima.
pub fn unit_scales(format: Format) -> usize {
    factor_runs(format).iter().map(|run| run.lines).sum()
}

/// f32 words of shared memory that a prologue's normalization of `k` columns takes per row: a
/// factor (and a mean, if that is subtracted) per run, and for single runs a sum per warp.
pub fn norm_words(norm: Norm, k: usize, warps: usize) -> usize {
    let runs = k / norm.width.max(1);
    runs.max(1 + warps) + if norm.center { runs } else { 0 }
}

/// Bytes of the partial sums of a block: `[parts][rows][columns + 4]` f32; the padding keeps stores
/// free of bank conflicts.
pub fn sums_bytes(parts: usize, rows: usize, s: &Segment) -> usize {
    parts * rows.max(GEMV_ROWS) * sums_stride(s) * 4
}

/// Elements from one row of partial sums to the next.
pub fn sums_stride(s: &Segment) -> usize {
    s.tile_n * s.weights.len() + 4
}
