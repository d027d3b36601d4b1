//! Matrix products.

use super::{CALL, Cost, L1, NOT_HIDDEN, OnCpu, OnGpu, cols, epilogue, imbalance, multiply, prologue, rows_of};
use crate::cost_gpu;
use crate::work::{Launched, Work, multiplied};
use llmcc_ir::gpu::{cost, schedule};
use llmcc_ir::kernel::{Kernel, Matmul, Param, ParamKind};
use llmcc_ir::plan::row_bytes;
use llmcc_ir::quant::BLOCK;
use llmcc_ir::target::TargetSpec;

/// Seconds of a product by a schedule, with the gains and biases that every block reads for its
/// prologue, and the operands of its epilogue.
pub(crate) fn by_product(
    kernel: &Kernel,
    body: &Matmul,
    plan: &schedule::MatmulSchedule,
    t: &TargetSpec,
    m: usize,
) -> f64 {
    let Some(gpu) = t.gpu() else { return f64::INFINITY };
    let ends: f64 = body.segments.iter().map(|s| cost_gpu::epilogue(s, gpu, m)).sum();
    let vectors = body.prologue.map_or([None; 2], |p| [p.gain, p.bias]).into_iter().flatten();
    let bytes: usize = vectors.map(|v| cost_gpu::bytes_of_row(kernel, v)).sum();
    let blocks = plan.blocks * m.max(1).div_ceil(plan.rows);
    cost::product(kernel, body, plan, t, m) + ends + (blocks * bytes) as f64 / gpu.l2_bandwidth
}

impl Cost for Matmul {
    fn cpu(&self, on: &OnCpu<'_>) -> f64 {
        let OnCpu { kernel, t, m, .. } = *on;
        let elem = multiplied(kernel, self);
        // Bytes of one row as the products read it.
        let x_bytes = row_bytes(cols(kernel, self.x), elem);
        let tile_m = self.tile_m.max(1);
        let passes = m.div_ceil(tile_m).max(1);
        let (mut weight_bytes, mut computed, mut items) = (0.0, 0.0, 0);
        for s in &self.segments {
            let tiles = s.tiles();
            items += tiles;
            for w in &s.weights {
                let ParamKind::Matrix { n, k, format } = kernel.params[*w].kind else { continue };
                let bytes = format.packed_bytes(n, k) as f64;
                weight_bytes += bytes;
                computed += multiply((m, n, k), tile_m, format, elem, t);
                computed += bytes * (passes - 1) as f64 / t.cache;
                computed += (tiles * m * x_bytes) as f64 / t.cache;
                computed += (tiles * passes) as f64 * CALL;
            }
            let accumulators = s.tile_n * tile_m.min(m) * 4 * s.weights.len().max(1);
            let spill = if accumulators > L1 { (m * s.n * 8) as f64 / t.cache } else { 0.0 };
            computed += epilogue(kernel, s, t, m) + spill;
        }
        let (streamed, computed) = (weight_bytes / t.memory, computed / t.cores as f64);
        let exposed = rows_of(elem, t).and_then(|r| r.unit_for(m)).map_or(NOT_HIDDEN, |u| u.exposed);
        (streamed.max(computed) + streamed.min(computed) * exposed) * imbalance(items, t.cores)
            + prologue(kernel, self, t, m)
    }

    fn gpu(&self, on: &OnGpu<'_>) -> f64 {
        let Some(plan) = schedule::matmul(on.kernel, on.t) else { return f64::INFINITY };
        by_product(on.kernel, self, &plan, on.t, on.m)
    }

    fn gpu_tiles(&mut self, _: &[Param], _: usize) {
        // Tiles are chosen for a well-formed product, so it needs some to begin with.
        (self.tile_m, self.k_parts) = (schedule::GEMV_ROWS, 1);
        self.segments.iter_mut().for_each(|s| s.tile_n = BLOCK);
    }

    fn work(&self, on: &Launched<'_>) -> Work {
        let mut out = Work { elem: multiplied(on.kernel, self), ..Work::default() };
        for w in self.segments.iter().flat_map(|s| &s.weights) {
            if let ParamKind::Matrix { n, k, format } = on.kernel.params[*w].kind {
                out.bytes += format.packed_bytes(n, k) as f64;
                out.macs += (on.m * n * k) as f64;
            }
        }
        out
    }
}
