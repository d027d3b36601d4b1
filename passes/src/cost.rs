//! Predicted seconds of a kernel, and its tile sizes.
//!
//! A roofline per kernel: weights stream from memory once, activations and repeated reads of a tile from cache, multiply-adds run at the
//! target's rate on all cores that have items; the slower of the two decides, plus what cannot overlap (prologue, launch). Figures come from the
//! [`TargetSpec`] only; nothing is measured while compiling, so a build is reproducible.

use crate::spec::segments_mut;
use llmcc_ir::graph::UnaryOp;
use llmcc_ir::kernel::{Attention, Body, Expr, Kernel, Matmul, ParamId, ParamKind, RowElem, Segment, Store, lcm};
use llmcc_ir::plan::row_bytes;
use llmcc_ir::quant::BLOCK;
use llmcc_ir::target::TargetSpec;
use llmcc_ir::ty::Env;

/// Context length at which attention is costed (no choice depends on it).
pub const CONTEXT: usize = 512;
/// Elementwise steps per second and core, relative to multiply-adds.
const ELEMENTWISE: f64 = 0.25;
/// Seconds per microkernel call and tile bookkeeping.
const CALL: f64 = 20e-9;
/// Accumulator bytes that stay in the first-level cache.
const L1: usize = 32 << 10;
/// Cores of a larger machine of the same kind.
const MANY_CORES: usize = 8;
/// Tile sizes tried.
const TILE_N: &[usize] = &[16, 32, 48, 64, 96, 128, 192, 256];
const TILE_M: &[usize] = &[1, 2, 4, 8, 16, 32, 64];

/// Sets the tile sizes of a kernel to the cheapest for steps of size `env`; returns the predicted seconds.
pub fn choose_tiles(kernel: &mut Kernel, target: &TargetSpec, env: Env) -> f64 {
    if let Some(gpu) = target.gpu() {
        return crate::cost_gpu::choose_tiles(kernel, target, gpu, env);
    }
    let rows = kernel.rows.eval(env);
    let units: Vec<usize> = tile_units(kernel);
    let tiles_m: Vec<usize> = match kernel.body {
        Body::Matmul(_) => TILE_M.iter().copied().filter(|t| *t <= rows.next_power_of_two()).collect(),
        _ => vec![1],
    };
    let mut best = (f64::INFINITY, 0, 0);
    for tile_n in if units.is_empty() { &TILE_N[..1] } else { TILE_N } {
        for tile_m in &tiles_m {
            set_tiles(kernel, &units, *tile_n, *tile_m);
            let cost = seconds(kernel, target, env);
            if cost < best.0 {
                best = (cost, *tile_n, *tile_m);
            }
        }
    }
    set_tiles(kernel, &units, best.1, best.2);
    best.0
}

/// For each segment the columns that a tile must hold whole.
fn tile_units(kernel: &Kernel) -> Vec<usize> {
    let unit = |s: &Segment| {
        let run = lcm(BLOCK, s.expr.column_run());
        match s.store {
            Store::Rows { param, .. } => match kernel.params[param].kind {
                ParamKind::Rows { elem: RowElem::Q8 { group }, .. } => lcm(run, group),
                _ => run,
            },
            Store::KvKey(p) | Store::KvValue(p) => match &kernel.params[p].kind {
                ParamKind::Kv(kv) => lcm(run, kv.head_dim),
                _ => run,
            },
        }
    };
    crate::spec::segments(&kernel.body).iter().map(unit).collect()
}

fn set_tiles(kernel: &mut Kernel, units: &[usize], tile_n: usize, tile_m: usize) {
    let pointwise = matches!(kernel.body, Body::Pointwise(_));
    for (s, unit) in segments_mut(&mut kernel.body).iter_mut().zip(units) {
        let wanted = if pointwise { s.n } else { tile_n };
        s.tile_n = wanted.div_ceil(*unit) * unit;
    }
    if let Body::Matmul(m) = &mut kernel.body {
        m.tile_m = tile_m;
    }
}

/// Predicted seconds of one launch, attention over [`CONTEXT`] tokens.
pub fn seconds(kernel: &Kernel, t: &TargetSpec, env: Env) -> f64 {
    if let Some(gpu) = t.gpu() {
        return crate::cost_gpu::seconds(kernel, t, gpu, env);
    }
    seconds_at(kernel, t, env, CONTEXT)
}

/// Predicted seconds of one launch whose tokens attend to `context` tokens each.
pub fn seconds_at(kernel: &Kernel, t: &TargetSpec, env: Env, context: usize) -> f64 {
    let m = kernel.rows.eval(env);
    let elementwise = t.f32_macs * ELEMENTWISE;
    let parallel = m.clamp(1, t.cores) as f64;
    let work = match &kernel.body {
        Body::Matmul(b) => matmul(kernel, b, t, m),
        Body::Attention(a) => attention(kernel, a, t, env, context),
        Body::RowNorm(n) => {
            let cols = cols(kernel, n.x);
            let steps = if n.norm.is_some() { 3.0 } else { 1.0 } + if n.gain.is_some() { 1.0 } else { 0.0 } + quant_steps(kernel, n.out);
            (m * cols) as f64 * (steps / elementwise + 8.0 / t.cache) / parallel
        }
        Body::Pointwise(p) => p.segments.iter().map(|s| epilogue(kernel, s, t, m)).sum::<f64>() / parallel,
        Body::Embed(e) => match kernel.params[e.table].kind {
            ParamKind::Matrix { k, format, .. } => (m * format.packed_bytes(1, k)) as f64 / t.memory,
            _ => 0.0,
        },
        Body::RopeTable(r) => (m * cols(kernel, r.out)) as f64 * 40.0 / elementwise,
    };
    t.launch + work
}

