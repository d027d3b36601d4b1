//! Matrix products, in all formats and for any number of rows:
//! `D[n, token] = W[n, k] · x[token, k]`, weights as the A operand of tensor cores.
//!
//! [`llmcc_ir::gpu::schedule`] decides the shape; the kernels here follow it:
//!
//! - [`stream`]: at most 8 rows of input, weights streamed past them through rings in shared
//!   memory; also the f32 products.
//! - [`tiles`]: tiles of input in shared memory, `mma.sync`;
//! - [`wgmma`]: the same with the instructions of sm_90a, for prompts; of 16-bit rows, and of fp8
//!   rows with fp8 weights.
//!
//! They share [`weights`] (rings of weights), [`decode`] (codes to operands), [`input`] (input to
//! shared memory, with the prologue), [`work`] (which block computes which tiles, and joining
//! output tiles that were cut between blocks).

pub(crate) mod decode;
mod direct;
mod input;
mod one_row;
mod stream;
mod table;
mod tiles;
mod warpgroup;
mod weights;
mod wgmma;
mod work;

pub(crate) use input::halves;

use crate::Source;
use crate::cx::Cx;
use llmcc_ir::gpu::schedule::{self, MatmulSchedule, Phase, Variant};
use llmcc_ir::kernel::{Matmul, RowElem, Segment};
use llmcc_ir::quant::{BLOCK, Code, Float, Format};

/// A product with its schedule.
pub struct Plan<'a> {
    cx: &'a Cx<'a>,
    body: &'a Matmul,
    schedule: MatmulSchedule,
    /// Columns of the input.
    k: usize,
    /// Storage of the operands.
    elem: RowElem,
}

/// A phase of a plan, with the common facts of its segments.
struct PhaseCx<'a> {
    phase: &'a Phase,
    segments: &'a [Segment],
    /// First output tile of each segment, and the number of all.
    starts: Vec<usize>,
    /// Format of each lane.
    formats: Vec<Format>,
    /// Columns of an output tile in each lane.
    tile_n: usize,
    /// Column tiles of a unit that a warp has.
    tiles: usize,
}

impl<'a> Plan<'a> {
    /// The product by a schedule of its own.
    pub fn new(cx: &'a Cx<'a>, body: &'a Matmul, schedule: MatmulSchedule) -> Plan<'a> {
        let (k, stored) = cx.rows(body.x);
        Plan { cx, body, schedule, k, elem: body.prologue.map_or(stored, |p| p.elem) }
    }

    /// Bytes of shared memory of a block.
    pub fn shared_bytes(&self) -> usize {
        match self.schedule.variant {
            Variant::Gemv | Variant::Fma => stream::shared_bytes(self),
            Variant::Mma => tiles::shared_bytes(self),
            Variant::Wgmma | Variant::WgmmaFp8 => wgmma::shared_bytes(self),
        }
    }

    /// Emits the kernel.
    pub fn emit(&self) -> Source {
        match self.schedule.variant {
            Variant::Gemv | Variant::Fma => stream::emit(self),
            Variant::Mma => tiles::emit(self),
            Variant::Wgmma | Variant::WgmmaFp8 => wgmma::emit(self),
        }
    }

    /// Whether both operands are e4m3 numbers, whose scales are the epilogue's.
    fn is_fp8(&self) -> bool {
        self.elem.encoding().code == Code::Float(Float::E4m3)
    }

    /// Units of an output tile.
    fn kt(&self) -> usize {
        self.schedule.k / (schedule::TILE_K * self.schedule.depth)
    }

    fn phases(&self) -> Vec<PhaseCx<'_>> {
        self.schedule.phases.iter().map(|phase| self.phase(phase)).collect()
    }

    fn phase<'p>(&'p self, phase: &'p Phase) -> PhaseCx<'p> {
        let segments = &self.body.segments[phase.first..phase.first + phase.segments];
        let mut starts = vec![0];
        for s in segments {
            starts.push(starts[starts.len() - 1] + s.tiles());
        }
        let formats = segments[0].weights.iter().map(|w| self.cx.kernel.matrix(*w).format).collect();
        let tiles = if self.schedule.variant == Variant::Gemv { self.schedule.depth } else { 1 };
        PhaseCx { phase, segments, starts, formats, tile_n: segments[0].tile_n, tiles }
    }
}

impl PhaseCx<'_> {
    /// Strips of a lane in an output tile.
    fn wide(&self) -> usize {
        self.tile_n / BLOCK
    }

    fn lanes(&self) -> usize {
        self.formats.len()
    }

    /// Columns of all lanes.
    fn columns(&self) -> usize {
        self.tile_n * self.lanes()
    }

    /// Bytes of a unit of a warp: all its strips.
    fn unit_bytes(&self) -> usize {
        self.formats.iter().map(|f| schedule::unit_bytes(*f)).sum::<usize>() * self.phase.strips
    }
}
