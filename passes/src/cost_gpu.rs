//! Predicted seconds of a kernel on a GPU, and its tile sizes.
//!
//! A roofline per launch: bytes of device memory, bytes through the second-level cache, tensor and f32 operations, each at the target's rate times the share of
//! multiprocessors that the grid keeps busy; the slowest decides, plus the gap between launches of a captured graph. How a product is spread over
//! the machine is asked of [`llmcc_ir::gpu::schedule`], which the emitter follows too.

use llmcc_ir::gpu::schedule;
use llmcc_ir::kernel::{Attention, Body, Expr, Kernel, Matmul, ParamId, ParamKind, Segment};
use llmcc_ir::plan::row_bytes;
use llmcc_ir::target::{GpuArch, RowKind, TargetSpec};
use llmcc_ir::ty::Env;

/// Context length at which attention is costed (no choice depends on it).
const CONTEXT: usize = 1024;
/// Share of the tensor cores' peak that a product of large tiles reaches.
pub const TENSOR: f64 = 0.8;
/// Seconds from the start of a block to its first results when it must read its input and join threads first: two trips to memory and a few barriers.
pub const LATENCY: f64 = 2.0e-6;

/// Sets the tile sizes of a kernel for steps of size `env`; returns the predicted seconds.
pub fn choose_tiles(kernel: &mut Kernel, target: &TargetSpec, gpu: &GpuArch, env: Env) -> f64 {
    let rows = kernel.rows.eval(env);
    match &mut kernel.body {
        Body::Matmul(m) => {
            // Tiles are chosen for a well-formed product, so it needs some to begin with.
            m.tile_m = schedule::GEMV_ROWS;
            m.segments.iter_mut().for_each(|s| s.tile_n = llmcc_ir::quant::BLOCK);
        }
        Body::Pointwise(p) => p.segments.iter_mut().for_each(|s| s.tile_n = s.n.next_multiple_of(llmcc_ir::quant::BLOCK)),
        Body::Attention(a) => {
            if let ParamKind::Kv(kv) = kernel.params[a.kv].kind {
                a.tile_m = attention_tokens(rows, a.heads / kv.kv_heads.max(1));
            }
        }
        Body::RowNorm(_) | Body::Embed(_) | Body::RopeTable(_) | Body::TopK(_) => {}
    }
    if matches!(kernel.body, Body::Matmul(_)) {
        let Some((tile_m, tiles)) = schedule::matmul_tiles(kernel, target, rows) else { return f64::INFINITY };
        if let Body::Matmul(m) = &mut kernel.body {
            m.tile_m = tile_m;
            m.segments.iter_mut().zip(tiles).for_each(|(s, n)| s.tile_n = n);
        }
    }
    seconds(kernel, target, gpu, env, CONTEXT)
}

/// Tokens that a block of attention takes together: of a prompt as many as fill its rows; of few tokens one, whose pages several blocks may share.
fn attention_tokens(tokens: usize, group: usize) -> usize {
    const ROWS: usize = 128;
    const MANY: usize = 64;
    if tokens > MANY { (ROWS / group.max(1)).max(1) } else { 1 }
}

/// Predicted seconds of one launch whose tokens attend to `context` tokens each.
pub fn seconds(kernel: &Kernel, t: &TargetSpec, gpu: &GpuArch, env: Env, context: usize) -> f64 {
    let m = kernel.rows.eval(env);
    let l2 = |bytes: usize| bytes as f64 / gpu.l2_bandwidth;
    let work = match &kernel.body {
        Body::Matmul(b) => matmul(kernel, b, t, gpu, m),
        Body::Attention(a) => attention(kernel, a, t, gpu, m, context),
        Body::RowNorm(n) => LATENCY + l2(m * (bytes_of_row(kernel, n.x) + bytes_of_row(kernel, n.out))),
        Body::Pointwise(p) => LATENCY + p.segments.iter().map(|s| epilogue(s, gpu, m)).sum::<f64>(),
        Body::Embed(e) => match kernel.params[e.table].kind {
            ParamKind::Matrix { k, format, .. } => LATENCY + (m * format.packed_bytes(1, k)) as f64 / t.memory,
            _ => 0.0,
        },
        Body::RopeTable(r) => LATENCY + l2(m * bytes_of_row(kernel, r.out)),
        // Blocks search their slices, then one searches what they found.
        Body::TopK(t) => 2.0 * LATENCY + l2(m * bytes_of_row(kernel, t.x)),
    };
    t.launch + work
}

