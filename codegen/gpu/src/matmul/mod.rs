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
//! What they share: [`weights`] (rings of weights), [`decode`] (codes to operands), [`input`]
//! (input to shared memory, with the prologue), [`work`] (which block computes what, and joining
//! output tiles that were cut between blocks).

pub(crate) mod decode;
mod input;
mod stream;
mod tiles;
mod warpgroup;
mod weights;
mod wgmma;
mod work;

pub(crate) use input::halves;

use crate::Source;
use crate::cx::Cx;
use llmcc_codegen::CodegenError;
use llmcc_ir::gpu::schedule::{self, MatmulSchedule, Phase, Variant};
use llmcc_ir::kernel::{Matmul, RowElem, Segment};
use llmcc_ir::quant::{BLOCK, Format, Packing};

/// A product with its schedule.
struct Plan<'a> {
    cx: &'a Cx<'a>,
    body: &'a Matmul,
    schedule: &'a MatmulSchedule,
    /// Columns of the input.
    k: usize,
    /// Storage of what is multiplied.
    elem: RowElem,
}

/// A phase of a plan, with what is equal in its segments.
struct PhaseCx<'a> {
    phase: &'a Phase,
    segments: &'a [Segment],
    /// First output tile of each segment, and the number of all.
    starts: Vec<usize>,
    /// Of each lane.
    formats: Vec<Format>,
    /// Columns of an output tile in each lane.
    tile_n: usize,
}

impl Plan<'_> {
    /// Units of an output tile.
    fn kt(&self) -> usize {
        self.schedule.k / (schedule::TILE_K * self.schedule.depth)
    }

    fn phases(&self) -> Result<Vec<PhaseCx<'_>>, CodegenError> {
        self.schedule.phases.iter().map(|phase| self.phase(phase)).collect()
    }

    fn phase<'p>(&'p self, phase: &'p Phase) -> Result<PhaseCx<'p>, CodegenError> {
        let segments = &self.body.segments[phase.first..phase.first + phase.segments];
        let mut starts = vec![0];
        for s in segments {
            starts.push(starts[starts.len() - 1] + s.tiles());
            for w in &s.weights {
                let (n, k, format) = self.cx.matrix(*w)?;
                if n != s.n || k != self.k || format.packing != Packing::Fragment {
                    return Err(self.cx.error("a product needs matrices of its shape in fragment order"));
                }
            }
        }
        let formats =
            segments[0].weights.iter().map(|w| Ok(self.cx.matrix(*w)?.2)).collect::<Result<_, CodegenError>>()?;
        Ok(PhaseCx { phase, segments, starts, formats, tile_n: segments[0].tile_n })
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

/// Emits the kernel.
///
/// # Errors
/// Operands of the wrong kind, or shapes that no schedule serves.
pub fn emit(cx: &Cx<'_>, body: &Matmul) -> Result<Source, CodegenError> {
    let schedule = schedule::matmul(cx.kernel, cx.target).ok_or_else(|| {
        cx.error("no schedule: the input must be f32, f16, bf16, or fp8 with fp8 weights, and a few rows of it must fit in shared memory")
    })?;
    let (k, stored) = cx.rows(body.x)?;
    let plan = Plan { cx, body, schedule: &schedule, k, elem: body.prologue.map_or(stored, |p| p.elem) };
    match schedule.variant {
        Variant::Gemv | Variant::Fma => stream::emit(&plan),
        Variant::Mma => tiles::emit(&plan),
        Variant::Wgmma | Variant::WgmmaFp8 => wgmma::emit(&plan),
    }
}
