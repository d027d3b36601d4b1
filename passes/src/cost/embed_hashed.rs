//! Rows of a table by hashes of several tokens' ids.

use super::{Cost, DECODE_STEPS, ELEMENTWISE, OnCpu, OnGpu};
use crate::cost_gpu::LATENCY;
use crate::work::{Launched, Work};
use llmcc_ir::kernel::{EmbedHashed, Kernel, ParamKind};

/// Seconds to a row that no prefetcher expects.
const MISS: f64 = 0.1e-6;

/// Rows that a token reads, their bytes and columns; whether they are codes.
fn rows(kernel: &Kernel, of: &EmbedHashed) -> Option<(usize, usize, usize, bool)> {
    let ParamKind::Matrix { k, format, .. } = kernel.params[of.table].kind else { return None };
    Some((of.sizes.len(), format.packed_bytes(1, k), k, format.is_quantized()))
}

impl Cost for EmbedHashed {
    fn cpu(&self, on: &OnCpu<'_>) -> f64 {
        let Some((count, bytes, k, quantized)) = rows(on.kernel, self) else { return 0.0 };
        let steps = if quantized { DECODE_STEPS } else { 1.0 };
        let all = (on.m * count) as f64;
        all * bytes as f64 / on.t.memory + all * (k as f64 * steps / ELEMENTWISE + MISS) / on.parallel()
    }

    fn gpu(&self, on: &OnGpu<'_>) -> f64 {
        let Some((count, bytes, ..)) = rows(on.kernel, self) else { return 0.0 };
        LATENCY + on.memory((on.m * count * bytes) as f64)
    }

    fn work(&self, on: &Launched<'_>) -> Work {
        let Some((count, bytes, ..)) = rows(on.kernel, self) else { return Work::default() };
        Work { bytes: (on.m * count * bytes) as f64, ..Work::default() }
    }
}
