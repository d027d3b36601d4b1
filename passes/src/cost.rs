//! Predicted seconds of a kernel, and its tile sizes.
//!
//! Per kernel: weights stream from memory once, activations and repeated reads of a tile from cache, multiply-adds and epilogues run at the
//! target's rates on all cores that have items, plus what cannot be divided (prologue, launch). Figures come from the [`TargetSpec`] and the constants here; nothing is measured while compiling, so a build is reproducible. The constants were fitted to
//! `llmcc bench --kernels` on two Zen 4 cores: see docs/cost-model.md.

use crate::spec::segments_mut;
use crate::work::multiplied;
use llmcc_ir::graph::UnaryOp;
use llmcc_ir::kernel::{
    ATTEND_BLOCK, ATTEND_PARTS, ATTEND_SPLIT_TOKENS, Attention, Body, Expr, Kernel, Matmul, ParamId, ParamKind, RowElem, Segment, Store,
    lcm,
};
use llmcc_ir::plan::row_bytes;
use llmcc_ir::quant::{BLOCK, Format};
use llmcc_ir::target::{Arch, CpuRows, RowKind, TargetSpec};
use llmcc_ir::ty::Env;

pub use crate::cost_gpu::{LATENCY, TENSOR};

/// Context length at which attention is costed (no choice depends on it).
pub const CONTEXT: usize = 512;
/// Elementwise steps per second and core: those of 128-bit vectors.
const ELEMENTWISE: f64 = 6.7e9;
/// Seconds by which a microkernel call interrupts the stream of weights: with the call, the ends of its pipelines and a new start of the prefetchers.
const CALL: f64 = 150e-9;
/// How much of the shorter of streaming and computing is not hidden behind the longer, without a matrix unit: prefetchers do not look far ahead.
const NOT_HIDDEN: f64 = 0.15;
/// Seconds per row of a tile for the loop around an epilogue.
const ROW: f64 = 25e-9;
/// Rate at which epilogues read and write rows, relative to the cache's: half of them were last written by another core.
const ROWS_RATE: f64 = 0.35;
/// Steps per element of a normalization, of decoding a quantized table.
const NORM_STEPS: f64 = 5.0;
const DECODE_STEPS: f64 = 10.0;
/// Steps per element of rounding to int8, and of a function of `exp`; what those take that microkernels compute, whose vectors are longer.
const QUANT_STEPS: f64 = 1.0;
const EXP_STEPS: f64 = 15.0;
const EXP_STEPS_WIDE: f64 = 4.0;
/// Steps per element of a rotation, of storing to the cache.
const ROTATE_STEPS: f64 = 6.0;
const KV_STEPS: f64 = 8.0;
/// Steps per element of a RoPE table: a cosine or a sine in f64.
const ROPE_STEPS: f64 = 110.0;
/// Multiply-adds of attention, relative to those of matrix products; seconds per sequence and head to find its pages, and per token and head to start.
const ATTENTION: f64 = 0.62;
const ATTENTION_SEQUENCE: f64 = 0.65e-6;
const ATTENTION_TOKEN: f64 = 0.2e-6;
/// Elementwise kernels of their own take one to four times what their steps do. An error of the prediction should not break a fusion.
const ALONE: f64 = 4.0;
/// Half the tokens of a page of the cache.
const HALF_PAGE: usize = 8;
/// Accumulator bytes that stay in the first-level cache.
const L1: usize = 32 << 10;
/// Cores of a larger machine of the same kind.
const MANY_CORES: usize = 8;
/// Tile sizes tried.
const TILE_N: &[usize] = &[16, 32, 48, 64, 96, 128, 192, 256];
const TILE_M: &[usize] = &[1, 2, 4, 8, 16, 32, 64, 128];
/// Most rows of a tile, unless unpacked codes serve more.
const MOST_ROWS: usize = 64;

/// Sets the tile sizes of a kernel to the cheapest for steps of size `env`; returns the predicted seconds.
pub fn choose_tiles(kernel: &mut Kernel, target: &TargetSpec, env: Env) -> f64 {
    if let Some(gpu) = target.gpu() {
        return crate::cost_gpu::choose_tiles(kernel, target, gpu, env);
    }
    let rows = kernel.rows.eval(env);
    let units: Vec<usize> = tile_units(kernel);
    // Larger steps than this one may come in the same regime, and rows that are not there cost nothing.
    let most = (2 * rows).next_power_of_two().max(4);
    let int8_rows = rows_of(RowKind::Int8, target).map_or(1, |r| r.unpack.rows);
    let tiles_m: Vec<usize> = match kernel.body {
        Body::Matmul(_) => TILE_M.iter().copied().filter(|t| *t <= most.min(MOST_ROWS.max(int8_rows))).collect(),
        _ => vec![1],
    };
    let mut best = (f64::INFINITY, 0, 0);
    for tile_n in if units.is_empty() { &TILE_N[..1] } else { TILE_N } {
        for tile_m in &tiles_m {
            set_tiles(kernel, &units, *tile_n, *tile_m);
            let cost = seconds(kernel, target, env) * on_many_cores(kernel, target);
            if cost < best.0 || (cost == best.0 && *tile_m > best.2) {
                best = (cost, *tile_n, *tile_m);
            }
        }
    }
    set_tiles(kernel, &units, best.1, best.2);
    seconds(kernel, target, env)
}

