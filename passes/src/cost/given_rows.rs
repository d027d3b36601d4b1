//! Rows that come with the tokens.

use super::{Cost, ELEMENTWISE, OnCpu, OnGpu};
use crate::cost_gpu::LATENCY;
use llmcc_ir::kernel::GivenRows;

impl Cost for GivenRows {
    // There is no other way to have them: what counts is that it is no less than nothing.
    fn cpu(&self, on: &OnCpu<'_>) -> f64 {
        on.m as f64 / ELEMENTWISE
    }

    fn gpu(&self, _: &OnGpu<'_>) -> f64 {
        LATENCY
    }
}
