//! Linear recurrences.

use super::{Cost, ELEMENTWISE, OnCpu, OnGpu};
use crate::cost_gpu::LATENCY;
use crate::work::{Launched, Work};
use llmcc_ir::kernel::{Kernel, ParamKind, Recurrence, RowElem};
use llmcc_ir::state::FixedSpec;

/// Steps of 128-bit vectors per number of a state and token, of the microkernel with longer ones;
/// by the delta rule, which goes through the state twice.
const STEPS: f64 = 1.0;
const DELTA_STEPS: f64 = 1.5;
/// Instructions of a GPU: decay, update, output, and what the delta rule needs before.
const GPU_STEPS: f64 = 3.0;
const GPU_DELTA_STEPS: f64 = 4.0;
/// Seconds from a token to the next one of its sequence on a GPU, at least: chains of multiply-adds
/// and shuffles. From what these take, not measured.
const TOKEN: f64 = 0.15e-6;

fn state(kernel: &Kernel, k: &Recurrence) -> Option<FixedSpec> {
    match kernel.params[k.state].kind {
        ParamKind::Fixed(spec) => Some(spec),
        ParamKind::Rows { .. } | ParamKind::Matrix { .. } | ParamKind::Vector { .. } | ParamKind::Kv(_) => None,
    }
}

impl Cost for Recurrence {
    fn cpu(&self, on: &OnCpu<'_>) -> f64 {
        let Some(state) = state(on.kernel, self) else { return 0.0 };
        let steps = if self.delta { DELTA_STEPS } else { STEPS };
        let sequences = on.env.rows.clamp(1, on.m.max(1));
        let streamed = (2 * sequences * state.bytes()) as f64 / on.t.memory;
        streamed.max((on.m * state.len()) as f64 * steps / ELEMENTWISE / on.t.cores as f64)
    }

    fn gpu(&self, on: &OnGpu<'_>) -> f64 {
        let Some(state) = state(on.kernel, self) else { return 0.0 };
        let steps = if self.delta { GPU_DELTA_STEPS } else { GPU_STEPS };
        let streamed = (2 * on.sequences * state.bytes()) as f64 / on.t.memory;
        // An instruction is as good as a multiply-add.
        let computed = (on.m * state.len()) as f64 * steps / (on.t.macs(RowElem::F32) * on.t.cores as f64);
        LATENCY + (on.m.div_ceil(on.sequences) as f64 * TOKEN).max(streamed).max(computed)
    }

    fn work(&self, on: &Launched<'_>) -> Work {
        let Some(state) = state(on.kernel, self) else { return Work::default() };
        let products = if self.delta { 3 } else { 2 };
        Work {
            bytes: (2 * on.sequences.clamp(1, on.m.max(1)) * state.bytes()) as f64,
            macs: (products * on.m * state.len()) as f64,
            ..Work::default()
        }
    }
}