/// How much worse a kernel's items divide among the cores of a larger machine than among the target's: tiles should suit both.
fn on_many_cores(kernel: &Kernel, t: &TargetSpec) -> f64 {
    let Body::Matmul(b) = &kernel.body else { return 1.0 };
    let items = b.segments.iter().map(Segment::tiles).sum();
    (imbalance(items, t.cores.max(MANY_CORES)) / imbalance(items, t.cores)).max(1.0)
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
    seconds_at(kernel, t, env, CONTEXT)
}

/// Predicted seconds of one launch whose tokens attend to `context` tokens each.
pub fn seconds_at(kernel: &Kernel, t: &TargetSpec, env: Env, context: usize) -> f64 {
    if let Some(gpu) = t.gpu() {
        return crate::cost_gpu::seconds(kernel, t, gpu, env, context);
    }
    let m = kernel.rows.eval(env);

    let parallel = m.clamp(1, t.cores) as f64;
    let work = match &kernel.body {
        Body::Matmul(b) => matmul(kernel, b, t, m),
        Body::Attention(a) => attention(kernel, a, t, env, context),
        Body::RowNorm(n) => {
            let cols = cols(kernel, n.x);
            let norm = n.norm.map_or(1.0, |_| NORM_STEPS);
            let steps = norm + n.gain.map_or(0.0, |_| 1.0) + quant_steps(kernel, n.out);
            (m * cols) as f64 * (steps / ELEMENTWISE + 8.0 / t.cache) / parallel
        }
        Body::Pointwise(p) => p.segments.iter().map(|s| epilogue(kernel, s, t, m)).sum::<f64>() * ALONE / parallel,
        Body::Embed(e) => match kernel.params[e.table].kind {
            ParamKind::Matrix { k, format, .. } => {
                let steps = if format.is_quantized() { DECODE_STEPS } else { 1.0 };
                (m * format.packed_bytes(1, k)) as f64 / t.memory + (m * k) as f64 * steps / ELEMENTWISE / parallel
            }
            _ => 0.0,
        },
        Body::RopeTable(r) => (m * cols(kernel, r.out)) as f64 * ROPE_STEPS / ELEMENTWISE / parallel,
        // Only GPUs have it.
        Body::TopK(_) => 0.0,
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
        ParamKind::Rows { elem, .. } => rounding_steps(elem),
        _ => 0.0,
    }
}

/// Steps per element of rounding to int8 rows.
fn rounding_steps(elem: RowElem) -> f64 {
    elem.group().map_or(0.0, |_| QUANT_STEPS)
}

/// Steps per element of a function.
fn function_steps(op: UnaryOp) -> f64 {
    match op {
        UnaryOp::Neg | UnaryOp::Relu => 1.0,
        UnaryOp::Silu | UnaryOp::Gelu | UnaryOp::GeluTanh => EXP_STEPS_WIDE,
        UnaryOp::Exp | UnaryOp::Sigmoid | UnaryOp::Tanh => EXP_STEPS,
    }
}

/// Bytes of one row as the products read it, and how its elements are stored.
fn input(kernel: &Kernel, b: &Matmul) -> (usize, RowElem) {
    let cols = match kernel.params[b.x].kind {
        ParamKind::Rows { cols, .. } => cols,
        _ => 0,
    };
    let elem = multiplied(kernel, b);
    (row_bytes(cols, elem), elem)
}

fn matmul(kernel: &Kernel, b: &Matmul, t: &TargetSpec, m: usize) -> f64 {
    let (x_bytes, elem) = input(kernel, b);
    let tile_m = b.tile_m.max(1);
    let passes = m.div_ceil(tile_m).max(1);
    let (mut weight_bytes, mut computed, mut items) = (0.0, 0.0, 0);
    for s in &b.segments {
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
    (streamed.max(computed) + streamed.min(computed) * exposed) * imbalance(items, t.cores) + prologue(kernel, b, t, m)
}

/// How a processor multiplies rows of a kind; `None`: it does not.
fn rows_of(rows: impl Into<RowKind>, t: &TargetSpec) -> Option<&'static CpuRows> {
    match &t.arch {
        Arch::Cpu(cpu) => cpu.rows(rows.into()),
        Arch::Gpu(_) => None,
    }
}

