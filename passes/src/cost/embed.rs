//! Rows of a table by token.

use super::{Cost, DECODE_STEPS, ELEMENTWISE, OnCpu, OnGpu};
use crate::cost_gpu::LATENCY;
use crate::work::{Launched, Work};
use llmcc_ir::graph::F32;
use llmcc_ir::kernel::{Embed, ParamKind};

impl Cost for Embed {
    fn cpu(&self, on: &OnCpu<'_>) -> f64 {
        let ParamKind::Matrix { k, format, .. } = on.kernel.params[self.table].kind else { return 0.0 };
        let more = if self.scale == F32::new(1.0) { 0.0 } else { 1.0 } + self.add.map_or(0.0, |_| 1.0);
        let steps = more + if format.is_quantized() { DECODE_STEPS } else { 1.0 };
        (on.m * format.packed_bytes(1, k)) as f64 / on.t.memory
            + (on.m * k) as f64 * steps / ELEMENTWISE / on.parallel()
    }

    fn gpu(&self, on: &OnGpu<'_>) -> f64 {
        let ParamKind::Matrix { k, format, .. } = on.kernel.params[self.table].kind else { return 0.0 };
        LATENCY + on.memory((on.m * format.packed_bytes(1, k)) as f64)
    }

    fn work(&self, on: &Launched<'_>) -> Work {
        let ParamKind::Matrix { k, format, .. } = on.kernel.params[self.table].kind else { return Work::default() };
        Work { bytes: (on.m * format.packed_bytes(1, k)) as f64, ..Work::default() }
    }
}
