//! Rows given in place of rows of some tokens.

use super::{Cost, ELEMENTWISE, OnCpu, OnGpu};
use crate::cost_gpu::LATENCY;
use llmcc_ir::kernel::Substitute;

impl Cost for Substitute {
    // No alternative competes; the cost must only be positive.
    fn cpu(&self, on: &OnCpu<'_>) -> f64 {
        on.m as f64 / ELEMENTWISE
    }

    fn gpu(&self, _: &OnGpu<'_>) -> f64 {
        LATENCY
    }
}
