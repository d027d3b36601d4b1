//! Rows that come with the tokens.

use super::{Cost, ELEMENTWISE, OnCpu, OnGpu};
use crate::cost_gpu::LATENCY;
use llmcc_ir::kernel::GivenRows;

impl Cost for GivenRows {
    // No alternative competes; the cost must only be positive.
    fn cpu(&self, on: &OnCpu<'_>) -> f64 {
        on.m as f64 / ELEMENTWISE
    }

    fn gpu(&self, _: &OnGpu<'_>) -> f64 {
        LATENCY
    }
}
