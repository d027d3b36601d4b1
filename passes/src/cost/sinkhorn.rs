//! Square matrices with sums near one.

use super::{Cost, ELEMENTWISE, EXP_STEPS, OnCpu, OnGpu, cols};
use crate::cost_gpu::{LATENCY, bytes_of_row};
use llmcc_ir::kernel::Sinkhorn;

/// Steps of a division and of its part of a sum.
const DIVISION: f64 = 4.0;
/// Seconds from a division to the next one of the same element on a GPU.
const TURN: f64 = 0.05e-6;

/// How often an element is divided.
fn divisions(k: &Sinkhorn) -> f64 {
    (2 * k.balance.rounds) as f64
}

impl Cost for Sinkhorn {
    fn cpu(&self, on: &OnCpu<'_>) -> f64 {
        let steps = EXP_STEPS + DIVISION * divisions(self);
        (on.m * cols(on.kernel, self.x)) as f64 * steps / ELEMENTWISE / on.parallel()
    }

    fn gpu(&self, on: &OnGpu<'_>) -> f64 {
        let moved = on.l2(on.m * (bytes_of_row(on.kernel, self.x) + bytes_of_row(on.kernel, self.out)));
        LATENCY + moved.max(divisions(self) * TURN)
    }
}
