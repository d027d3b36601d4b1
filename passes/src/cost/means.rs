//! Costs of kernels that keep means of weighted values, channel by channel.

use super::{ELEMENTWISE, EXP_STEPS, OnCpu, OnGpu};
use crate::cost_gpu::LATENCY;
use crate::work::{Launched, Work};
use llmcc_ir::kernel::{Kernel, ParamId, RowElem};
use llmcc_ir::state::StateSpec;

/// Means of a kernel.
pub(super) struct ChannelMeans {
    /// How many of each sequence.
    pub columns: usize,
    /// Exponentials of each and token.
    pub exponentials: f64,
    /// Seconds from a token to the next one of its sequence on a GPU, at least.
    pub token: f64,
}

/// Columns of a state of fixed size.
pub(super) fn columns(kernel: &Kernel, state: ParamId) -> usize {
    kernel.params[state].kind.state().and_then(StateSpec::fixed).map_or(0, |spec| spec.cols)
}

impl ChannelMeans {
    pub fn cpu(&self, on: &OnCpu<'_>) -> f64 {
        (on.m * self.columns) as f64 * self.exponentials * EXP_STEPS / ELEMENTWISE / on.t.cores as f64
    }

    pub fn gpu(&self, on: &OnGpu<'_>) -> f64 {
        // An instruction is as good as a multiply-add.
        let instructions = (on.m * self.columns) as f64 * self.exponentials * EXP_STEPS;
        let computed = instructions / (on.t.macs(RowElem::F32) * on.t.cores as f64);
        LATENCY + (on.m.div_ceil(on.sequences) as f64 * self.token).max(computed)
    }

    /// Weighted values, weights and maxima of logarithms are read and written once.
    pub fn work(&self, on: &Launched<'_>) -> Work {
        let bytes = 2 * on.sequences.clamp(1, on.m.max(1)) * 3 * self.columns * 4;
        Work { bytes: bytes as f64, ..Work::default() }
    }
}
