//! Predicted seconds of a kernel on a GPU, and its tile sizes.
//!
//! Products by their schedules, turn by turn: [`llmcc_ir::gpu::cost`]. Others by a roofline per
//! launch: bytes of device memory, bytes through the second-level cache, tensor and f32 operations,
//! each at the target's rate; the slowest decides, plus the start and the end of a kernel. To all
//! the gap between launches of a captured graph is added. Constants were fitted to the speeds of
//! `benches/gpu`; the tests here compare predictions with those.

use crate::cost::{OnGpu, of, of_mut};
use llmcc_ir::gpu::schedule;
use llmcc_ir::kernel::{Body, Expr, Kernel, ParamId, ParamKind, RowElem, Segment};
use llmcc_ir::plan::row_bytes;
use llmcc_ir::target::{GpuArch, TargetSpec};
use llmcc_ir::ty::Env;

/// Context length at which attention is costed (no choice depends on it).
const CONTEXT: usize = 1024;
/// Seconds from the start of a block to its first results when it must read its input and join
/// threads first: two trips to memory and a few barriers.
pub const LATENCY: f64 = 2.0e-6;

/// Tokens of steps in which attention takes them one by one where the kernel that splits contexts serves all
/// steps, and how many it takes together in larger ones.
const ALONE: usize = 64;
const TOGETHER: usize = 4;

/// Sets the tile sizes of a kernel for steps of size `env`; returns the predicted seconds.
pub fn choose_tiles(kernel: &mut Kernel, target: &TargetSpec, gpu: &GpuArch, env: Env) -> f64 {
    let rows = kernel.rows.eval(env);
    of_mut(&mut kernel.body).gpu_tiles(&kernel.params, rows);
    if let (Body::Attention(a), true) = (&mut kernel.body, target.wish.invariant) {
        // The kernel that splits contexts serves all steps, in prompts for some tokens at a time.
        a.tile_m = if rows > ALONE { TOGETHER } else { 1 };
    }
    if matches!(kernel.body, Body::Matmul(_)) {
        let Some(tiles) = schedule::matmul_tiles(kernel, target, rows) else { return f64::INFINITY };
        if let Body::Matmul(m) = &mut kernel.body {
            tiles.set(m);
        }
    }
    seconds(kernel, target, gpu, env, CONTEXT)
}

/// Predicted seconds of one launch whose tokens attend to `context` tokens each.
pub fn seconds(kernel: &Kernel, t: &TargetSpec, gpu: &GpuArch, env: Env, context: usize) -> f64 {
    let m = kernel.rows.eval(env);
    let on = OnGpu { kernel, t, gpu, m, sequences: env.rows.clamp(1, m.max(1)), context };
    t.launch + of(&kernel.body).gpu(&on)
}

/// Bytes of an operand that a row of results reads or writes; 0 if it has no rows.
pub(crate) fn bytes_of_row(kernel: &Kernel, p: ParamId) -> usize {
    match kernel.params[p].kind {
        ParamKind::Rows { cols, elem, .. } => row_bytes(cols, elem),
        ParamKind::Vector { len } => row_bytes(len, RowElem::F32),
        ParamKind::Matrix { .. } | ParamKind::State(_) => 0,
    }
}

/// How much longer a grid of `blocks` takes than one that fills `slots` evenly.
pub(crate) fn waves(blocks: usize, slots: usize) -> f64 {
    let blocks = blocks.max(1);
    (blocks.div_ceil(slots) * slots) as f64 / blocks as f64
}

/// Seconds of an expression and its store over `m` rows, through the second-level cache.
pub(crate) fn epilogue(s: &Segment, gpu: &GpuArch, m: usize) -> f64 {
    let mut bytes = 4.0;
    s.expr.visit(&mut |e| {
        if matches!(e, Expr::Rows { .. }) {
            bytes += 4.0;
        }
    });
    (m * s.n) as f64 * bytes / gpu.l2_bandwidth
}

#[cfg(test)]
mod tests;
