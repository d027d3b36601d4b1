//! Predicted seconds of a kernel, and its tile sizes.
//!
//! Per kernel: weights stream from memory once, activations and repeated reads of a tile from
//! cache, multiply-adds and epilogues run at the target's rates on all cores that have items, plus
//! the indivisible parts (prologue, launch). Figures come from the [`TargetSpec`] and the constants
//! here; nothing is measured while compiling, so a build is reproducible. The constants were fitted
//! to `llmcc bench --kernels` on two Zen 4 cores: see docs/cost-model.md.

mod absmax;
mod adapter_matmul;
pub(crate) mod attention;
mod causal_conv;
mod embed;
mod embed_hashed;
mod expert_matmul;
mod given_rows;
pub(crate) mod matmul;
mod means;
mod pointwise;
mod recurrence;
mod rope_table;
mod route;
mod row_norm;
mod sinkhorn;
mod token_ids;
mod top_k;
mod window_means;
mod wkv;

llmcc_ir::dummies! { mod dummy; }

use crate::work::{Launched, Work};
use llmcc_ir::graph::UnaryOp;
use llmcc_ir::kernel::{Body, Expr, Kernel, Matmul, Norm, Param, ParamId, ParamKind, RowElem, Segment, Store, lcm};
use llmcc_ir::quant::{BLOCK, Format};
use llmcc_ir::state::StateSpec;
use llmcc_ir::target::{Arch, CpuRows, GpuArch, RowKind, TargetSpec};
use llmcc_ir::ty::Env;

pub use crate::cost_gpu::{LATENCY, constants};

/// Context length at which attention is costed (no choice depends on it).
pub const CONTEXT: usize = 512;
/// Elementwise steps per second and core, with 128-bit vectors.
const ELEMENTWISE: f64 = 6.7e9;
/// Seconds by which a microkernel call interrupts the stream of weights: with the call, the ends of
/// its pipelines and a new start of the prefetchers.
const CALL: f64 = 150e-9;
/// How much of the shorter of streaming and computing is not hidden behind the longer, without a
/// matrix unit: prefetchers do not look far ahead.
const NOT_HIDDEN: f64 = 0.15;
/// Seconds per row of a tile for the loop around an epilogue.
const ROW: f64 = 25e-9;
/// Rate at which epilogues read and write rows, relative to the cache's: half of them were last
/// written by another core.
const ROWS_RATE: f64 = 0.35;
/// Steps per element of a normalization, of decoding a quantized table.
const NORM_STEPS: f64 = 5.0;
/// Steps per element of subtracting the mean.
const CENTER_STEPS: f64 = 3.0;
const DECODE_STEPS: f64 = 10.0;
/// Steps per element of rounding to int8, and of a function of `exp`; steps in microkernels, whose
/// vectors are longer.
const QUANT_STEPS: f64 = 1.0;
const EXP_STEPS: f64 = 15.0;
const EXP_STEPS_WIDE: f64 = 4.0;
/// Steps per element of a rotation, of storing to the cache.
const ROTATE_STEPS: f64 = 6.0;
const KV_STEPS: f64 = 8.0;
/// Steps per element of a row whose columns change places: one load after another.
const PICK_STEPS: f64 = 4.0;
/// Steps per element of a RoPE table: a cosine or a sine in f64.
const ROPE_STEPS: f64 = 110.0;
/// Multiply-adds of attention, relative to matrix products; seconds per sequence and head to find
/// its pages, and per token and head to start.
const ATTENTION: f64 = 0.62;
const ATTENTION_SEQUENCE: f64 = 0.65e-6;
const ATTENTION_TOKEN: f64 = 0.2e-6;
/// Elementwise kernels of their own take one to four times their steps. An error of the prediction
/// should not break a fusion.
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

