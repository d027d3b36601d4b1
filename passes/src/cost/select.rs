//! The rows of a cache that an indexer selects.

use super::{ATTENTION, ATTENTION_TOKEN, Cost, ELEMENTWISE, OnCpu, OnGpu, context_parts, imbalance};
use crate::cost_gpu::LATENCY;
use crate::work::{Launched, Work};
use llmcc_ir::kernel::{Param, RowElem, Select};
use llmcc_ir::kv::KvSpec;
use llmcc_ir::target::RowKind;

fn cache<'a>(params: &'a [Param], k: &Select) -> Option<&'a KvSpec> {
    params[k.kv].kind.state()?.paged()
}

/// Rows that are scored for a token, and multiply-adds for all of them: nothing where all are selected.
fn scored(k: &Select, kv: &KvSpec, context: usize) -> (usize, usize) {
    let rows = kv.rows(context);
    if rows <= k.top { (0, 0) } else { (rows, rows * k.heads * kv.value_dim) }
}

impl Cost for Select {
    fn cpu(&self, on: &OnCpu<'_>) -> f64 {
        let OnCpu { kernel, t, m, env, context } = *on;
        let Some(kv) = cache(&kernel.params, self) else { return 0.0 };
        let (rows, macs) = scored(self, kv, context);
        let sequences = env.rows.clamp(1, m.max(1));
        let bytes = (rows * kv.token_bytes() * sequences) as f64;
        // A score becomes a number that is compared, and the best are written.
        let steps = (m * (rows + self.top)) as f64 * 4.0 / ELEMENTWISE;
        let computed = (m * macs) as f64 / (t.macs(RowKind::F32) * ATTENTION) + m as f64 * ATTENTION_TOKEN;
        let items = m * context_parts(m, rows);
        (bytes / t.memory).max((computed + steps) / t.cores as f64 * imbalance(items, t.cores))
    }

    fn gpu(&self, on: &OnGpu<'_>) -> f64 {
        let OnGpu { kernel, gpu, m, sequences, context, .. } = *on;
        let Some(kv) = cache(&kernel.params, self) else { return 0.0 };
        let (rows, macs) = scored(self, kv, context);
        let bytes = (rows * kv.token_bytes() * sequences) as f64;
        LATENCY + on.memory(bytes).max((m * macs * 2) as f64 / gpu.flops(RowKind::F32))
    }

    fn work(&self, on: &Launched<'_>) -> Work {
        let Some(kv) = cache(&on.kernel.params, self) else { return Work::default() };
        let (rows, macs) = scored(self, kv, on.context);
        Work {
            bytes: (rows * kv.token_bytes() * on.sequences.clamp(1, on.m.max(1))) as f64,
            macs: (on.m * macs) as f64,
            elem: RowElem::F32,
        }
    }
}
