//! Row norms: a block per row, or, where a row consists of several normalized runs, a warp per run.
//!
//! Each thread holds its columns in registers between the sum and the scaling when they are few, and reads them again when they are many. Sums are in
//! f32: per thread in ascending columns, then over lanes and warps in a fixed tree, so a row's result does not depend on the others.

use crate::cx::{Args, Cx, when_below};
use crate::mlir::{Builder, Cmp, Elem, F32, I32, V, WARP};
use crate::piece::{self, col_at, row_at};
use crate::{Source, blocks, per_rows};
use llmcc_abi::GpuCtx;
use llmcc_codegen::CodegenError;
use llmcc_ir::kernel::{ParamId, RowElem, RowNorm};
use std::mem::offset_of;

/// Most threads of a block.
const MAX_THREADS: usize = 512;
/// Pieces that a thread keeps in registers.
const HELD: usize = 4;

/// Emits the kernel.
///
/// # Errors
/// int8 rows.
pub fn emit(cx: &Cx<'_>, k: &RowNorm) -> Result<Source, CodegenError> {
    let shape = Shape::new(cx, k)?;
    let mlir = cx.function(shape.threads as u32, 1, |b, args| {
        let m = cx.row_count(b, args);
        let row = b.sreg("ctaid.x");
        when_below(b, row, m, |b| rows(&shape, b, args, row));
    });
    Ok(Source {
        entry: cx.entry(),
        mlir,
        threads: shape.threads as u32,
        shared: if shape.warps() > 1 { 4 * shape.warps() as u32 } else { 0 },
        grid: [per_rows(1), blocks(1), blocks(1)],
        scratch: 0,
        scratch_per_m: 0,
        generic: None,
    })
}

struct Shape<'k> {
    k: &'k RowNorm,
    cols: usize,
    from: (RowElem, Elem),
    to: (RowElem, Elem),
    gain: Option<(ParamId, usize)>,
    /// Columns of a run; all, when the whole row is one.
    width: usize,
    /// Columns of a piece.
    step: usize,
    /// Threads of the block.
    threads: usize,
    /// Threads that work on one run: all, or a warp.
    team: usize,
}

impl<'k> Shape<'k> {
    fn new(cx: &Cx<'_>, k: &'k RowNorm) -> Result<Shape<'k>, CodegenError> {
        let (cols, from) = cx.rows(k.x)?;
        let (out_cols, to) = cx.rows(k.out)?;
        if out_cols != cols {
            return Err(cx.error(format!("rows of {cols} columns are stored in rows of {out_cols}")));
        }
        let width = k.norm.map_or(cols, |n| n.width).max(1);
        let gain = k.gain.map(|g| cx.vector(g).map(|len| (g, len))).transpose()?;
        let step = piece::widest(4, [cols, width].into_iter().chain(gain.map(|(_, len)| len)));
        let warp = WARP as usize;
        let (threads, team) = if width == cols {
            let all = (cols / step).next_power_of_two().clamp(warp, MAX_THREADS);
            (all, all)
        } else {
            ((cols / width).next_power_of_two().min(MAX_THREADS / warp) * warp, warp)
        };
        let float = |elem| piece::float_storage(cx, elem).map(|e| (elem, e));
        Ok(Shape { k, cols, from: float(from)?, to: float(to)?, gain, width, step, threads, team })
    }

    /// Warps that share a sum.
    fn warps(&self) -> usize {
        self.team / WARP as usize
    }

    /// Pieces of a run.
    fn pieces(&self) -> usize {
        self.width / self.step
    }
}

fn rows(s: &Shape<'_>, b: &mut Builder, args: Args<'_>, row: V) {
    let source = if s.k.gather { args.array_at(b, offset_of!(GpuCtx, out_rows), row) } else { row };
    let x = row_at(b, args.operand(s.k.x), s.cols, s.from.0, source);
    let y = row_at(b, args.operand(s.k.out), s.cols, s.to.0, row);
    let gain = s.gain.map(|(g, _)| args.operand(g));
    let tid = b.sreg("tid.x");
    if s.width == s.cols {
        let first = b.i32(0);
        return Run { s, x, y, gain, first, lane: tid }.emit(b);
    }
    let (warp, lane) = (b.shrc(tid, 5), b.andc(tid, i64::from(WARP) - 1));
    let (runs, warps) = (b.i32((s.cols / s.width) as i64), (s.threads / WARP as usize) as i64);
    b.for_range(warp, runs, warps, |b, i| {
        let first = b.mulc(i, s.width as i64);
        Run { s, x, y, gain, first, lane }.emit(b);
    });
}

/// One run of columns and the team that works on it.
struct Run<'a> {
    s: &'a Shape<'a>,
    x: V,
    y: V,
    gain: Option<V>,
    /// First column.
    first: V,
    /// Number of the thread in its team.
    lane: V,
}

