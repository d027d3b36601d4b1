//! Input to shared memory: all columns of a block's rows, through the prologue if there is one.
//!
//! Row `r` is at `r · stride` bytes, `stride` being the padded columns and 16 bytes: eight rows
//! then start in eight different groups of banks.

use super::{Plan, decode};
use crate::cx::{Args, row_stride, share_out};
use crate::epilogue::half_type;
use crate::mlir::{Builder, Cache, Cmp, Elem, F32, I32, I64, Ty, V, WARP};
use llmcc_abi::layout::round_up;
use llmcc_codegen::CodegenError;
use llmcc_ir::gpu::schedule::{Input, Variant};
use llmcc_ir::kernel::{Norm, RowElem};

/// Input in shared memory.
#[derive(Clone, Copy)]
pub struct Staged {
    /// First row.
    pub base: V,
    /// Bytes from row to row.
    pub stride: usize,
}

/// Bytes of an element of the staged input.
pub fn elem_bytes(plan: &Plan<'_>) -> usize {
    if plan.schedule.variant == Variant::Fma { 4 } else { plan.elem.encoding().bits() as usize / 8 }
}

/// Bytes of a row of the staged input.
pub fn stride(plan: &Plan<'_>) -> usize {
    plan.schedule.k * elem_bytes(plan) + 16
}

/// Rows of the input that shared memory has room for.
pub fn staged_rows(plan: &Plan<'_>) -> usize {
    match plan.schedule.input {
        Input::Whole => plan.schedule.rows,
        Input::Fitting(rows) => rows,
        Input::Global | Input::Tiles => 0,
    }
}

/// Shared memory of the staged input.
pub fn bytes(plan: &Plan<'_>) -> usize {
    staged_rows(plan) * stride(plan)
}

/// Whether rows are copied as they are.
pub fn is_copy(plan: &Plan<'_>) -> bool {
    plan.body.prologue.is_none() && plan.k == plan.schedule.k && plan.schedule.variant != Variant::Fma
}

/// Address of row `row` of the input.
pub fn row(b: &mut Builder, plan: &Plan<'_>, args: Args<'_>, row: V) -> Result<V, CodegenError> {
    let (cols, elem) = plan.cx.rows(plan.body.x)?;
    let row = b.zext(row, I64);
    let offset = b.mulc(row, row_stride(cols, elem) as i64);
    Ok(b.at(args.operand(plan.body.x), offset))
}

/// Starts copying rows (of 16-bit elements): one group of copies per thread.
///
/// # Errors
/// The input is no matrix of rows.
pub fn copy(
    b: &mut Builder,
    plan: &Plan<'_>,
    args: Args<'_>,
    to: Staged,
    row0: V,
    rows: V,
) -> Result<(), CodegenError> {
    let pieces = (plan.k * 2 / 16) as i64;
    let n = b.mulc(rows, pieces);
    let mut done = Ok(());
    share_out(b, n, plan.schedule.warps as u32 * 32, |b, i| {
        let r = b.divc(i, pieces);
        let skip = b.mulc(r, pieces);
        let piece = b.sub(i, skip);
        let offset = b.shlc(piece, 4);
        let global = b.add(row0, r);
        match row(b, plan, args, global) {
            Ok(from) => {
                let from = b.at(from, offset);
                let line = b.mulc(r, to.stride as i64);
                let at = b.add(line, offset);
                let at = b.at(to.base, at);
                b.cp_async(at, from, Cache::L2);
            }
            Err(e) => done = Err(e),
        }
    });
    b.cp_commit();
    done
}

/// Computes the staged rows: normalization, gain, conversion, zeros beyond the last column. Ends
/// with a barrier.
///
/// # Errors
/// Operands of the wrong kind.
pub fn compute(
    b: &mut Builder,
    plan: &Plan<'_>,
    args: Args<'_>,
    to: Staged,
    (row0, rows): (V, V),
    factors: V,
) -> Result<(), CodegenError> {
    let (cols, stored) = plan.cx.rows(plan.body.x)?;
    let prologue = plan.body.prologue;
    let norm = prologue.and_then(|p| p.norm);
    let gain = match prologue.and_then(|p| p.gain) {
        Some(g) => Some((args.operand(g), plan.cx.vector(g)?)),
        None => None,
    };
    // Four columns at a time where rows and gains allow it.
    let wide = if cols.is_multiple_of(4) && gain.is_none_or(|(_, len)| len.is_multiple_of(4)) { 4 } else { 1 };
    if norm.is_some_and(|n| wide > 1 && !n.width.is_multiple_of(4)) {
        return rows_of(b, plan, args, to, (row0, rows), factors, (norm, gain, stored, 1));
    }
    rows_of(b, plan, args, to, (row0, rows), factors, (norm, gain, stored, wide))
}