/// Sets the tile sizes of a kernel to the cheapest for steps of size `env`; returns the predicted
/// seconds.
pub fn choose_tiles(kernel: &mut Kernel, target: &TargetSpec, env: Env) -> f64 {
    if let Some(gpu) = target.gpu() {
        return crate::cost_gpu::choose_tiles(kernel, target, gpu, env);
    }
    let rows = kernel.rows.eval(env);
    let units: Vec<usize> = tile_units(kernel);
    // Larger steps than this one may come in the same regime, and rows that are not there cost
    // nothing.
    let most = (2 * rows).next_power_of_two().max(4);
    let int8_rows = rows_of(RowKind::Int8, target).map_or(1, |r| r.unpack.rows);
    let tiles_m: Vec<usize> = match kernel.body.product() {
        Some(_) => TILE_M.iter().copied().filter(|t| *t <= most.min(MOST_ROWS.max(int8_rows))).collect(),
        None => vec![1],
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

/// How much worse a kernel's items divide among the cores of a larger machine than among the
/// target's: tiles should suit both.
fn on_many_cores(kernel: &Kernel, t: &TargetSpec) -> f64 {
    if kernel.body.product().is_none() {
        return 1.0;
    }
    // Threads share out the tiles of experts; each tile covers all experts.
    let items = kernel.body.segments().iter().map(Segment::tiles).sum();
    (imbalance(items, t.cores.max(MANY_CORES)) / imbalance(items, t.cores)).max(1.0)
}

/// For each segment the columns that a tile must hold whole.
fn tile_units(kernel: &Kernel) -> Vec<usize> {
    let unit = |s: &Segment| {
        let run = lcm(BLOCK, s.expr.column_run());
        match s.store {
            Store::Rows { param, .. } => match kernel.params[param].kind {
                ParamKind::Rows { elem, .. } => lcm(run, elem.run()),
                _ => run,
            },
            Store::KvKey(p) | Store::KvValue(p) => {
                let kv = kernel.params[p].kind.state().and_then(StateSpec::paged);
                kv.map_or(run, |kv| lcm(run, kv.stored_dim(matches!(s.store, Store::KvKey(_)))))
            }
        }
    };
    kernel.body.segments().iter().map(unit).collect()
}

fn set_tiles(kernel: &mut Kernel, units: &[usize], tile_n: usize, tile_m: usize) {
    let pointwise = matches!(kernel.body, Body::Pointwise(_));
    for (s, unit) in kernel.body.segments_mut().iter_mut().zip(units) {
        let wanted = if pointwise { s.n } else { tile_n };
        s.tile_n = wanted.div_ceil(*unit) * unit;
    }
    if let Some(of_kernel) = kernel.body.tile_m_mut() {
        *of_kernel = tile_m;
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
    let on = OnCpu { kernel, t, m: kernel.rows.eval(env), env, context };
    t.launch + of(&kernel.body).cpu(&on)
}

/// A launch on a CPU.
#[derive(Clone, Copy)]
pub(crate) struct OnCpu<'a> {
    kernel: &'a Kernel,
    t: &'a TargetSpec,
    /// Rows of the kernel.
    m: usize,
    env: Env,
    context: usize,
}

impl OnCpu<'_> {
    /// Cores that have rows to work on.
    fn parallel(&self) -> f64 {
        self.m.clamp(1, self.t.cores) as f64
    }
}

/// A launch on a GPU.
#[derive(Clone, Copy)]
pub(crate) struct OnGpu<'a> {
    pub kernel: &'a Kernel,
    pub t: &'a TargetSpec,
    pub gpu: &'a GpuArch,
    /// Rows of the kernel.
    pub m: usize,
    /// Sequences, each with one row of logits.
    pub sequences: usize,
    pub context: usize,
}

impl OnGpu<'_> {
    /// Seconds of bytes from memory.
    fn memory(&self, bytes: f64) -> f64 {
        bytes / (self.t.memory * self.gpu.rates.memory)
    }

    /// Seconds of bytes through the second-level cache.
    fn l2(&self, bytes: usize) -> f64 {
        bytes as f64 / self.gpu.l2_bandwidth
    }
}

