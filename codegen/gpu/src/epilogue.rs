//! From a tile of accumulators to what is stored: the same for pointwise kernels and all products.
//!
//! The threads of a block share out the elements of a tile, neighbours in a row to neighbouring threads. Normalized subexpressions and int8 cache entries need something of a whole
//! run of columns first: each gets a pass that writes its values to shared memory, and one in which a warp per run reduces them.

use crate::cx::{Args, Cx, f32_at, row_stride, share_out};
use crate::expr::{Env, Normalized, SharedTile, normalized};
use crate::mlir::{BF16, Builder, Cmp, F16, F32, I32, I64, I8, Ty, V, WARP};
use llmcc_abi::{PAGE_TOKENS, layout};
use llmcc_codegen::CodegenError;
use llmcc_ir::kernel::{Expr, ParamId, RowElem, Segment, Store};
use llmcc_ir::kv::{KvDType, KvSpec};

/// A tile whose accumulators are complete.
pub struct Tile<'a> {
    /// One per lane.
    pub acc: &'a [SharedTile],
    /// First row in the step.
    pub row0: V,
    /// Rows inside the step (`i32`).
    pub rows: V,
    /// Most rows.
    pub max_rows: usize,
    /// First column in the segment.
    pub col0: V,
    /// Columns inside the segment (`i32`); runs of columns lie wholly inside or outside.
    pub cols: V,
    /// Most columns.
    pub max_cols: usize,
    /// Shared memory that the epilogue may use: [`shared_bytes`] bytes.
    pub spare: V,
    /// Threads of the block.
    pub threads: u32,
}

/// Bytes of shared memory that the epilogue of a segment needs besides the accumulators.
pub fn shared_bytes(cx: &Cx<'_>, s: &Segment, rows: usize, cols: usize) -> usize {
    let with_runs = |run: usize| rows * (cols + cols.div_ceil(run)) * 4;
    let norms: usize = normalized(&s.expr).iter().map(|(n, _, _)| with_runs(n.width)).sum();
    let store = match s.store {
        Store::KvKey(p) | Store::KvValue(p) => {
            cx.kv(p).ok().filter(|kv| kv.dtype == KvDType::Int8).map_or(0, |kv| with_runs(kv.head_dim))
        }
        Store::Rows { .. } => 0,
    };
    norms + store
}

/// Computes and stores a tile. All threads of the block take part; the accumulators are visible to all (a barrier has passed).
///
/// # Errors
/// Operands of the wrong kind.
pub fn run(cx: &Cx<'_>, b: &mut Builder, args: Args<'_>, s: &Segment, tile: &Tile<'_>) -> Result<(), CodegenError> {
    let mut env = Env { cx, args, n: s.n, row0: tile.row0, col0: tile.col0, acc: tile.acc, normalized: vec![] };
    let mut spare = tile.spare;
    for (norm, whole, x) in normalized(&s.expr) {
        let (values, factors) = carve(b, &mut spare, tile, norm.width);
        materialize(b, &env, x, values, tile)?;
        let eps = norm.eps.get();
        let width = norm.width;
        reduce_runs(b, tile, width, values, factors, |b, sum, x| b.fma(x, x, sum), |b, a, c| b.fadd(a, c), move |b, sum| {
            let (scale, eps) = (b.f32(1.0 / width as f32), b.f32(eps));
            let mean = b.fma(sum, scale, eps);
            b.rsqrt(mean)
        });
        env.normalized.push((whole.clone(), Normalized { values, factors, width }));
    }
    match s.store {
        Store::Rows { param, start } => store_rows(b, &env, &s.expr, tile, param, start),
        Store::KvKey(p) => store_kv(b, &env, &s.expr, tile, p, true, spare),
        Store::KvValue(p) => store_kv(b, &env, &s.expr, tile, p, false, spare),
    }
}

/// Takes room for the values of a tile and one number per run.
fn carve(b: &mut Builder, spare: &mut V, tile: &Tile<'_>, run: usize) -> (SharedTile, SharedTile) {
    let values = SharedTile { base: *spare, stride: tile.max_cols };
    let base = b.atc(*spare, (tile.max_rows * tile.max_cols * 4) as i64);
    let factors = SharedTile { base, stride: tile.max_cols.div_ceil(run) };
    *spare = b.atc(base, (tile.max_rows * factors.stride * 4) as i64);
    (values, factors)
}

