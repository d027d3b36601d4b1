//! Row-wise work.

use super::{Cost, ELEMENTWISE, NORM_STEPS, OnCpu, OnGpu, cols, quant_steps};
use crate::cost_gpu::{LATENCY, bytes_of_row};
use llmcc_ir::kernel::RowNorm;

impl Cost for RowNorm {
    fn cpu(&self, on: &OnCpu<'_>) -> f64 {
        let norm = self.norm.map_or(1.0, |_| NORM_STEPS);
        let steps = norm + self.gain.map_or(0.0, |_| 1.0) + quant_steps(on.kernel, self.out);
        (on.m * cols(on.kernel, self.x)) as f64 * (steps / ELEMENTWISE + 8.0 / on.t.cache) / on.parallel()
    }

    fn gpu(&self, on: &OnGpu<'_>) -> f64 {
        LATENCY + on.l2(on.m * (bytes_of_row(on.kernel, self.x) + bytes_of_row(on.kernel, self.out)))
    }
}
