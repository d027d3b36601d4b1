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
mod plan;
mod stream;
mod table;
mod tiles;
mod warpgroup;
mod weights;
mod wgmma;
mod work;

pub(crate) use input::halves;
use plan::PhaseCx;
pub use plan::Plan;

use crate::Source;
use llmcc_ir::gpu::schedule::Variant;

impl Plan<'_> {
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
}
