//! Ids of the step's tokens as numbers.

use super::{Cost, ELEMENTWISE, OnCpu, OnGpu};
use crate::cost_gpu::LATENCY;
use llmcc_ir::kernel::TokenIds;

impl Cost for TokenIds {
    fn cpu(&self, on: &OnCpu<'_>) -> f64 {
        on.m as f64 / ELEMENTWISE
    }

    fn gpu(&self, _: &OnGpu<'_>) -> f64 {
        LATENCY
    }
}
