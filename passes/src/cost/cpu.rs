//! Common parts of the families' predictions on CPUs: rates, and costs of steps.

use llmcc_ir::graph::UnaryOp;
use llmcc_ir::kernel::{
    ATTEND_BLOCK, ATTEND_PARTS, ATTEND_SPLIT_TOKENS, Expr, Kernel, Matmul, Norm, ParamId, ParamKind, RowElem, Segment,
    Store,
};
use llmcc_ir::quant::Format;
use llmcc_ir::target::{Arch, CpuRows, RowKind, TargetSpec, microkernel_of};

/// Elementwise steps per second and core: those of 128-bit vectors.
pub(super) const ELEMENTWISE: f64 = 6.7e9;
/// Seconds by which a microkernel call interrupts the stream of weights: with the call, the ends of
/// its pipelines and a new start of the prefetchers.
pub(super) const CALL: f64 = 150e-9;
/// How much of the shorter of streaming and computing is not hidden behind the longer, without a
/// matrix unit: prefetchers do not look far ahead.
pub(super) const NOT_HIDDEN: f64 = 0.15;
/// Seconds per row of a tile for the loop around an epilogue.
pub(super) const ROW: f64 = 25e-9;
/// Rate at which epilogues read and write rows, relative to the cache's: half of them were last
/// written by another core.
pub(super) const ROWS_RATE: f64 = 0.35;
/// Steps per element of a normalization, of decoding a quantized table.
pub(super) const NORM_STEPS: f64 = 5.0;
/// Steps per element of subtracting the mean.
pub(super) const CENTER_STEPS: f64 = 3.0;
pub(super) const DECODE_STEPS: f64 = 10.0;
/// Steps per element of rounding to int8, and of a function of `exp`; what those take that
/// microkernels compute, whose vectors are longer.
pub(super) const QUANT_STEPS: f64 = 1.0;
pub(super) const EXP_STEPS: f64 = 15.0;
pub(super) const EXP_STEPS_WIDE: f64 = 4.0;
/// Steps per element of a rotation, of storing to the cache.
pub(super) const ROTATE_STEPS: f64 = 6.0;
pub(super) const KV_STEPS: f64 = 8.0;
/// Steps per element of a row whose columns change places: one load after another.
pub(super) const PICK_STEPS: f64 = 4.0;
/// Steps per element of a RoPE table: a cosine or a sine in f64.
pub(super) const ROPE_STEPS: f64 = 110.0;
/// Multiply-adds of attention, relative to those of matrix products; seconds per sequence and head
/// to find its pages, and per token and head to start.
pub(super) const ATTENTION: f64 = 0.62;
pub(super) const ATTENTION_SEQUENCE: f64 = 0.65e-6;
pub(super) const ATTENTION_TOKEN: f64 = 0.2e-6;
/// Elementwise kernels of their own take one to four times what their steps do. An error of the
/// prediction should not break a fusion.
pub(super) const ALONE: f64 = 4.0;
/// Half the tokens of a page of the cache.
pub(super) const HALF_PAGE: usize = 8;
/// Accumulator bytes that stay in the first-level cache.
pub(super) const L1: usize = 32 << 10;

pub(crate) fn cols(kernel: &Kernel, p: ParamId) -> usize {
    match kernel.params[p].kind {
        ParamKind::Rows { cols, .. } => cols,
        ParamKind::Matrix { k, .. } => k,
        ParamKind::Vector { len } => len,
        ParamKind::State(state) => state.columns(),
    }
}

pub(super) fn quant_steps(kernel: &Kernel, p: ParamId) -> f64 {
    match kernel.params[p].kind {
        ParamKind::Rows { elem, .. } => rounding_steps(elem),
        _ => 0.0,
    }
}

/// Steps per element of rounding to int8 rows.
pub(super) fn rounding_steps(elem: RowElem) -> f64 {
    elem.group().map_or(0.0, |_| QUANT_STEPS)
}

/// Steps per element of a function.
pub(super) fn function_steps(op: UnaryOp) -> f64 {
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
pub(super) fn rows_of(rows: impl Into<RowKind>, t: &TargetSpec) -> Option<&'static CpuRows> {
    match &t.arch {
        Arch::Cpu(cpu) => cpu.rows(rows.into()),
        Arch::Gpu(_) => None,
    }
}

/// Core-seconds of the products of `m` rows with an `n × k` matrix, `tile_m` rows at a time,
/// operands in cache.
pub(super) fn multiply(
    (m, n, k): (usize, usize, usize),
    tile_m: usize,
    format: Format,
    elem: RowElem,
    t: &TargetSpec,
) -> f64 {
    let elements = (n * k) as f64;
    // Register tiles that one column of weights passes through.
    let tiles = |rows: usize| (m / tile_m * tile_m.div_ceil(rows) + (m % tile_m).div_ceil(rows)) as f64;
    // Rows that the target does not multiply are no candidates.
    let Some(rows) = rows_of(elem, t) else { return f64::INFINITY };
    if microkernel_of(format, elem).is_none() {
        return elements * m as f64 / rows.generic.rate(format);
    }
    let unpack = if format.is_quantized() { elements * tiles(rows.unpack.rows) / rows.unpack.rate } else { 0.0 };
    let computed = rows.unit_for(m).map_or(m, |u| m.max(u.least));
    (n * k * computed) as f64 / rows.macs * (1.0 + rows.group / elem.group().unwrap_or(1) as f64) + unpack
}

/// How much longer the busiest core works than the average.
pub(super) fn imbalance(items: usize, cores: usize) -> f64 {
    let items = items.max(1);
    (items.div_ceil(cores) * cores) as f64 / items as f64
}

/// Parts among which the `rows` rows of a cache are divided that each of `m` tokens goes through: few tokens'
/// long contexts are.
pub(super) fn context_parts(m: usize, rows: usize) -> usize {
    if m <= ATTEND_SPLIT_TOKENS { rows.div_ceil(ATTEND_BLOCK).clamp(1, ATTEND_PARTS) } else { 1 }
}

/// Steps per element of a normalization.
pub(super) fn norm_steps(norm: Norm) -> f64 {
    NORM_STEPS + if norm.center { CENTER_STEPS } else { 0.0 }
}

/// Every core prepares all rows for itself.
pub(super) fn prologue(kernel: &Kernel, b: &Matmul, t: &TargetSpec, m: usize) -> f64 {
    let Some(p) = b.prologue else { return 0.0 };
    let vectors = [p.gain, p.bias].into_iter().flatten().count() as f64;
    let steps = p.norm.map_or(0.0, norm_steps) + vectors + rounding_steps(p.elem);
    (m * cols(kernel, b.x)) as f64 * (steps / ELEMENTWISE + 8.0 / t.cache)
}

/// Core-seconds of an expression and its store over `m` rows.
pub(super) fn epilogue(kernel: &Kernel, s: &Segment, t: &TargetSpec, m: usize) -> f64 {
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