type How = (Option<Norm>, Option<(V, usize)>, RowElem, usize);

fn rows_of(
    b: &mut Builder,
    plan: &Plan<'_>,
    args: Args<'_>,
    to: Staged,
    (row0, rows): (V, V),
    factors: V,
    (norm, gain, stored, wide): How,
) -> Result<(), CodegenError> {
    let threads = plan.schedule.warps as u32 * 32;
    if let Some(norm) = norm {
        normalize(b, plan, args, (row0, rows), factors, norm, (stored, wide))?;
    }
    let pieces = (plan.k / wide) as i64;
    let n = b.mulc(rows, pieces);
    let mut done = Ok(());
    share_out(b, n, threads, |b, i| {
        let r = b.divc(i, pieces);
        let skip = b.mulc(r, pieces);
        let piece = b.sub(i, skip);
        let col = b.mulc(piece, wide as i64);
        let global = b.add(row0, r);
        let from = match row(b, plan, args, global) {
            Ok(from) => from,
            Err(e) => {
                done = Err(e);
                return;
            }
        };
        let mut x = load(b, from, col, stored, wide, Builder::load);
        if let Some(norm) = norm {
            let run = b.divc(col, norm.width as i64);
            let line = b.mulc(r, (plan.k / norm.width) as i64);
            let index = b.add(line, run);
            let offset = b.shlc(index, 2);
            let p = b.at(factors, offset);
            let factor = b.load(p, F32);
            x.iter_mut().for_each(|v| *v = b.fmul(*v, factor));
        }
        if let Some((gain, len)) = gain {
            let at = if len >= plan.k { col } else { b.remc(col, len as i64) };
            let g = load(b, gain, at, RowElem::F32, wide, Builder::load_const);
            x.iter_mut().zip(g).for_each(|(v, g)| *v = b.fmul(*v, g));
        }
        let line = b.mulc(r, to.stride as i64);
        let p = b.at(to.base, line);
        store(b, p, col, &x, plan);
    });
    zeros(b, plan, to, rows);
    b.barrier();
    done
}

/// Clears the columns between the last one and the end of its unit.
fn zeros(b: &mut Builder, plan: &Plan<'_>, to: Staged, rows: V) {
    let pad = (plan.schedule.k - plan.k) as i64;
    if pad == 0 {
        return;
    }
    let n = b.mulc(rows, pad);
    share_out(b, n, plan.schedule.warps as u32 * 32, |b, i| {
        let r = b.divc(i, pad);
        let skip = b.mulc(r, pad);
        let col = b.sub(i, skip);
        let col = b.addc(col, plan.k as i64);
        let line = b.mulc(r, to.stride as i64);
        let p = b.at(to.base, line);
        let zero = b.f32(0.0);
        store(b, p, col, &[zero], plan);
    });
}

/// `wide` elements from column `col` on, as f32.
fn load(b: &mut Builder, row: V, col: V, stored: RowElem, wide: usize, read: fn(&mut Builder, V, Ty) -> V) -> Vec<V> {
    let half = decode::half(stored);
    let (ty, shift) = match (stored, wide) {
        (RowElem::F32, 4) => (Ty::Vec(4, Elem::F32), 2),
        (RowElem::F32, _) => (F32, 2),
        (_, 4) => (Ty::Vec(2, Elem::I32), 1),
        _ => (Ty::S(half), 1),
    };
    let offset = b.shlc(col, shift);
    let p = b.at(row, offset);
    let v = read(b, p, ty);
    match (stored, wide) {
        (RowElem::F32, 4) => b.unpack(v),
        (RowElem::F32, _) => vec![v],
        (_, 4) => b.unpack(v).into_iter().flat_map(|w| halves(b, w, half)).collect(),
        _ => vec![b.fext(v, F32)],
    }
}

/// The two halves of a word, as f32.
pub fn halves(b: &mut Builder, word: V, half: Elem) -> Vec<V> {
    let v = b.bitcast(word, Ty::Vec(2, half));
    let parts = b.unpack(v);
    parts.into_iter().map(|x| b.fext(x, F32)).collect()
}

