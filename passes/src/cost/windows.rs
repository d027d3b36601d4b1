//! Bounds of windows, and the choice of windows by them.

use super::means::ChannelMeans;
use super::{ATTENTION, ATTENTION_TOKEN, Cost, ELEMENTWISE, OnCpu, OnGpu, imbalance};
use crate::work::{Launched, Work};
use llmcc_ir::kernel::{Kernel, Param, RowElem, SelectWindows, WindowBounds};
use llmcc_ir::kv::KvSpec;
use llmcc_ir::target::RowKind;

/// As means: a comparison is a fifth of an exponential.
fn bounds(kernel: &Kernel, k: &WindowBounds) -> ChannelMeans {
    ChannelMeans { columns: super::means::columns(kernel, k.state), exponentials: 0.2, token: 0.1e-6 }
}

impl Cost for WindowBounds {
    fn cpu(&self, on: &OnCpu<'_>) -> f64 {
        bounds(on.kernel, self).cpu(on)
    }

    fn gpu(&self, on: &OnGpu<'_>) -> f64 {
        bounds(on.kernel, self).gpu(on)
    }

    fn work(&self, on: &Launched<'_>) -> Work {
        bounds(on.kernel, self).work(on)
    }
}

fn cache<'a>(params: &'a [Param], k: &SelectWindows) -> Option<&'a KvSpec> {
    params[k.kv].kind.state()?.paged()
}

/// Windows that are scored for a token, and multiply-adds for all of them: none where all are selected.
fn scored(k: &SelectWindows, kv: &KvSpec, context: usize) -> (usize, usize) {
    let rows = kv.rows(context);
    let d = kv.value_dim / (2 * k.kv_heads.max(1));
    if rows <= k.windows { (0, 0) } else { (rows, rows * k.heads * d) }
}

impl Cost for SelectWindows {
    fn cpu(&self, on: &OnCpu<'_>) -> f64 {
        let OnCpu { kernel, t, m, env, context } = *on;
        let Some(kv) = cache(&kernel.params, self) else { return 0.0 };
        let (rows, macs) = scored(self, kv, context);
        let sequences = env.rows.clamp(1, m.max(1));
        let bytes = (rows * kv.token_bytes() * sequences) as f64;
        // Rows are turned, a score becomes a number that is compared, and numbers of tokens are written.
        let found = self.kv_heads * (rows + (self.windows + 1) * kv.every);
        let steps = (m * (rows * kv.value_dim + 4 * found)) as f64 / ELEMENTWISE;
        let computed = (m * macs) as f64 / (t.macs(RowKind::F32) * ATTENTION) + m as f64 * ATTENTION_TOKEN;
        (bytes / t.memory).max((computed + steps) / t.cores as f64 * imbalance(m, t.cores))
    }

    /// There is no such kernel: a plan with it is refused.
    fn gpu(&self, _: &OnGpu<'_>) -> f64 {
        0.0
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