/// Core-seconds of the products of `m` rows with an `n × k` matrix, `tile_m` rows at a time, operands in cache.
fn multiply((m, n, k): (usize, usize, usize), tile_m: usize, format: Format, elem: RowElem, t: &TargetSpec) -> f64 {
    let elements = (n * k) as f64;
    // Register tiles that one column of weights passes through.
    let tiles = |rows: usize| (m / tile_m * tile_m.div_ceil(rows) + (m % tile_m).div_ceil(rows)) as f64;
    // What it does not multiply is no candidate.
    let Some(rows) = rows_of(elem, t) else { return f64::INFINITY };
    let unpack = if format.is_quantized() { elements * tiles(rows.unpack.rows) / rows.unpack.rate } else { 0.0 };
    let computed = rows.unit_for(m).map_or(m, |u| m.max(u.least));
    (n * k * computed) as f64 / rows.macs * (1.0 + rows.group / f64::from(format.group.max(1))) + unpack
}

/// How much longer the busiest core works than the average.
fn imbalance(items: usize, cores: usize) -> f64 {
    let items = items.max(1);
    (items.div_ceil(cores) * cores) as f64 / items as f64
}

/// Every core prepares all rows for itself.
fn prologue(kernel: &Kernel, b: &Matmul, t: &TargetSpec, m: usize) -> f64 {
    let Some(p) = b.prologue else { return 0.0 };
    let steps = p.norm.map_or(0.0, |_| NORM_STEPS) + p.gain.map_or(0.0, |_| 1.0) + rounding_steps(p.elem);
    (m * cols(kernel, b.x)) as f64 * (steps / ELEMENTWISE + 8.0 / t.cache)
}

/// Core-seconds of an expression and its store over `m` rows.
fn epilogue(kernel: &Kernel, s: &Segment, t: &TargetSpec, m: usize) -> f64 {
    // A microkernel writes plain results where they belong.
    if matches!((&s.expr, &s.store), (Expr::Acc(0), Store::Rows { param, .. }) if quant_steps(kernel, *param) == 0.0) {
        return 0.0;
    }
    let rows = (m * s.tiles()) as f64 * ROW;
    let (mut steps, mut bytes) = (0.0, 4.0);
    s.expr.visit(&mut |e| match e {
        Expr::Acc(_) | Expr::Const(_) => {}
        Expr::Rows { .. } | Expr::Vector(_) => bytes += 4.0,
        Expr::Unary(op, _) => steps += function_steps(*op),
        Expr::Binary(..) => steps += 1.0,
        Expr::Normalize(..) => steps += NORM_STEPS,
        Expr::Rope { .. } => steps += ROTATE_STEPS,
    });
    steps += match s.store {
        Store::Rows { param, .. } => quant_steps(kernel, param),
        Store::KvKey(_) | Store::KvValue(_) => KV_STEPS,
    };
    (m * s.n) as f64 * (steps / ELEMENTWISE + bytes / (t.cache * ROWS_RATE)) + rows
}

fn attention(kernel: &Kernel, a: &Attention, t: &TargetSpec, env: Env, context: usize) -> f64 {
    let ParamKind::Kv(kv) = kernel.params[a.kv].kind else { return 0.0 };
    let m = kernel.rows.eval(env);
    // Whole pages are computed; half of the last one is beyond the context on average.
    let context = kv.window.map_or(context, |w| w.min(context)) + HALF_PAGE;
    let sequences = env.rows.clamp(1, m.max(1));
    let bytes = (2 * context * kv.width() * kv.dtype.bytes() * sequences) as f64;
    let macs = (2 * m * context * a.heads * kv.head_dim) as f64;
    let items = (m * kv.kv_heads).max(1);
    let starts = (sequences * kv.kv_heads) as f64 * ATTENTION_SEQUENCE + items as f64 * ATTENTION_TOKEN;
    let computed = (macs / (t.macs(RowKind::F32) * ATTENTION) + starts) / t.cores as f64;
    // Few tokens' long contexts are divided.
    let parts = if m <= ATTEND_SPLIT_TOKENS { context.div_ceil(ATTEND_BLOCK).min(ATTEND_PARTS) } else { 1 };
    let items = items * parts;
    (bytes / t.memory).max(computed * imbalance(items, t.cores))
}
