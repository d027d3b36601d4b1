//! Bounds of windows, and the choice of windows by them.

use super::means::ChannelMeans;
use super::scored::Scored;
use super::{Cost, ELEMENTWISE, OnCpu, OnGpu};
use crate::work::{Launched, Work};
use llmcc_ir::kernel::{Kernel, Param, SelectWindows, WindowBounds};

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

/// Windows that are scored for a token: none where all are selected.
fn scored<'a>(k: &SelectWindows, params: &'a [Param], context: usize) -> Option<Scored<'a>> {
    let kv = params[k.kv].kind.state()?.paged()?;
    let rows = Some(kv.rows(context)).filter(|rows| *rows > k.windows).unwrap_or(0);
    let d = kv.value_dim / (2 * k.kv_heads.max(1));
    Some(Scored { kv, rows, macs: rows * k.heads * d })
}

impl Cost for SelectWindows {
    fn cpu(&self, on: &OnCpu<'_>) -> f64 {
        let OnCpu { kernel, m, context, .. } = *on;
        let Some(scored) = scored(self, &kernel.params, context) else { return 0.0 };
        let Scored { kv, rows, .. } = scored;
        // Rows are turned, a score becomes a number that is compared, and numbers of tokens are written.
        let found = self.kv_heads * (rows + (self.windows + 1) * kv.every);
        let steps = (m * (rows * kv.value_dim + 4 * found)) as f64 / ELEMENTWISE;
        scored.cpu(on, steps, m)
    }

    /// There is no such kernel: a plan with it is refused.
    fn gpu(&self, _: &OnGpu<'_>) -> f64 {
        0.0
    }

    fn work(&self, on: &Launched<'_>) -> Work {
        scored(self, &on.kernel.params, on.context).map_or(Work::default(), |scored| scored.work(on))
    }
}