impl Run<'_> {
    fn emit(&self, b: &mut Builder) {
        if self.s.pieces() <= HELD * self.s.team { self.held(b) } else { self.streamed(b) }
    }

    /// All columns at once, in registers.
    fn held(&self, b: &mut Builder) {
        let (team, pieces) = (self.s.team, self.s.pieces());
        let numbers: Vec<(V, bool)> =
            (0..pieces.div_ceil(team)).map(|p| (b.addc(self.lane, (p * team) as i64), (p + 1) * team > pieces)).collect();
        let held: Vec<Vec<V>> = numbers.iter().map(|(i, partial)| self.load(b, *i, *partial)).collect();
        let factor = self.s.k.norm.map(|norm| {
            let zero = b.f32(0.0);
            let sum = held.iter().flatten().fold(zero, |sum, x| b.fma(*x, *x, sum));
            self.factor(b, sum, norm.eps.get())
        });
        for ((i, partial), values) in numbers.iter().zip(&held) {
            self.guarded(b, *i, *partial, |b| self.store(b, *i, values, factor));
        }
    }

    /// Column after column, twice.
    fn streamed(&self, b: &mut Builder) {
        let (n, step) = (b.i32(self.s.pieces() as i64), b.i32(self.s.team as i64));
        let factor = self.s.k.norm.map(|norm| {
            let zero = b.f32(0.0);
            let sum = b.for_((self.lane, n, step), &[zero], |b, i, sum| {
                let values = self.load(b, i, false);
                vec![values.iter().fold(sum[0], |sum, x| b.fma(*x, *x, sum))]
            });
            self.factor(b, sum[0], norm.eps.get())
        });
        b.for_((self.lane, n, step), &[], |b, i, _| {
            let values = self.load(b, i, false);
            self.store(b, i, &values, factor);
            vec![]
        });
    }

    fn column(&self, b: &mut Builder, i: V) -> V {
        let col = b.mulc(i, self.s.step as i64);
        b.add(self.first, col)
    }

    fn guarded(&self, b: &mut Builder, i: V, partial: bool, body: impl FnOnce(&mut Builder)) {
        if !partial {
            return body(b);
        }
        let inside = b.cmpc(Cmp::Slt, i, self.s.pieces() as i64);
        b.if_(inside, body);
    }

    /// Piece `i`; zeros beyond the run.
    fn load(&self, b: &mut Builder, i: V, partial: bool) -> Vec<V> {
        let get = |b: &mut Builder| {
            let col = self.column(b, i);
            let p = col_at(b, self.x, self.s.from.1, col);
            piece::load(b, p, self.s.from.1, self.s.step)
        };
        if !partial {
            return get(b);
        }
        let inside = b.cmpc(Cmp::Slt, i, self.s.pieces() as i64);
        b.if_else(inside, &vec![F32; self.s.step], get, |b| {
            let zero = b.f32(0.0);
            vec![zero; self.s.step]
        })
    }

    /// `1 / √(mean + eps)` of the team's sums of squares, in every thread.
    fn factor(&self, b: &mut Builder, sum: V, eps: f32) -> V {
        let mut sum = b.reduce(sum, &[16, 8, 4, 2, 1], |b, x, y| b.fadd(x, y));
        let warps = self.s.warps();
        if warps > 1 {
            sum = across_warps(b, sum, warps);
        }
        let (scale, eps) = (b.f32(1.0 / self.s.width as f32), b.f32(eps));
        let mean = b.fma(sum, scale, eps);
        b.rsqrt(mean)
    }

    fn store(&self, b: &mut Builder, i: V, values: &[V], factor: Option<V>) {
        let col = self.column(b, i);
        let mut values = values.to_vec();
        if let Some(factor) = factor {
            values.iter_mut().for_each(|x| *x = b.fmul(*x, factor));
        }
        if let (Some(gain), Some((_, len))) = (self.gain, self.s.gain) {
            let j = if len >= self.s.cols { col } else { b.remc(col, len as i64) };
            let p = col_at(b, gain, Elem::F32, j);
            let gains = piece::load(b, p, Elem::F32, self.s.step);
            values.iter_mut().zip(gains).for_each(|(x, g)| *x = b.fmul(*x, g));
        }
        let p = col_at(b, self.y, self.s.to.1, col);
        piece::store(b, &values, p, self.s.to.1);
    }
}

/// The sum over `warps` (a power of two) warps of a value that is the same in all lanes of each; uses `4·warps` bytes of shared memory.
fn across_warps(b: &mut Builder, sum: V, warps: usize) -> V {
    let tid = b.sreg("tid.x");
    let (warp, lane) = (b.shrc(tid, 5), b.andc(tid, i64::from(WARP) - 1));
    let shared = b.shared();
    let first = b.cmpc(Cmp::Eq, lane, 0);
    b.if_(first, |b| {
        let p = col_at(b, shared, Elem::F32, warp);
        b.store(sum, p);
    });
    b.barrier();
    let mine = b.andc(lane, warps as i64 - 1);
    debug_assert_eq!(mine.ty, I32);
    let p = col_at(b, shared, Elem::F32, mine);
    let sum = b.load(p, F32);
    let masks: Vec<i64> = (0..warps.trailing_zeros()).rev().map(|i| 1 << i).collect();
    b.reduce(sum, &masks, |b, x, y| b.fadd(x, y))
}
