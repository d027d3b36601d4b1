//! Scales of rows that are rounded token by token.

use super::{Cost, ELEMENTWISE, OnCpu, OnGpu, cols};
use crate::cost_gpu::{LATENCY, bytes_of_row};
use llmcc_ir::kernel::AbsMaxScale;

impl Cost for AbsMaxScale {
    fn cpu(&self, on: &OnCpu<'_>) -> f64 {
        (on.m * cols(on.kernel, self.x)) as f64 / ELEMENTWISE / on.parallel()
    }

    fn gpu(&self, on: &OnGpu<'_>) -> f64 {
        LATENCY + on.l2(on.m * bytes_of_row(on.kernel, self.x))
    }
}
