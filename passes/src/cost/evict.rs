//! Attention to caches that drop tokens.

use super::{ATTENTION, ATTENTION_TOKEN, Cost, ELEMENTWISE, EXP_STEPS_WIDE, OnCpu, OnGpu, imbalance};
use crate::work::{Launched, Work};
use llmcc_ir::kernel::{EvictingAttention, Kernel, RowElem};
use llmcc_ir::state::FixedSpec;
use llmcc_ir::target::RowKind;

fn state(kernel: &Kernel, k: &EvictingAttention) -> Option<FixedSpec> {
    kernel.params[k.state].kind.state()?.fixed().copied()
}

/// Tokens in a cache.
fn tokens(k: &EvictingAttention, context: usize) -> usize {
    context.min(k.eviction.budget)
}

/// Bytes of the state that a sequence has at a context.
fn bytes(k: &EvictingAttention, state: FixedSpec, context: usize) -> usize {
    4 * state.heads * state.rows * tokens(k, context)
}

/// Multiply-adds of a token.
fn macs(k: &EvictingAttention, state: FixedSpec, context: usize) -> usize {
    k.heads * (k.key_dim + k.value_dim(state)) * tokens(k, context)
}

impl Cost for EvictingAttention {
    fn cpu(&self, on: &OnCpu<'_>) -> f64 {
        let OnCpu { kernel, t, m, env, context } = *on;
        let Some(state) = state(kernel, self) else { return 0.0 };
        let sequences = env.rows.clamp(1, m.max(1));
        let streamed = (sequences * bytes(self, state, context)) as f64 / t.memory;
        // Exponentials, and marks of places one by one.
        let places = (m * (self.heads + state.heads) * tokens(self, context)) as f64;
        let steps = places * (EXP_STEPS_WIDE + 4.0) / ELEMENTWISE;
        let products = (m * macs(self, state, context)) as f64 / (t.macs(RowKind::F32) * ATTENTION);
        let computed = products + steps + m as f64 * ATTENTION_TOKEN;
        let items = if self.eviction.together { 1 } else { state.heads };
        streamed.max(computed / t.cores as f64 * imbalance(items, t.cores))
    }

    /// There is no such kernel: a plan with it is refused.
    fn gpu(&self, _: &OnGpu<'_>) -> f64 {
        0.0
    }

    fn work(&self, on: &Launched<'_>) -> Work {
        let Some(state) = state(on.kernel, self) else { return Work::default() };
        Work {
            bytes: (on.sequences.clamp(1, on.m.max(1)) * bytes(self, state, on.context)) as f64,
            macs: (on.m * macs(self, state, on.context)) as f64,
            elem: RowElem::F32,
        }
    }
}