/// Runs `body(row, col)` for every element of the tile.
fn elements(
    b: &mut Builder,
    tile: &Tile<'_>,
    body: impl FnOnce(&mut Builder, V, V) -> Result<(), CodegenError>,
) -> Result<(), CodegenError> {
    let n = b.mul(tile.rows, tile.cols);
    let mut result = Ok(());
    share_out(b, n, tile.threads, |b, i| {
        let row = b.div(i, tile.cols);
        let start = b.mul(row, tile.cols);
        let col = b.sub(i, start);
        result = body(b, row, col);
    });
    result
}

fn materialize(b: &mut Builder, env: &Env<'_>, x: &Expr, to: SharedTile, tile: &Tile<'_>) -> Result<(), CodegenError> {
    elements(b, tile, |b, row, col| {
        let v = env.value(b, x, row, col)?;
        let p = to.at(b, row, col);
        b.store(v, p);
        Ok(())
    })?;
    b.barrier();
    Ok(())
}

/// For each run of `width` columns: folds its values with `step` from 0, lanes apart, joins the lanes with `join`, stores `finish` of the result.
fn reduce_runs(
    b: &mut Builder,
    tile: &Tile<'_>,
    width: usize,
    values: SharedTile,
    to: SharedTile,
    step: impl Fn(&mut Builder, V, V) -> V,
    join: impl Fn(&mut Builder, V, V) -> V,
    finish: impl Fn(&mut Builder, V) -> V,
) {
    let tid = b.sreg("tid.x");
    let (warp, lane) = (b.shrc(tid, 5), b.andc(tid, 31));
    let runs = b.divc(tile.cols, width as i64);
    let all = b.mul(runs, tile.rows);
    b.for_range(warp, all, i64::from(tile.threads) / i64::from(WARP), |b, i| {
        let row = b.div(i, runs);
        let skip = b.mul(row, runs);
        let run = b.sub(i, skip);
        let first = b.mulc(run, width as i64);
        let (zero, n, stride) = (b.f32(0.0), b.i32(width as i64), b.i32(i64::from(WARP)));
        let sum = b.for_((lane, n, stride), &[zero], |b, j, acc| {
            let col = b.add(first, j);
            let p = values.at(b, row, col);
            let x = b.load(p, F32);
            vec![step(b, acc[0], x)]
        });
        let sum = b.reduce(sum[0], &[16, 8, 4, 2, 1], &join);
        let result = finish(b, sum);
        let first_lane = b.cmpc(Cmp::Eq, lane, 0);
        b.if_(first_lane, |b| {
            let p = to.at(b, row, run);
            b.store(result, p);
        });
    });
    b.barrier();
}

fn store_rows(
    b: &mut Builder,
    env: &Env<'_>,
    e: &Expr,
    tile: &Tile<'_>,
    param: ParamId,
    start: usize,
) -> Result<(), CodegenError> {
    let (cols, elem) = env.cx.rows(param)?;
    let base = env.args.operand(param);
    elements(b, tile, |b, row, col| {
        let v = env.value(b, e, row, col)?;
        let row = b.add(tile.row0, row);
        let col = b.add(tile.col0, col);
        let col = b.addc(col, start as i64);
        match half_type(elem) {
            None if elem == RowElem::F32 => {
                let p = f32_at(b, base, cols, row, col);
                b.store(v, p);
            }
            Some(ty) => {
                let v = b.ftrunc(v, ty);
                let p = half_at(b, base, cols, elem, row, col);
                b.store(v, p);
            }
            None => return Err(env.cx.error("int8 rows are not made on GPUs")),
        }
        Ok(())
    })
}

/// The type of 16-bit rows.
pub fn half_type(elem: RowElem) -> Option<Ty> {
    match elem {
        RowElem::F16 => Some(F16),
        RowElem::Bf16 => Some(BF16),
        RowElem::F32 | RowElem::Q8 { .. } => None,
    }
}

/// Address of element `(row, col)` of a matrix of 16-bit rows at `base`.
pub fn half_at(b: &mut Builder, base: V, cols: usize, elem: RowElem, row: V, col: V) -> V {
    let row = b.zext(row, I64);
    let start = b.mulc(row, row_stride(cols, elem) as i64);
    let line = b.at(base, start);
    let offset = b.shlc(col, 1);
    b.at(line, offset)
}