fn cols(kernel: &Kernel, p: ParamId) -> usize {
    match kernel.params[p].kind {
        ParamKind::Rows { cols, .. } => cols,
        ParamKind::Matrix { k, .. } => k,
        ParamKind::Vector { len } => len,
        ParamKind::Kv(kv) => kv.width(),
    }
}

fn quant_steps(kernel: &Kernel, p: ParamId) -> f64 {
    match kernel.params[p].kind {
        ParamKind::Rows { elem: RowElem::Q8 { .. }, .. } => 2.0,
        _ => 0.0,
    }
}

/// Bytes of one row as the products read it, and whether they are int8.
fn input(kernel: &Kernel, b: &Matmul) -> (usize, bool) {
    let (cols, elem) = match kernel.params[b.x].kind {
        ParamKind::Rows { cols, elem, .. } => (cols, elem),
        _ => (0, RowElem::F32),
    };
    let elem = b.prologue.map_or(elem, |p| p.elem);
    (row_bytes(cols, elem), matches!(elem, RowElem::Q8 { .. }))
}

fn matmul(kernel: &Kernel, b: &Matmul, t: &TargetSpec, m: usize) -> f64 {
    let (x_bytes, int8) = input(kernel, b);
    let passes = m.div_ceil(b.tile_m.max(1)).max(1);
    let (mut weight_bytes, mut core_seconds, mut items) = (0.0, 0.0, 0);
    for s in &b.segments {
        let tiles = s.tiles();
        items += tiles;
        for w in &s.weights {
            let ParamKind::Matrix { n, k, format } = kernel.params[*w].kind else { continue };
            let bytes = format.packed_bytes(n, k) as f64;
            weight_bytes += bytes;
            let rate = if int8 { t.int8_macs } else { t.f32_macs };
            let decode = if format.is_quantized() && !int8 { (n * k * passes) as f64 / (t.f32_macs * 0.5) } else { 0.0 };
            core_seconds += (m * n * k) as f64 / rate + decode + (tiles * passes) as f64 * CALL;
            core_seconds += bytes * (passes - 1) as f64 / t.cache;
            core_seconds += (tiles * m * x_bytes) as f64 / t.cache;
        }
        let accumulators = s.tile_n * b.tile_m * 4 * s.weights.len().max(1);
        let spill = if accumulators > L1 { (m * s.n * 8) as f64 / t.cache } else { 0.0 };
        core_seconds += epilogue(kernel, s, t, m) + spill;
    }
    let streamed = weight_bytes / t.memory;
    let computed = core_seconds / t.cores as f64;
    streamed.max(computed) * imbalance(items, t) + prologue(kernel, b, t, m)
}

/// How much longer the busiest core works than the average. Counts machines with more cores than the target's typical ones, so that tiles suit them too.
fn imbalance(items: usize, t: &TargetSpec) -> f64 {
    let items = items.max(1);
    let on = |cores: usize| (items.div_ceil(cores) * cores) as f64 / items as f64;
    on(t.cores).max(on(t.cores.max(MANY_CORES)))
}

/// Every core prepares all rows for itself.
fn prologue(kernel: &Kernel, b: &Matmul, t: &TargetSpec, m: usize) -> f64 {
    let Some(p) = b.prologue else { return 0.0 };
    let steps = p.norm.map_or(0.0, |_| 3.0) + p.gain.map_or(0.0, |_| 1.0) + p.elem.group().map_or(0.0, |_| 2.0);
    (m * cols(kernel, b.x)) as f64 * (steps / (t.f32_macs * ELEMENTWISE) + 8.0 / t.cache)
}

/// Core-seconds of an expression and its store over `m` rows.
fn epilogue(kernel: &Kernel, s: &Segment, t: &TargetSpec, m: usize) -> f64 {
    let (mut steps, mut bytes) = (0.0, 4.0);
    s.expr.visit(&mut |e| match e {
        Expr::Acc(_) | Expr::Const(_) => {}
        Expr::Rows { .. } | Expr::Vector(_) => bytes += 4.0,
        Expr::Unary(op, _) => {
            steps += match op {
                UnaryOp::Neg | UnaryOp::Relu => 1.0,
                UnaryOp::Exp | UnaryOp::Sigmoid | UnaryOp::Silu | UnaryOp::Gelu | UnaryOp::GeluTanh | UnaryOp::Tanh => 8.0,
            }
        }
        Expr::Binary(..) => steps += 1.0,
        Expr::Normalize(..) => steps += 3.0,
        Expr::Rope { .. } => steps += 3.0,
    });
    if let Store::Rows { param, .. } = s.store {
        steps += quant_steps(kernel, param);
    }
    (m * s.n) as f64 * (steps / (t.f32_macs * ELEMENTWISE) + bytes / t.cache)
}

fn attention(kernel: &Kernel, a: &Attention, t: &TargetSpec, env: Env, context: usize) -> f64 {
    let ParamKind::Kv(kv) = kernel.params[a.kv].kind else { return 0.0 };
    let m = kernel.rows.eval(env);
    let context = kv.window.map_or(context, |w| w.min(context));
    let bytes = (2 * context * kv.width() * kv.dtype.bytes()) as f64;
    let macs = (2 * m * context * a.heads * kv.head_dim) as f64;
    let items = (m * kv.kv_heads).max(1);
    (bytes / t.memory).max(macs / (t.f32_macs * 0.5) / t.cores as f64) * imbalance(items, t)
}