/// Stores elements from column `col` of a staged row on.
fn store(b: &mut Builder, row: V, col: V, x: &[V], plan: &Plan<'_>) {
    let f32s = plan.schedule.variant == Variant::Fma;
    let offset = b.shlc(col, if f32s { 2 } else { 1 });
    let p = b.at(row, offset);
    // What is multiplied is rounded to the storage that the kernel names, also where f32 arithmetic
    // follows.
    let half = half_type(plan.elem);
    let mut x: Vec<V> = x.iter().map(|v| half.map_or(*v, |ty| b.ftrunc(*v, ty))).collect();
    if f32s {
        if half.is_some() {
            x.iter_mut().for_each(|v| *v = b.fext(*v, F32));
        }
        let v = if x.len() == 4 { b.pack(&x) } else { x[0] };
        b.store(v, p);
    } else if x.len() == 4 {
        let words: Vec<V> = x
            .chunks(2)
            .map(|pair| {
                let v = b.pack(pair);
                b.bitcast(v, I32)
            })
            .collect();
        let v = b.pack(&words);
        b.store(v, p);
    } else {
        b.store(x[0], p);
    }
}

/// Bytes of the factors: one per row and run; and one per warp and row while they are computed.
pub fn factor_bytes(plan: &Plan<'_>) -> usize {
    let Some(norm) = plan.body.prologue.and_then(|p| p.norm) else { return 0 };
    round_up(plan.schedule.rows * (plan.k / norm.width.max(1)).max(1 + plan.schedule.warps) * 4, 16)
}

/// Writes the factor of each row and run: a warp per run, or all warps per row where there is one
/// run.
fn normalize(
    b: &mut Builder,
    plan: &Plan<'_>,
    args: Args<'_>,
    (row0, rows): (V, V),
    factors: V,
    norm: Norm,
    (stored, wide): (RowElem, usize),
) -> Result<(), CodegenError> {
    let warps = plan.schedule.warps;
    let runs = plan.k / norm.width;
    let tid = b.sreg("tid.x");
    let (warp, lane) = (b.shrc(tid, 5), b.andc(tid, 31));
    let mut done = Ok(());
    let mut squares = |b: &mut Builder, r: V, from: V, first: V, step: usize| {
        let global = b.add(row0, r);
        let base = match row(b, plan, args, global) {
            Ok(base) => base,
            Err(e) => {
                done = Err(e);
                return b.f32(0.0);
            }
        };
        let (zero, n, step) = (b.f32(0.0), b.i32((norm.width / wide) as i64), b.i32(step as i64));
        let sum = b.for_((first, n, step), &[zero], |b, i, acc| {
            let col = b.mulc(i, wide as i64);
            let col = b.add(from, col);
            let x = load(b, base, col, stored, wide, Builder::load);
            vec![x.into_iter().fold(acc[0], |acc, v| b.fma(v, v, acc))]
        });
        b.reduce(sum[0], &[16, 8, 4, 2, 1], |b, x, y| b.fadd(x, y))
    };
    let finish = |b: &mut Builder, sum: V| {
        let (scale, eps) = (b.f32(1.0 / norm.width as f32), b.f32(norm.eps.get()));
        let mean = b.fma(sum, scale, eps);
        b.rsqrt(mean)
    };
    let word = |b: &mut Builder, i: V| {
        let offset = b.shlc(i, 2);
        b.at(factors, offset)
    };
    let leader = b.cmpc(Cmp::Eq, lane, 0);
    if runs > 1 {
        let n = b.mulc(rows, runs as i64);
        b.for_range(warp, n, warps as i64, |b, i| {
            let r = b.divc(i, runs as i64);
            let skip = b.mulc(r, runs as i64);
            let run = b.sub(i, skip);
            let from = b.mulc(run, norm.width as i64);
            let sum = squares(b, r, from, lane, WARP as usize);
            let factor = finish(b, sum);
            b.if_(leader, |b| {
                let p = word(b, i);
                b.store(factor, p);
            });
        });
        b.barrier();
        return done;
    }
    // Sums of warps lie after the factors of the rows.
    let skip = plan.schedule.rows as i64;
    let zero = b.i32(0);
    b.for_range(zero, rows, 1, |b, r| {
        let sum = squares(b, r, zero, tid, warps * WARP as usize);
        b.if_(leader, |b| {
            let line = b.mulc(r, warps as i64);
            let index = b.add(line, warp);
            let index = b.addc(index, skip);
            let p = word(b, index);
            b.point_as(p, "sums of warps");
            b.store(sum, p);
        });
    });
    b.barrier();
    let mine = b.cmp(Cmp::Slt, tid, rows);
    b.if_(mine, |b| {
        let line = b.mulc(tid, warps as i64);
        let sums: Vec<V> = (0..warps as i64)
            .map(|w| {
                let index = b.addc(line, w + skip);
                let p = word(b, index);
                b.point_as(p, "sums of warps");
                b.load(p, F32)
            })
            .collect();
        let sum = sums[1..].iter().fold(sums[0], |acc, v| b.fadd(acc, *v));
        let factor = finish(b, sum);
        let p = word(b, tid);
        b.store(factor, p);
    });
    b.barrier();
    done
}
