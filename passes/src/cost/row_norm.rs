//! Row-wise work.

use super::{Cost, ELEMENTWISE, OnCpu, OnGpu, cols, norm_steps, quant_steps};
use crate::cost_gpu::{LATENCY, bytes_of_row};
use llmcc_ir::kernel::{ParamId, RowNorm};

impl Cost for RowNorm {
    fn cpu(&self, on: &OnCpu<'_>) -> f64 {
        let norm = self.norm.map_or(1.0, norm_steps);
        let one = |part: Option<ParamId>| part.map_or(0.0, |_| 1.0);
        let (gain, added) = (one(self.gain), one(self.bias) + one(self.residual));
        let steps = norm + gain + added + quant_steps(on.kernel, self.out);
        let bytes = 8.0 + 4.0 * one(self.residual);
        (on.m * cols(on.kernel, self.x)) as f64 * (steps / ELEMENTWISE + bytes / on.t.cache) / on.parallel()
    }

    fn gpu(&self, on: &OnGpu<'_>) -> f64 {
        let rows = [Some(self.x), self.gain, self.bias, self.residual, Some(self.out)].into_iter().flatten();
        LATENCY + on.l2(on.m * rows.map(|p| bytes_of_row(on.kernel, p)).sum::<usize>())
    }
}
