//! Products with the matrices of each token's experts.

use super::{CALL, Cost, NOT_HIDDEN, OnCpu, OnGpu, epilogue, imbalance, multiply, rows_of};
use crate::cost_gpu::{self, LATENCY, bytes_of_row, waves};
use crate::work::{Launched, Work};
use llmcc_ir::gpu::schedule;
use llmcc_ir::kernel::{ExpertMatmul, Kernel, Param, ParamKind, RowElem};
use llmcc_ir::plan::row_bytes;
use llmcc_ir::quant::BLOCK;
use llmcc_ir::target::RowKind;

/// How many of `experts` `tokens` tokens choose, each `top` of them, where all are as probable.
fn expected(experts: usize, top: usize, tokens: usize) -> f64 {
    let experts = experts as f64;
    let missed = (1.0 - top as f64 / experts).max(0.0).powi(tokens.min(i32::MAX as usize) as i32);
    (experts * (1.0 - missed)).max(1.0)
}

/// Expected experts of a step, and rows of each of them.
fn share(k: &ExpertMatmul, m: usize) -> (f64, usize) {
    let experts = expected(k.experts, k.top, m);
    (experts, ((m * k.top) as f64 / experts).ceil().max(1.0) as usize)
}

fn elem(kernel: &Kernel, k: &ExpertMatmul) -> RowElem {
    match kernel.params[k.x].kind {
        ParamKind::Rows { elem, .. } => elem,
        ParamKind::Matrix { .. } | ParamKind::Vector { .. } | ParamKind::State(_) => RowElem::F32,
    }
}

impl Cost for ExpertMatmul {
    fn cpu(&self, on: &OnCpu<'_>) -> f64 {
        let OnCpu { kernel, t, m, .. } = *on;
        let elem = elem(kernel, self);
        let (experts, rows) = share(self, m);
        let (s, tile_m) = (&self.segment, self.tile_m.max(1));
        let (passes, tiles) = (rows.div_ceil(tile_m), s.tiles());
        let (mut weight_bytes, mut computed) = (0.0, 0.0);
        for w in &s.weights {
            let ParamKind::Matrix { k, format, .. } = kernel.params[*w].kind else { continue };
            let bytes = format.packed_bytes(s.n, k) as f64;
            weight_bytes += bytes;
            computed += multiply((rows, s.n, k), tile_m, format, elem, t);
            computed += bytes * (passes - 1) as f64 / t.cache;
            // Rows are brought together for each tile, then read.
            computed += 3.0 * (tiles * rows * row_bytes(k, elem)) as f64 / t.cache;
            computed += (tiles * passes) as f64 * CALL;
        }
        computed += epilogue(kernel, s, t, rows);
        let (streamed, computed) = (experts * weight_bytes / t.memory, experts * computed / t.cores as f64);
        let exposed = rows_of(elem, t).and_then(|r| r.unit_for(rows)).map_or(NOT_HIDDEN, |u| u.exposed);
        (streamed.max(computed) + streamed.min(computed) * exposed) * imbalance(tiles, t.cores)
    }

    fn gpu(&self, on: &OnGpu<'_>) -> f64 {
        let OnGpu { kernel, gpu, m, .. } = *on;
        let (experts, rows) = share(self, m);
        let s = &self.segment;
        let (mut weights, mut macs) = (0.0, 0.0);
        for w in &s.weights {
            let ParamKind::Matrix { k, format, .. } = kernel.params[*w].kind else { continue };
            weights += experts * format.packed_bytes(s.n, k) as f64;
            macs += experts * (rows.next_multiple_of(self.tile_m.max(1)) * s.n * k) as f64;
        }
        let blocks = (experts as usize).max(1) * s.tiles();
        let input = (blocks * rows * bytes_of_row(kernel, self.x)) as f64;
        let again = weights * (rows.div_ceil(self.tile_m.max(1)) - 1) as f64 + input;
        let streamed = on.memory(weights).max(again / gpu.l2_bandwidth);
        let streamed = streamed.max(2.0 * macs / (gpu.flops(RowKind::F16) * gpu.rates.tensor));
        let ends = cost_gpu::epilogue(s, gpu, m * self.top);
        LATENCY + streamed * waves(blocks, gpu.sms as usize) + ends
    }

    fn gpu_tiles(&mut self, _: &[Param], rows: usize) {
        self.tile_m = if rows <= schedule::GEMV_ROWS { 1 } else { schedule::GEMV_ROWS };
        self.segment.tile_n = BLOCK;
    }

    fn work(&self, on: &Launched<'_>) -> Work {
        let mut out = Work { elem: elem(on.kernel, self), ..Work::default() };
        for w in &self.segment.weights {
            if let ParamKind::Matrix { k, format, .. } = on.kernel.params[*w].kind {
                let bytes = format.packed_bytes(self.segment.n, k) as f64;
                out.bytes += expected(self.experts, self.top, on.m) * bytes;
                out.macs += (on.m * self.top * self.segment.n * k) as f64;
            }
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::expected;

    #[test]
    fn few_tokens_choose_few_experts() {
        assert_eq!(expected(128, 8, 1), 8.0);
        assert!((expected(128, 8, 2) - 15.5).abs() < 1e-9);
        assert!(expected(128, 8, 1000) > 127.9);
        assert_eq!(expected(8, 8, 3), 8.0);
    }
}
