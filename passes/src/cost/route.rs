//! The choice of experts.

use super::{Cost, ELEMENTWISE, EXP_STEPS, OnCpu, OnGpu, cols};
use crate::cost_gpu::{LATENCY, bytes_of_row};
use llmcc_ir::kernel::Route;

impl Cost for Route {
    fn cpu(&self, on: &OnCpu<'_>) -> f64 {
        let steps = EXP_STEPS + self.router.top as f64;
        // One number at a time.
        (on.m * cols(on.kernel, self.x)) as f64 * 4.0 * steps / ELEMENTWISE / on.parallel()
    }

    fn gpu(&self, on: &OnGpu<'_>) -> f64 {
        LATENCY + on.l2(on.m * (bytes_of_row(on.kernel, self.x) + bytes_of_row(on.kernel, self.out)))
    }
}
