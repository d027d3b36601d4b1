//! Linear recurrences.

use super::{Cost, ELEMENTWISE, EXP_STEPS_WIDE, OnCpu, OnGpu};
use crate::cost_gpu::LATENCY;
use crate::work::{Launched, Work};
use llmcc_ir::graph::Update;
use llmcc_ir::kernel::{Kernel, Recurrence, RowElem};
use llmcc_ir::state::FixedSpec;

/// Steps of 128-bit vectors per number of a state and token, of the microkernel with longer ones:
/// more where it goes through the state twice, or takes an exponential of each number.
fn steps(update: Update) -> f64 {
    match update {
        Update::Plain | Update::Bonus => 1.0,
        Update::Delta | Update::Erase => 1.5,
        Update::Scan => 1.0 + EXP_STEPS_WIDE,
    }
}

/// Instructions of a GPU: decay, update, output, and preparations of some updates.
fn gpu_steps(update: Update) -> f64 {
    match update {
        Update::Plain => 3.0,
        Update::Delta | Update::Bonus => 4.0,
        Update::Erase => 5.0,
        Update::Scan => 6.0,
    }
}

/// Products of each number of a state with a token.
fn products(update: Update) -> usize {
    match update {
        Update::Plain | Update::Scan => 2,
        Update::Delta | Update::Bonus => 3,
        Update::Erase => 4,
    }
}

/// Seconds from a token to the next one of its sequence on a GPU, at least: chains of multiply-adds
/// and shuffles. From a prompt of a gated delta rule (`benches/gpu`).
const TOKEN: f64 = 0.39e-6;

fn state(kernel: &Kernel, k: &Recurrence) -> Option<FixedSpec> {
    kernel.params[k.state].kind.state()?.fixed().copied()
}

impl Cost for Recurrence {
    fn cpu(&self, on: &OnCpu<'_>) -> f64 {
        let Some(state) = state(on.kernel, self) else { return 0.0 };
        let sequences = on.env.rows.clamp(1, on.m.max(1));
        let streamed = (2 * sequences * state.bytes()) as f64 / on.t.memory;
        streamed.max((on.m * state.len()) as f64 * steps(self.update) / ELEMENTWISE / on.t.cores as f64)
    }

    fn gpu(&self, on: &OnGpu<'_>) -> f64 {
        let Some(state) = state(on.kernel, self) else { return 0.0 };
        let streamed = on.memory((2 * on.sequences * state.bytes()) as f64);
        // An instruction is as good as a multiply-add.
        let computed =
            (on.m * state.len()) as f64 * gpu_steps(self.update) / (on.t.macs(RowElem::F32) * on.t.cores as f64);
        LATENCY + (on.m.div_ceil(on.sequences) as f64 * TOKEN).max(streamed).max(computed)
    }

    fn work(&self, on: &Launched<'_>) -> Work {
        let Some(state) = state(on.kernel, self) else { return Work::default() };
        Work {
            bytes: (2 * on.sequences.clamp(1, on.m.max(1)) * state.bytes()) as f64,
            macs: (products(self.update) * on.m * state.len()) as f64,
            ..Work::default()
        }
    }
}
