//! How matrix products are spread over a GPU: a pure function of the kernel and the target, which
//! the emitter follows and the cost model asks.
//!
//! Weights lie in strips of 16 rows and tiles of 64 columns
//! ([`Packing::Fragment`](crate::quant::Packing::Fragment)). A **unit** is a column tile of 64 of
//! one output tile (all its strips and lanes), or several adjacent ones
//! ([`MatmulSchedule::depth`]). Units are numbered output tile by output tile, and the blocks of a
//! launch take equal, contiguous shares of them: whole output tiles, or, where that would leave
//! multiprocessors idle, cut ones, whose partial sums the last of the blocks that share a tile adds
//! in a fixed order.

mod choose;
mod direct;
mod facts;
mod parts;

use crate::kernel::Kernel;
use crate::target::TargetSpec;
use facts::Facts;

pub use self::choose::{Tiles, fitting, matmul_tiles};
pub use self::parts::{
    GEMV_ROWS, Input, MatmulSchedule, PART_ROWS, Phase, Variant, WGMMA_PIECE, WGMMA_PRODUCERS, norm_words, sums_bytes,
    sums_stride, unit_bytes, unit_scales, wgmma_strip_bytes,
};
pub use super::weights::{
    FactorRun, TILE_K, factor_runs, has_f32_factors, has_operands, is_fp8, lane_words, on_tensor_cores,
};

/// The schedule of a product on a GPU: of those that fit and are [wished](crate::gpu::wish::Wish), the
/// one that [`cost`](super::cost) predicts to be the fastest. `None` if the kernel is not a
/// well-formed product, the target no GPU, or none fits.
pub fn matmul(kernel: &Kernel, target: &TargetSpec) -> Option<MatmulSchedule> {
    choose::matmul(&Facts::new(kernel, target)?)
}

#[cfg(test)]
mod tests;
