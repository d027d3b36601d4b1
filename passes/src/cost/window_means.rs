//! Means of windows of tokens.

use super::{Cost, ELEMENTWISE, EXP_STEPS, OnCpu, OnGpu};
use crate::cost_gpu::LATENCY;
use crate::work::{Launched, Work};
use llmcc_ir::kernel::{Kernel, RowElem, WindowMeans};
use llmcc_ir::state::StateSpec;

/// Exponentials of a column and token.
const EXPONENTIALS: f64 = 2.0;
/// Seconds from a token to the next one of its sequence on a GPU, at least.
const TOKEN: f64 = 0.1e-6;

/// Columns of all series.
fn columns(kernel: &Kernel, k: &WindowMeans) -> usize {
    let channels = kernel.params[k.state].kind.state().and_then(StateSpec::fixed).map_or(0, |spec| spec.cols);
    channels * k.series(&kernel.params)
}

impl Cost for WindowMeans {
    fn cpu(&self, on: &OnCpu<'_>) -> f64 {
        (on.m * columns(on.kernel, self)) as f64 * EXPONENTIALS * EXP_STEPS / ELEMENTWISE / on.t.cores as f64
    }

    fn gpu(&self, on: &OnGpu<'_>) -> f64 {
        // An instruction is as good as a multiply-add.
        let instructions = (on.m * columns(on.kernel, self)) as f64 * EXPONENTIALS * EXP_STEPS;
        let computed = instructions / (on.t.macs(RowElem::F32) * on.t.cores as f64);
        LATENCY + (on.m.div_ceil(on.sequences) as f64 * TOKEN).max(computed)
    }

    fn work(&self, on: &Launched<'_>) -> Work {
        let bytes = 2 * on.sequences.clamp(1, on.m.max(1)) * 3 * columns(on.kernel, self) * 4;
        Work { bytes: bytes as f64, ..Work::default() }
    }
}
