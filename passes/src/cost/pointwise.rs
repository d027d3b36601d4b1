//! Elementwise work on its own.

use super::{ALONE, Cost, OnCpu, OnGpu, epilogue};
use crate::cost_gpu::{self, LATENCY};
use llmcc_ir::kernel::{Param, Pointwise};
use llmcc_ir::quant::BLOCK;

impl Cost for Pointwise {
    fn cpu(&self, on: &OnCpu<'_>) -> f64 {
        self.segments.iter().map(|s| epilogue(on.kernel, s, on.t, on.m)).sum::<f64>() * ALONE / on.parallel()
    }

    fn gpu(&self, on: &OnGpu<'_>) -> f64 {
        LATENCY + self.segments.iter().map(|s| cost_gpu::epilogue(s, on.gpu, on.m)).sum::<f64>()
    }
    fn gpu_tiles(&mut self, _: &[Param], _: usize) {
        self.segments.iter_mut().for_each(|s| s.tile_n = s.n.next_multiple_of(BLOCK));
    }
}
