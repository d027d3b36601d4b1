//! Convolutions over time.

use super::{ALONE, Cost, ELEMENTWISE, OnCpu, OnGpu, cols};
use crate::cost_gpu::{LATENCY, bytes_of_row};
use llmcc_ir::kernel::CausalConv;

impl Cost for CausalConv {
    fn cpu(&self, on: &OnCpu<'_>) -> f64 {
        // A multiply-add and a move of the state per tap.
        let steps = (on.m * cols(on.kernel, self.out) * 2 * self.width) as f64;
        steps / ELEMENTWISE * ALONE / on.t.cores as f64
    }

    fn gpu(&self, on: &OnGpu<'_>) -> f64 {
        LATENCY + on.l2(on.m * 2 * bytes_of_row(on.kernel, self.out))
    }
}
