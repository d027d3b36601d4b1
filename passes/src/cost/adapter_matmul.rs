//! Products with the matrices of adapters.

use super::{CALL, Cost, OnCpu, OnGpu};
use crate::cost_gpu::LATENCY;
use crate::work::{Launched, Work};
use llmcc_ir::kernel::{AdapterMatmul, Kernel, RowElem};
use llmcc_ir::state::AdapterSpec;

fn spec(kernel: &Kernel, k: &AdapterMatmul) -> Option<AdapterSpec> {
    kernel.params[k.adapter].kind.state()?.adapter().copied()
}

/// Multiply-adds of so many rows.
fn macs(kernel: &Kernel, k: &AdapterMatmul, m: usize) -> f64 {
    spec(kernel, k).map_or(0.0, |s| (m * s.n * s.k) as f64)
}

/// Bytes of the matrices of so many sequences.
fn bytes(kernel: &Kernel, k: &AdapterMatmul, sequences: usize) -> f64 {
    spec(kernel, k).map_or(0.0, |s| (sequences * s.bytes()) as f64)
}

impl Cost for AdapterMatmul {
    /// Every sequence is taken to have an adapter of its own.
    fn cpu(&self, on: &OnCpu<'_>) -> f64 {
        let parallel = on.t.cores as f64;
        let streamed = bytes(on.kernel, self, on.env.rows.clamp(1, on.m.max(1))) / on.t.memory;
        let computed = macs(on.kernel, self, on.m) / (on.t.macs(RowElem::F32) * parallel);
        streamed.max(computed) + on.m as f64 * CALL / parallel
    }

    /// Matrices come from memory once for each sequence, and through the second-level cache for each
    /// token.
    fn gpu(&self, on: &OnGpu<'_>) -> f64 {
        let streamed = on.memory(bytes(on.kernel, self, on.sequences));
        let computed = macs(on.kernel, self, on.m) / (on.t.macs(RowElem::F32) * on.t.cores as f64);
        LATENCY + streamed.max(on.l2(bytes(on.kernel, self, on.m) as usize)).max(computed)
    }

    fn work(&self, on: &Launched<'_>) -> Work {
        let sequences = on.sequences.clamp(1, on.m.max(1));
        Work { bytes: bytes(on.kernel, self, sequences), macs: macs(on.kernel, self, on.m), elem: RowElem::F32 }
    }
}
