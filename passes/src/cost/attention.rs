//! Attention over the paged cache.

use super::{ATTENTION, ATTENTION_SEQUENCE, ATTENTION_TOKEN, Cost, HALF_PAGE, OnCpu, OnGpu, context_parts, imbalance};
use crate::cost_gpu::LATENCY;
use crate::work::{Launched, Work};
use llmcc_ir::kernel::{Attention, Param, ParamKind, RowElem};
use llmcc_ir::kv::KvSpec;
use llmcc_ir::target::RowKind;

/// The time of attention on a GPU, fitted to `benches/gpu`: seconds beside [`LATENCY`] to find its
/// pages and fill its ring.
pub(crate) const GPU_START: f64 = 2.0e-6;
/// Seconds to merge the parts of a column of a few tokens' results, of all heads.
pub(crate) const GPU_MERGE: f64 = 0.68e-9;
/// Tokens that are merged.
pub(crate) const GPU_MERGED: usize = 64;
/// Tokens of context that the start and the end of a prompt's block are worth.
pub(crate) const GPU_RAMP: usize = 307;
/// Seconds of the softmax of a query and a key.
pub(crate) const GPU_SOFTMAX: f64 = 0.303e-12;
/// The most query rows of tokens that are taken together where the kernel that splits contexts serves prompts.
const SHARED_ROWS: usize = 16;
/// Share of the tensor cores' peak that the products beside it reach.
pub(crate) const GPU_TENSOR: f64 = 0.76;

/// Tokens that a block takes together on a GPU: of a prompt as many as fill its rows; of few tokens
/// one, whose pages several blocks may share.
fn tokens_of_a_block(tokens: usize, group: usize) -> usize {
    const ROWS: usize = 128;
    const MANY: usize = 64;
    if tokens > MANY { (ROWS / group.max(1)).max(1) } else { 1 }
}

fn cache<'a>(params: &'a [Param], k: &Attention) -> Option<&'a KvSpec> {
    params[k.kv].kind.state()?.paged()
}

/// Products of a query with a key, and of its weight with the value: distances have a key and a query too.
fn columns(k: &Attention, kv: &KvSpec) -> usize {
    let products = if k.relative.is_some() { 3 } else { 1 };
    products * kv.key_dim + kv.value_dim
}

/// Rows of the cache that a token sees, of those that it has selected.
fn rows(k: &Attention, params: &[Param], kv: &KvSpec, context: usize) -> usize {
    let seen = kv.rows(kv.window.map_or(context, |w| w.min(context)));
    let most = k.selected.map(|p| &params[p].kind);
    if let Some(ParamKind::Rows { cols, .. }) = most { seen.min(*cols / k.lists(kv)) } else { seen }
}

impl Cost for Attention {
    fn cpu(&self, on: &OnCpu<'_>) -> f64 {
        let OnCpu { kernel, t, m, env, context } = *on;
        let Some(kv) = cache(&kernel.params, self) else { return 0.0 };
        // Whole pages are computed; half of the last one is beyond the context on average.
        let context = rows(self, &kernel.params, kv, context) + HALF_PAGE;
        let sequences = env.rows.clamp(1, m.max(1));
        // Tokens of a sequence select rows of their own.
        let readers = if self.selected.is_some() { m.max(1) } else { sequences };
        let bytes = (context * kv.token_bytes() * readers) as f64;
        let macs = (m * context * self.heads * columns(self, kv)) as f64;
        let items = (m * kv.kv_heads).max(1);
        let starts = (sequences * kv.kv_heads) as f64 * ATTENTION_SEQUENCE + items as f64 * ATTENTION_TOKEN;
        let computed = (macs / (t.macs(RowKind::F32) * ATTENTION) + starts) / t.cores as f64;
        (bytes / t.memory).max(computed * imbalance(items * context_parts(m, context), t.cores))
    }

    fn gpu(&self, on: &OnGpu<'_>) -> f64 {
        let OnGpu { kernel, gpu, m, sequences, context, .. } = *on;
        let Some(kv) = cache(&kernel.params, self) else { return 0.0 };
        let context = rows(self, &kernel.params, kv, context);
        let bytes = (context * kv.token_bytes() * sequences) as f64;
        let pairs = (m * (context + GPU_RAMP) * self.heads) as f64;
        let products = (2 * columns(self, kv)) as f64 / (gpu.flops(RowKind::F16) * GPU_TENSOR);
        let merged = if m <= GPU_MERGED { (self.heads * kv.value_dim) as f64 * GPU_MERGE } else { 0.0 };
        // Without a kernel of prompts, many tokens read what they see a few at a time.
        let together = self.tile_m.min(SHARED_ROWS * kv.kv_heads / self.heads.max(1)).max(1);
        let again = if on.t.wish.invariant && m > GPU_MERGED { m * context * kv.token_bytes() / together } else { 0 };
        let again = again as f64;
        let read = on.memory(bytes).max(again / gpu.l2_bandwidth);
        LATENCY + GPU_START + merged + read.max(pairs * (GPU_SOFTMAX + products))
    }

    fn gpu_tiles(&mut self, params: &[Param], rows: usize) {
        if let Some(kv) = cache(params, self) {
            self.tile_m = tokens_of_a_block(rows, self.heads / kv.kv_heads.max(1));
        }
    }

    fn work(&self, on: &Launched<'_>) -> Work {
        let Some(kv) = cache(&on.kernel.params, self) else { return Work::default() };
        let context = rows(self, &on.kernel.params, kv, on.context);
        Work {
            bytes: (context * kv.token_bytes() * on.sequences.clamp(1, on.m.max(1))) as f64,
            macs: (on.m * context * self.heads * columns(self, kv)) as f64,
            elem: RowElem::F32,
        }
    }
}