/// Predictions for a family of kernels, a file each.
pub(crate) trait Cost {
    /// Seconds on a CPU, without the launch itself.
    fn cpu(&self, on: &OnCpu<'_>) -> f64;

    /// Seconds on a GPU, without the gap between launches.
    fn gpu(&self, on: &OnGpu<'_>) -> f64;

    /// Sets the tile sizes on a GPU of a kernel of so many rows; there are none to set, unless said.
    fn gpu_tiles(&mut self, _: &[Param], _rows: usize) {}

    /// The work on any machine; by default nothing that counts.
    fn work(&self, _: &Launched<'_>) -> Work {
        Work::default()
    }
}

/// The predictions of the families, by the table of [`Body`].
macro_rules! costs {
    ($($family:ident)*) => {
        /// The predictions of a kernel's family.
        pub(crate) fn of(body: &Body) -> &dyn Cost {
            match body { $( Body::$family(k) => k, )* }
        }

        /// The same, to set its tiles.
        pub(crate) fn of_mut(body: &mut Body) -> &mut dyn Cost {
            match body { $( Body::$family(k) => k, )* }
        }
    };
}

llmcc_ir::each_family!(costs);

pub(crate) fn cols(kernel: &Kernel, p: ParamId) -> usize {
    match kernel.params[p].kind {
        ParamKind::Rows { cols, .. } => cols,
        ParamKind::Matrix { k, .. } => k,
        ParamKind::Vector { len } => len,
        ParamKind::State(state) => state.columns(),
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
        UnaryOp::Relu2 | UnaryOp::Sqrt => 2.0,
        UnaryOp::RoundI8 => 4.0,
        UnaryOp::RoundE4m3 => 8.0,
        UnaryOp::Silu | UnaryOp::Gelu | UnaryOp::GeluTanh => EXP_STEPS_WIDE,
        UnaryOp::Exp | UnaryOp::Sigmoid | UnaryOp::Tanh | UnaryOp::Softplus => EXP_STEPS,
    }
}

/// How a processor multiplies rows of a kind; `None`: it does not.
fn rows_of(rows: impl Into<RowKind>, t: &TargetSpec) -> Option<&'static CpuRows> {
    match &t.arch {
        Arch::Cpu(cpu) => cpu.rows(rows.into()),
        Arch::Gpu(_) => None,
    }
}

/// Core-seconds of the products of `m` rows with an `n × k` matrix, `tile_m` rows at a time,
/// operands in cache.
fn multiply((m, n, k): (usize, usize, usize), tile_m: usize, format: Format, elem: RowElem, t: &TargetSpec) -> f64 {
    let elements = (n * k) as f64;
    // Register tiles that one column of weights passes through.
    let tiles = |rows: usize| (m / tile_m * tile_m.div_ceil(rows) + (m % tile_m).div_ceil(rows)) as f64;
    // Rows that the target does not multiply are no candidate.
    let Some(rows) = rows_of(elem, t) else { return f64::INFINITY };
    let unpack = if format.is_quantized() { elements * tiles(rows.unpack.rows) / rows.unpack.rate } else { 0.0 };
    let computed = rows.unit_for(m).map_or(m, |u| m.max(u.least));
    (n * k * computed) as f64 / rows.macs * (1.0 + rows.group / elem.group().unwrap_or(1) as f64) + unpack
}

/// How much longer the busiest core works than the average.
fn imbalance(items: usize, cores: usize) -> f64 {
    let items = items.max(1);
    (items.div_ceil(cores) * cores) as f64 / items as f64
}

/// Steps per element of a normalization.
fn norm_steps(norm: Norm) -> f64 {
    NORM_STEPS + if norm.center { CENTER_STEPS } else { 0.0 }
}

/// Every core prepares all rows for itself.
fn prologue(kernel: &Kernel, b: &Matmul, t: &TargetSpec, m: usize) -> f64 {
    let Some(p) = b.prologue else { return 0.0 };
    let vectors = [p.gain, p.bias].into_iter().flatten().count() as f64;
    let steps = p.norm.map_or(0.0, norm_steps) + vectors + rounding_steps(p.elem);
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
        Expr::Rows { .. } | Expr::Vector(_) | Expr::Expert { .. } => bytes += 4.0,
        Expr::Pick { .. } => {
            // Element by element, and the order.
            bytes += 8.0;
            steps += PICK_STEPS;
        }
        Expr::Combine { count, .. } => {
            bytes += 4.0 * *count as f64;
            steps += 2.0 * *count as f64;
        }
        Expr::Unary(op, _) => steps += function_steps(*op),
        Expr::Binary(..) => steps += 1.0,
        Expr::Normalize(norm, _) => steps += norm_steps(*norm),
        Expr::Rope { .. } => steps += ROTATE_STEPS,
    });
    steps += match s.store {
        Store::Rows { param, .. } => quant_steps(kernel, param),
        Store::KvKey(_) | Store::KvValue(_) => KV_STEPS,
    };
    (m * s.n) as f64 * (steps / ELEMENTWISE + bytes / (t.cache * ROWS_RATE)) + rows
}
