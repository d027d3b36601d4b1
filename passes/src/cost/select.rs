//! The rows of a cache that an indexer selects.

use super::scored::Scored;
use super::{Cost, ELEMENTWISE, OnCpu, OnGpu, context_parts};
use crate::cost_gpu::LATENCY;
use crate::work::{Launched, Work};
use llmcc_ir::kernel::{Param, Select};
use llmcc_ir::target::RowKind;

/// Rows that are scored for a token: none where all are selected.
fn scored<'a>(k: &Select, params: &'a [Param], context: usize) -> Option<Scored<'a>> {
    let kv = params[k.kv].kind.state()?.paged()?;
    let rows = Some(kv.rows(context)).filter(|rows| *rows > k.top).unwrap_or(0);
    Some(Scored { kv, rows, macs: rows * k.heads * kv.value_dim })
}

impl Cost for Select {
    fn cpu(&self, on: &OnCpu<'_>) -> f64 {
        let OnCpu { kernel, m, context, .. } = *on;
        let Some(scored) = scored(self, &kernel.params, context) else { return 0.0 };
        // A score becomes a number that is compared, and the best are written.
        let steps = (m * (scored.rows + self.top)) as f64 * 4.0 / ELEMENTWISE;
        scored.cpu(on, steps, m * context_parts(m, scored.rows))
    }

    fn gpu(&self, on: &OnGpu<'_>) -> f64 {
        let OnGpu { kernel, gpu, m, sequences, context, .. } = *on;
        let Some(scored) = scored(self, &kernel.params, context) else { return 0.0 };
        let bytes = (scored.rows * scored.kv.token_bytes() * sequences) as f64;
        LATENCY + on.memory(bytes).max((m * scored.macs * 2) as f64 / gpu.flops(RowKind::F32))
    }

    fn work(&self, on: &Launched<'_>) -> Work {
        scored(self, &on.kernel.params, on.context).map_or(Work::default(), |scored| scored.work(on))
    }
}