fn bytes_of_row(kernel: &Kernel, p: ParamId) -> usize {
    match kernel.params[p].kind {
        ParamKind::Rows { cols, elem, .. } => row_bytes(cols, elem),
        ParamKind::Matrix { .. } | ParamKind::Vector { .. } | ParamKind::Kv(_) => 0,
    }
}

/// How much longer a grid of `blocks` takes than one that fills `slots` evenly.
fn waves(blocks: usize, slots: usize) -> f64 {
    let blocks = blocks.max(1);
    (blocks.div_ceil(slots) * slots) as f64 / blocks as f64
}

fn matmul(kernel: &Kernel, b: &Matmul, t: &TargetSpec, gpu: &GpuArch, m: usize) -> f64 {
    let Some(plan) = schedule::matmul(kernel, t) else { return f64::INFINITY };
    let row_tiles = m.div_ceil(plan.rows).max(1);
    let (mut weights, mut macs, mut ends) = (0.0, 0.0, 0.0);
    for s in &b.segments {
        for w in &s.weights {
            let ParamKind::Matrix { n, k, format } = kernel.params[*w].kind else { continue };
            weights += format.packed_bytes(n, k) as f64;
            macs += (row_tiles * plan.rows * n * k) as f64;
        }
        ends += epilogue(s, gpu, m);
    }
    let tiles: usize = plan.phases.iter().map(|p| p.tiles).sum();
    let (input, computed) = match b.prologue {
        // Every block reads the rows whole and normalizes them.
        Some(_) => (plan.blocks * plan.rows.min(m) * bytes_of_row(kernel, b.x), LATENCY),
        None => (tiles * row_tiles * plan.rows.min(m) * bytes_of_row(kernel, b.x), 0.0),
    };
    let rate = match plan.variant {
        schedule::Variant::Fma => gpu.flops(RowKind::F32),
        schedule::Variant::Gemv | schedule::Variant::Mma | schedule::Variant::Wgmma => gpu.flops(RowKind::F16) * TENSOR,
        schedule::Variant::WgmmaFp8 => gpu.flops(RowKind::Fp8) * TENSOR,
    };
    let uneven = if plan.phases.iter().all(|p| p.cut) { 1.0 } else { waves(plan.blocks * row_tiles, gpu.sms as usize * plan.resident) };
    let again = weights * (row_tiles - 1) as f64 + input as f64;
    let streamed = (weights / t.memory).max(again / gpu.l2_bandwidth).max(2.0 * macs / rate);
    LATENCY + computed + streamed * uneven + ends
}

/// Seconds of an expression and its store over `m` rows, through the second-level cache.
fn epilogue(s: &Segment, gpu: &GpuArch, m: usize) -> f64 {
    let mut bytes = 4.0;
    s.expr.visit(&mut |e| {
        if matches!(e, Expr::Rows { .. }) {
            bytes += 4.0;
        }
    });
    (m * s.n) as f64 * bytes / gpu.l2_bandwidth
}

fn attention(kernel: &Kernel, a: &Attention, t: &TargetSpec, gpu: &GpuArch, m: usize, context: usize) -> f64 {
    let ParamKind::Kv(kv) = kernel.params[a.kv].kind else { return 0.0 };
    let context = kv.window.map_or(context, |w| w.min(context));
    let bytes = (2 * context * kv.width() * kv.dtype.bytes()) as f64;
    let flops = (4 * m * context * a.heads * kv.head_dim) as f64;
    LATENCY + (bytes / t.memory).max(flops / (gpu.flops(RowKind::F16) * TENSOR))
}
