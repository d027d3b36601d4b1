//! The most probable tokens.

use super::{Cost, OnCpu, OnGpu};
use crate::cost_gpu::{LATENCY, bytes_of_row};
use llmcc_ir::kernel::TopK;

impl Cost for TopK {
    /// Only GPUs have it.
    fn cpu(&self, _: &OnCpu<'_>) -> f64 {
        0.0
    }

    /// Blocks search their slices, then one searches their results.
    fn gpu(&self, on: &OnGpu<'_>) -> f64 {
        2.0 * LATENCY + on.l2(on.m * bytes_of_row(on.kernel, self.x))
    }
}