/// Where an element of a token goes in its page: `(offset in the page, in elements; head)`.
fn place(b: &mut Builder, kv: KvSpec, col: V, slot: V, key: bool) -> (V, V) {
    let d = kv.head_dim as i64;
    let head = b.divc(col, d);
    if key {
        // [head][D][16]: the column counts heads and D already.
        let line = b.mulc(col, PAGE_TOKENS as i64);
        (b.add(line, slot), head)
    } else {
        let within = b.remc(col, d);
        let line = b.mulc(head, PAGE_TOKENS as i64);
        let line = b.add(line, slot);
        let line = b.mulc(line, d);
        (b.add(line, within), head)
    }
}

fn store_kv(
    b: &mut Builder,
    env: &Env<'_>,
    e: &Expr,
    tile: &Tile<'_>,
    param: ParamId,
    key: bool,
    mut spare: V,
) -> Result<(), CodegenError> {
    let kv = env.cx.kv(param)?;
    let page = layout::page(kv.kv_heads, kv.head_dim, kv.dtype.bytes());
    let pool = env.args.operand(param);
    let part = if key { 0 } else { page.v };
    let address = |b: &mut Builder, row: V| {
        let row = b.add(tile.row0, row);
        let position = env.args.position(b, row);
        let (number, slot) = (b.shrc(position, 4), b.andc(position, PAGE_TOKENS as i64 - 1));
        (env.args.page(b, pool, page.bytes, row, number), slot)
    };
    if kv.dtype == KvDType::Int8 {
        let (values, scales) = carve(b, &mut spare, tile, kv.head_dim);
        materialize(b, env, e, values, tile)?;
        let magnitude = |b: &mut Builder, x: V| b.op(F32, format!("math.absf {x} : f32"));
        reduce_runs(b, tile, kv.head_dim, values, scales, |b, m, x| { let x = magnitude(b, x); b.fmax(m, x) }, |b, x, y| b.fmax(x, y), |_, m| m);
        return elements(b, tile, |b, row, col| {
            let p = values.at(b, row, col);
            let x = b.load(p, F32);
            let run = b.divc(col, kv.head_dim as i64);
            let p = scales.at(b, row, run);
            let amax = b.load(p, F32);
            let (base, slot) = address(b, row);
            let global = b.add(tile.col0, col);
            let (offset, head) = place(b, kv, global, slot, key);
            let code = int8_code(b, x, amax);
            let at = b.atc(base, part as i64);
            let at = b.at(at, offset);
            b.store(code, at);
            // The first element of a head stores its scale.
            let within = b.remc(global, kv.head_dim as i64);
            let first = b.cmpc(Cmp::Eq, within, 0);
            b.if_(first, |b| {
                let c = b.f32(127.0);
                let scale = b.fdiv(amax, c);
                let at = b.atc(base, if key { page.k_scales } else { page.v_scales } as i64);
                let line = b.mulc(head, PAGE_TOKENS as i64);
                let index = b.add(line, slot);
                let offset = b.shlc(index, 2);
                let at = b.at(at, offset);
                b.store(scale, at);
            });
            Ok(())
        });
    }
    elements(b, tile, |b, row, col| {
        let v = env.value(b, e, row, col)?;
        let (base, slot) = address(b, row);
        let global = b.add(tile.col0, col);
        let (index, _) = place(b, kv, global, slot, key);
        let (v, shift) = match kv.dtype {
            KvDType::F16 => (b.ftrunc(v, F16), 1),
            KvDType::Bf16 => (b.ftrunc(v, BF16), 1),
            KvDType::F32 | KvDType::Int8 => (v, 2),
        };
        let offset = b.shlc(index, shift);
        let at = b.atc(base, part as i64);
        let at = b.at(at, offset);
        b.store(v, at);
        Ok(())
    })
}

/// `round-half-even(x·(127/amax))`, 0 where that factor is not finite.
fn int8_code(b: &mut Builder, x: V, amax: V) -> V {
    let c = b.f32(127.0);
    let factor = b.fdiv(c, amax);
    let huge = b.f32(f32::MAX);
    let finite = b.op(crate::mlir::I1, format!("arith.cmpf ole, {factor}, {huge} : f32"));
    let zero = b.f32(0.0);
    let factor = b.select(finite, factor, zero);
    let scaled = b.fmul(x, factor);
    let rounded = b.asm(I32, "cvt.rni.s32.f32 $0, $1;", "=r,f", &[scaled]);
    b.trunc(rounded, I8)
}

/// `i64` from `i32`, unsigned.
pub fn wide(b: &mut Builder, v: V) -> V {
    b.zext(v, I64)
}
