//! Cosines and sines of the step.

use super::{Cost, ELEMENTWISE, OnCpu, OnGpu, ROPE_STEPS, cols};
use crate::cost_gpu::{LATENCY, bytes_of_row};
use llmcc_ir::kernel::RopeTable;

impl Cost for RopeTable {
    fn cpu(&self, on: &OnCpu<'_>) -> f64 {
        (on.m * cols(on.kernel, self.out)) as f64 * ROPE_STEPS / ELEMENTWISE / on.parallel()
    }

    fn gpu(&self, on: &OnGpu<'_>) -> f64 {
        LATENCY + on.l2(on.m * bytes_of_row(on.kernel, self.out))
    }
}
