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

#[cfg(test)]
mod tests {
    use crate::cost::{choose_tiles, seconds};
    use llmcc_ir::kernel::Kernel;
    use llmcc_ir::quant::Format;
    use llmcc_ir::target::{RowKind, TargetSpec, find, microkernel_of};
    use llmcc_ir::text::parse_kernel;
    use llmcc_ir::ty::Env;

    /// A product of 2048 columns with 8192 rows of weights.
    fn product(format: &str, rows: RowKind) -> Kernel {
        let elem = rows.rows(Format::parse(format).unwrap());
        let text = format!(
            "kernel @k rows T {{\n  param %x: rows {elem}[T, 2048]\n  param %w: matrix {format}[8192, 2048]\n  \
             param %y: rows f32[T, 8192]\n  matmul x=%x tile_m=1 {{\n    \
             segment n=8192 tile_n=16 weights(%w): %y[0..] = acc0\n  }}\n}}\n"
        );
        parse_kernel(&text).unwrap_or_else(|e| panic!("{text}: {e:?}"))
    }

    fn predicted(format: &str, rows: RowKind, target: &TargetSpec, tokens: usize) -> f64 {
        let mut kernel = product(format, rows);
        let env = Env { tokens, rows: 1 };
        choose_tiles(&mut kernel, target, env);
        seconds(&kernel, target, env)
    }

    /// Without a microkernel a product is bound by decoding its weights for every row: many times slower than
    /// reading as many bytes, and never faster with more rows.
    #[test]
    fn generic_products_are_slow() {
        for name in ["x86-64-v3", "x86-64-v4", "x86-64-v4-amx"] {
            let target = find(name).unwrap();
            // 8.125 and 8.25 bits; 4.625 both.
            for (slow, fast, rows) in [("q8k", "fp8b", RowKind::F32), ("iq2", "nvfp4", RowKind::F32)] {
                let (slow_format, fast_format) = (Format::parse(slow).unwrap(), Format::parse(fast).unwrap());
                assert!(microkernel_of(slow_format, rows.rows(slow_format)).is_none(), "{slow}");
                assert!(microkernel_of(fast_format, rows.rows(fast_format)).is_some(), "{fast}");
                let ratio = |tokens| predicted(slow, rows, target, tokens) / predicted(fast, rows, target, tokens);
                assert!(ratio(1) > 4.0, "{name} {slow}: {}", ratio(1));
                assert!(ratio(128) > 8.0, "{name} {slow}: {}", ratio(128));
                let by_token = |tokens: usize| predicted(slow, rows, target, tokens) / tokens as f64;
                assert!(by_token(64) > 0.9 * by_token(4), "{name} {slow}");
            }
        }
    }

    /// Measured on one core of a Zen 4: 3.1 and 3.4 G/s of `fp8b` for decoding and prompts, before it had a
    /// microkernel.
    #[test]
    fn generic_rates_are_the_measured_ones() {
        let target = find("x86-64-v4").unwrap();
        let (macs, tokens) = (8192.0 * 2048.0, 8);
        let rate = macs * tokens as f64 / predicted("q8k", RowKind::F32, target, tokens) / target.cores as f64;
        assert!((2.5e9..3.5e9).contains(&rate), "{rate:e}");
    }
}
