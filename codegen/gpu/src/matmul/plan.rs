//! A product with its schedule, and the phases of it.

use crate::cx::Cx;
use crate::mlir::WARP;
use llmcc_ir::gpu::schedule::{self, MatmulSchedule, Phase, Variant};
use llmcc_ir::kernel::{Matmul, RowElem, Segment};
use llmcc_ir::quant::{BLOCK, Code, Float, Format};

/// A product with its schedule.
pub struct Plan<'a> {
    pub(super) cx: &'a Cx<'a>,
    pub(super) body: &'a Matmul,
    pub(super) schedule: MatmulSchedule,
    /// Columns of the input.
    pub(super) k: usize,
    /// Storage of what is multiplied.
    pub(super) elem: RowElem,
}

/// A phase of a plan, with what is equal in its segments.
pub(super) struct PhaseCx<'a> {
    pub(super) phase: &'a Phase,
    pub(super) segments: &'a [Segment],
    /// First output tile of each segment, and the number of all.
    pub(super) starts: Vec<usize>,
    /// Format of each lane's weights.
    pub(super) formats: Vec<Format>,
    /// Columns of an output tile in each lane.
    pub(super) tile_n: usize,
    /// Column tiles of a unit that a warp has.
    pub(super) tiles: usize,
}

impl<'a> Plan<'a> {
    /// The product by a schedule of its own.
    pub fn new(cx: &'a Cx<'a>, body: &'a Matmul, schedule: MatmulSchedule) -> Plan<'a> {
        let (k, stored) = cx.rows(body.x);
        Plan { cx, body, schedule, k, elem: body.prologue.map_or(stored, |p| p.elem) }
    }

    /// Whether both operands are e4m3 numbers, whose scales are the epilogue's.
    pub(super) fn is_fp8(&self) -> bool {
        self.elem.encoding().code == Code::Float(Float::E4m3)
    }

    /// Threads that multiply.
    pub(super) fn threads(&self) -> u32 {
        (self.schedule.warps * WARP) as u32
    }

    /// Units of an output tile.
    pub(super) fn kt(&self) -> usize {
        self.schedule.k / (schedule::TILE_K * self.schedule.depth)
    }

    pub(super) fn phases(&self) -> Vec<PhaseCx<'_>> {
        self.schedule.phases.iter().map(|phase| self.phase(phase)).collect()
    }

    pub(super) fn phase<'p>(&'p self, phase: &'p Phase) -> PhaseCx<'p> {
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
    pub(super) fn wide(&self) -> usize {
        self.tile_n / BLOCK
    }

    pub(super) fn lanes(&self) -> usize {
        self.formats.len()
    }

    /// Columns of all lanes.
    pub(super) fn columns(&self) -> usize {
        self.tile_n * self.lanes()
    }

    /// Bytes of a unit of a warp: all its strips.
    pub(super) fn unit_bytes(&self) -> usize {
        self.formats.iter().map(|f| schedule::unit_bytes(*f)).sum::<usize>() * self.phase.strips
    }
}
