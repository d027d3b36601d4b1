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
pub(crate) mod cpu;
mod embed;
mod embed_hashed;
mod evict;
mod expert_matmul;
mod family;
mod given_rows;
pub(crate) mod matmul;
mod means;
mod pointwise;
mod recurrence;
mod rope_table;
mod route;
mod row_norm;
mod scored;
mod select;
mod sinkhorn;
mod substitute;
mod token_ids;
mod top_k;
mod window_means;
mod windows;
mod wkv;

llmcc_ir::dummies! { mod dummy; }

use crate::work::{Launched, Work};
use cpu::{
    ALONE, ATTENTION, ATTENTION_SEQUENCE, ATTENTION_TOKEN, CALL, DECODE_STEPS, ELEMENTWISE, EXP_STEPS, EXP_STEPS_WIDE,
    HALF_PAGE, L1, NOT_HIDDEN, ROPE_STEPS, cols, context_parts, epilogue, imbalance, multiply, norm_steps, prologue,
    quant_steps, rows_of,
};
pub(crate) use family::{Cost, OnCpu, OnGpu, of, of_mut};
use llmcc_ir::kernel::{Body, Kernel, ParamKind, Segment, Store, lcm};
use llmcc_ir::quant::BLOCK;
use llmcc_ir::state::StateSpec;
use llmcc_ir::target::{GpuArch, RowKind, TargetSpec};
use llmcc_ir::ty::Env;

pub use crate::cost_gpu::LATENCY;

/// Context length at which attention is costed (no choice depends on it).
pub const CONTEXT: usize = 512;
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

/// Work of a launch whose tokens attend to `context` tokens each. `env.rows` counts sequences: each
/// wants the logits of its last token.
pub fn work(kernel: &Kernel, env: Env, context: usize) -> Work {
    let launched = Launched { kernel, m: kernel.rows.eval(env), sequences: env.rows, context };
    of(&kernel.body).work(&launched)
}

/// The constants of products and attention by name, for tools that fit them.
#[must_use]
pub fn constants(gpu: &GpuArch) -> Vec<(&'static str, f64)> {
    let mut all = llmcc_ir::gpu::cost::constants(gpu.rates);
    all.extend([
        ("latency", LATENCY),
        ("attention_start", attention::GPU_START),
        ("attention_merge", attention::GPU_MERGE),
        ("attention_merged", attention::GPU_MERGED as f64),
        ("attention_ramp", attention::GPU_RAMP as f64),
        ("attention_softmax", attention::GPU_SOFTMAX),
        ("attention_tensor", attention::GPU_TENSOR),
    ]);
    all
}
