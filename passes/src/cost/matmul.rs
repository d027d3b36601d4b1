//! Matrix products.

use super::{CALL, Cost, L1, NOT_HIDDEN, OnCpu, OnGpu, cols, epilogue, imbalance, multiply, prologue, rows_of};
use crate::cost_gpu::{self, LATENCY, TENSOR, bytes_of_row, waves};
use crate::work::{Launched, Work, multiplied};
use llmcc_ir::gpu::schedule;
use llmcc_ir::kernel::{Matmul, Param, ParamKind};
use llmcc_ir::plan::row_bytes;
use llmcc_ir::quant::BLOCK;
use llmcc_ir::target::RowKind;

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
        let OnGpu { kernel, t, gpu, m, .. } = *on;
        let Some(plan) = schedule::matmul(kernel, t) else { return f64::INFINITY };
        let row_tiles = m.div_ceil(plan.rows).max(1);
        let (mut weights, mut macs, mut ends) = (0.0, 0.0, 0.0);
        for s in &self.segments {
            for w in &s.weights {
                let ParamKind::Matrix { n, k, format } = kernel.params[*w].kind else { continue };
                weights += format.packed_bytes(n, k) as f64;
                macs += (row_tiles * plan.rows * n * k) as f64;
            }
            ends += cost_gpu::epilogue(s, gpu, m);
        }
        let tiles: usize = plan.phases.iter().map(|p| p.tiles).sum();
        let (input, computed) = match self.prologue {
            // Every block reads the rows whole and normalizes them, with a gain and a bias if they
            // are not folded into the weights.
            Some(p) => {
                let vectors = [p.gain, p.bias].into_iter().flatten().map(|v| bytes_of_row(kernel, v)).sum::<usize>();
                let rows = plan.rows.min(m) * bytes_of_row(kernel, self.x);
                (plan.blocks * rows, LATENCY + on.l2(plan.blocks * vectors))
            }
            None => (tiles * row_tiles * plan.rows.min(m) * bytes_of_row(kernel, self.x), 0.0),
        };
        let rate = match plan.variant {
            schedule::Variant::Fma => gpu.flops(RowKind::F32),
            schedule::Variant::Gemv | schedule::Variant::Mma | schedule::Variant::Wgmma => {
                gpu.flops(RowKind::F16) * TENSOR
            }
            schedule::Variant::WgmmaFp8 => gpu.flops(RowKind::Fp8) * TENSOR,
        };
        let uneven = if plan.phases.iter().all(|p| p.cut) {
            1.0
        } else {
            waves(plan.blocks * row_tiles, gpu.sms as usize * plan.resident)
        };
        let again = weights * (row_tiles - 1) as f64 + input as f64;
        let streamed = (weights / t.memory).max(again / gpu.l2_bandwidth).max(2.0 * macs / rate);
        LATENCY + computed + streamed * uneven + ends
    }

    fn gpu_tiles(&mut self, _: &[Param], _: usize) {
        // Tiles are chosen for a well-formed product, so it needs some to begin with.
        self.tile_m = schedule::GEMV_ROWS;
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
