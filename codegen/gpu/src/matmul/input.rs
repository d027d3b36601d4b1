//! Input to shared memory: all columns of a block's rows, through the prologue if there is one.
//!
//! Row `r` is at `r · stride` bytes, `stride` being the padded columns and 16 bytes: eight rows
//! then start in eight different groups of banks.

use super::Plan;
use crate::cx::{Args, share_out};
use crate::mlir::{Builder, Cache, Cmp, Elem, F32, I32, Ty, V, WARP};
use crate::piece::{self, col_at, half_type, row_at};
use llmcc_abi::layout::round_up;
use llmcc_ir::gpu::schedule::{Input, Variant, norm_words};
use llmcc_ir::kernel::{Norm, ParamId, Prologue};

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
pub fn row(b: &mut Builder, plan: &Plan<'_>, args: Args<'_>, row: V) -> V {
    let (cols, elem) = plan.cx.rows(plan.body.x);
    row_at(b, args.operand(plan.body.x), cols, elem, row)
}

/// Starts copying rows (of 16-bit elements): one group of copies per thread.
pub fn copy(b: &mut Builder, plan: &Plan<'_>, args: Args<'_>, to: Staged, row0: V, rows: V) {
    let pieces = (plan.k * 2 / 16) as i64;
    let n = b.mulc(rows, pieces);
    share_out(b, n, plan.threads(), |b, i| {
        let r = b.divc(i, pieces);
        let skip = b.mulc(r, pieces);
        let piece = b.sub(i, skip);
        let offset = b.shlc(piece, 4);
        let global = b.add(row0, r);
        let from = row(b, plan, args, global);
        let from = b.at(from, offset);
        let line = b.mulc(r, to.stride as i64);
        let at = b.add(line, offset);
        let at = b.at(to.base, at);
        b.cp_async(at, from, Cache::L2);
    });
    b.cp_commit();
}

/// Computes the staged rows: normalization, gain, bias, conversion, zeros beyond the last column.
/// Ends with a barrier.
pub fn compute(b: &mut Builder, plan: &Plan<'_>, args: Args<'_>, to: Staged, (row0, rows): (V, V), factors: V) {
    rows_of(b, plan, args, to, (row0, rows), factors, &how(plan, args));
}

/// How the rows of a plan become its staged input.
pub(super) fn how(plan: &Plan<'_>, args: Args<'_>) -> How {
    let (cols, stored) = plan.cx.rows(plan.body.x);
    let prologue = plan.body.prologue;
    let Prologue { norm, gain, bias, elem: _ } = prologue.unwrap_or(Prologue::plain(plan.elem));
    let vector = |v: Option<ParamId>| v.map(|v| (args.operand(v), plan.cx.kernel.vector(v)));
    let (gain, bias): (Option<Vector>, Option<Vector>) = (vector(gain), vector(bias));
    // Four columns at a time where rows, runs and vectors allow it.
    let lengths = [gain, bias].into_iter().flatten().map(|(_, len)| len);
    let wide = piece::widest(4, lengths.chain(norm.map(|n| n.width)).chain([cols]));
    let wide = if wide == 4 { 4 } else { 1 };
    How { norm, gain, bias, stored: piece::storage(stored), wide }
}

/// A vector in memory and its length.
pub(super) type Vector = (V, usize);

/// How rows become staged input: see [`how`].
pub(super) struct How {
    pub norm: Option<Norm>,
    pub gain: Option<Vector>,
    pub bias: Option<Vector>,
    /// The type they are read as.
    pub stored: Elem,
    /// Columns at a time: 4 or 1.
    pub wide: usize,
}

fn rows_of(b: &mut Builder, plan: &Plan<'_>, args: Args<'_>, to: Staged, (row0, rows): (V, V), factors: V, how: &How) {
    let How { norm, gain, bias, stored, wide } = *how;
    let threads = plan.threads();
    let shared = norm.map(|norm| Factors {
        at: factors,
        rows: plan.schedule.rows,
        runs: plan.k / norm.width,
        center: norm.center,
    });
    if let (Some(norm), Some(shared)) = (norm, shared) {
        normalize(b, plan, args, (row0, rows), shared, norm, (stored, wide));
    }
    let pieces = (plan.k / wide) as i64;
    let n = b.mulc(rows, pieces);
    share_out(b, n, threads, |b, i| {
        let r = b.divc(i, pieces);
        let skip = b.mulc(r, pieces);
        let piece = b.sub(i, skip);
        let col = b.mulc(piece, wide as i64);
        let global = b.add(row0, r);
        let from = row(b, plan, args, global);
        let mut x = load(b, from, col, stored, wide, Builder::load);
        if let (Some(norm), Some(shared)) = (norm, shared) {
            let run = b.divc(col, norm.width as i64);
            let line = b.mulc(r, shared.runs as i64);
            let index = b.add(line, run);
            if norm.center {
                let mean = shared.mean(b, index);
                x.iter_mut().for_each(|v| *v = b.fsub(*v, mean));
            }
            let p = shared.word(b, index);
            let factor = b.load(p, F32);
            x.iter_mut().for_each(|v| *v = b.fmul(*v, factor));
        }
        if let Some(gain) = gain {
            let gain = part(b, plan, gain, col, wide);
            x.iter_mut().zip(gain).for_each(|(v, g)| *v = b.fmul(*v, g));
        }
        if let Some(bias) = bias {
            let bias = part(b, plan, bias, col, wide);
            x.iter_mut().zip(bias).for_each(|(v, c)| *v = b.fadd(*v, c));
        }
        let line = b.mulc(r, to.stride as i64);
        let p = b.at(to.base, line);
        store(b, p, col, &x, plan);
    });
    zeros(b, plan, to, rows);
    b.barrier();
}

/// Loads the elements of a gain or bias for `wide` columns from `col` on; a short vector repeats.
pub(super) fn part(b: &mut Builder, plan: &Plan<'_>, (at, len): Vector, col: V, wide: usize) -> Vec<V> {
    let from = if len >= plan.k { col } else { b.remc(col, len as i64) };
    load(b, at, from, Elem::F32, wide, Builder::load_const)
}

/// Clears the columns between the last one and the end of its unit.
pub(super) fn zeros(b: &mut Builder, plan: &Plan<'_>, to: Staged, rows: V) {
    let pad = (plan.schedule.k - plan.k) as i64;
    if pad == 0 {
        return;
    }
    let n = b.mulc(rows, pad);
    share_out(b, n, plan.threads(), |b, i| {
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
pub(super) fn load(
    b: &mut Builder,
    row: V,
    col: V,
    stored: Elem,
    wide: usize,
    read: fn(&mut Builder, V, Ty) -> V,
) -> Vec<V> {
    let ty = match (stored, wide) {
        (Elem::F32, 4) => Ty::Vec(4, Elem::F32),
        (_, 4) => Ty::Vec(2, Elem::I32),
        _ => Ty::S(stored),
    };
    let p = col_at(b, row, stored, col);
    let v = read(b, p, ty);
    match (stored, wide) {
        (Elem::F32, 4) => b.unpack(v),
        (Elem::F32, _) => vec![v],
        (_, 4) => b.unpack(v).into_iter().flat_map(|w| halves(b, w, stored)).collect(),
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
pub(super) fn store(b: &mut Builder, row: V, col: V, x: &[V], plan: &Plan<'_>) {
    let f32s = plan.schedule.variant == Variant::Fma;
    let offset = b.shlc(col, if f32s { 2 } else { 1 });
    let p = b.at(row, offset);
    // Operands are rounded to the storage that the kernel names, also where f32 arithmetic follows.
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

/// Bytes of the factors: one per row and run, as many means where those are subtracted; and one per
/// warp and row while they are computed.
pub fn factor_bytes(plan: &Plan<'_>) -> usize {
    let Some(norm) = plan.body.prologue.and_then(|p| p.norm) else { return 0 };
    round_up(plan.schedule.rows * norm_words(norm, plan.k, plan.schedule.warps) * 4, 16)
}

/// Where the factors of a normalization lie, in words: one per row and run; then the means, if
/// there are any; then a sum per row and warp.
#[derive(Clone, Copy)]
pub(super) struct Factors {
    pub at: V,
    pub rows: usize,
    pub runs: usize,
    pub center: bool,
}

impl Factors {
    /// Address of word `i`.
    fn word(&self, b: &mut Builder, i: V) -> V {
        let offset = b.shlc(i, 2);
        b.at(self.at, offset)
    }

    /// Where the mean of row and run `i` is.
    fn mean_at(&self, b: &mut Builder, i: V) -> V {
        let i = b.addc(i, (self.rows * self.runs) as i64);
        let p = self.word(b, i);
        b.point_as(p, "means");
        p
    }

    /// Where the sum `index + more` of a row and warp is: after the factors, and the means if there
    /// are any.
    pub fn sum_at(&self, b: &mut Builder, index: V, more: i64) -> V {
        let skip = self.rows * if self.center { 2 } else { 1 };
        let index = b.addc(index, more + skip as i64);
        let p = self.word(b, index);
        b.point_as(p, "sums of warps");
        p
    }

    /// The sum over a row of the sums of its `warps`, from warp `index` on, in their order.
    pub fn sum_of_warps(&self, b: &mut Builder, index: V, warps: usize) -> V {
        let sums: Vec<V> = (0..warps as i64)
            .map(|w| {
                let p = self.sum_at(b, index, w);
                b.load(p, F32)
            })
            .collect();
        sums[1..].iter().fold(sums[0], |acc, v| b.fadd(acc, *v))
    }

    fn mean(&self, b: &mut Builder, i: V) -> V {
        let p = self.mean_at(b, i);
        b.load(p, F32)
    }
}

/// Writes the factor of each row and run, and the mean before it where that is subtracted.
fn normalize(
    b: &mut Builder,
    plan: &Plan<'_>,
    args: Args<'_>,
    (row0, rows): (V, V),
    to: Factors,
    norm: Norm,
    (stored, wide): (Elem, usize),
) {
    let Norm { eps, width, center } = norm;
    let sums = Sums { plan, args, row0, rows, to, norm, stored, wide };
    let mean = |b: &mut Builder, sum: V, plus: f32| {
        let (scale, plus) = (b.f32(1.0 / width as f32), b.f32(plus));
        b.fma(sum, scale, plus)
    };
    if center {
        let add = |b: &mut Builder, _: Option<V>, x: V, sum: V| b.fadd(sum, x);
        sums.emit(b, false, add, |b, sum| mean(b, sum, 0.0), |b, i| to.mean_at(b, i));
    }
    let add = |b: &mut Builder, mean: Option<V>, x: V, sum: V| {
        let x = mean.map_or(x, |mean| b.fsub(x, mean));
        b.fma(x, x, sum)
    };
    let factor = |b: &mut Builder, sum: V| {
        let mean = mean(b, sum, eps.get());
        b.rsqrt(mean)
    };
    sums.emit(b, center, add, factor, |b, i| to.word(b, i));
}

/// Sums over each run of each row: by a warp per run, or by all warps per row where there is one
/// run.
struct Sums<'a> {
    plan: &'a Plan<'a>,
    args: Args<'a>,
    row0: V,
    rows: V,
    to: Factors,
    norm: Norm,
    stored: Elem,
    wide: usize,
}

impl Sums<'_> {
    /// Folds every run with `add`, which is given the run's mean `if means`, and writes the result
    /// of `finish` at `place`, a function of the run's index. Ends with a barrier.
    fn emit(
        &self,
        b: &mut Builder,
        means: bool,
        add: impl Fn(&mut Builder, Option<V>, V, V) -> V,
        finish: impl Fn(&mut Builder, V) -> V,
        place: impl Fn(&mut Builder, V) -> V,
    ) {
        let (warps, runs, rows) = (self.plan.schedule.warps, self.to.runs, self.rows);
        let tid = b.sreg("tid.x");
        let (warp, lane) = b.warp_and_lane(tid);
        let sum_of = |b: &mut Builder, index: V, r: V, from: V, (first, step): (V, usize)| {
            let mean = means.then(|| self.to.mean(b, index));
            self.sum(b, (r, from), (first, step), |b, x, sum| add(b, mean, x, sum))
        };
        let leader = b.cmpc(Cmp::Eq, lane, 0);
        if runs > 1 {
            let n = b.mulc(rows, runs as i64);
            b.for_range(warp, n, warps as i64, |b, i| {
                let r = b.divc(i, runs as i64);
                let skip = b.mulc(r, runs as i64);
                let run = b.sub(i, skip);
                let from = b.mulc(run, self.norm.width as i64);
                let sum = sum_of(b, i, r, from, (lane, WARP));
                let value = finish(b, sum);
                b.if_(leader, |b| {
                    let p = place(b, i);
                    b.store(value, p);
                });
            });
            return b.barrier();
        }
        let zero = b.i32(0);
        b.for_range(zero, rows, 1, |b, r| {
            let sum = sum_of(b, r, r, zero, (tid, warps * WARP));
            b.if_(leader, |b| {
                let line = b.mulc(r, warps as i64);
                let index = b.add(line, warp);
                let p = self.to.sum_at(b, index, 0);
                b.store(sum, p);
            });
        });
        b.barrier();
        let mine = b.cmp(Cmp::Slt, tid, rows);
        b.if_(mine, |b| {
            let line = b.mulc(tid, warps as i64);
            let sum = self.to.sum_of_warps(b, line, warps);
            let value = finish(b, sum);
            let p = place(b, tid);
            b.store(value, p);
        });
        b.barrier();
    }

    /// The sum of one run of row `r`, whose first column is `from`, in the lanes of each warp: a
    /// thread takes every `step`th of its pieces from `first` on.
    fn sum(
        &self,
        b: &mut Builder,
        (r, from): (V, V),
        (first, step): (V, usize),
        add: impl Fn(&mut Builder, V, V) -> V,
    ) -> V {
        let (stored, wide) = (self.stored, self.wide);
        let global = b.add(self.row0, r);
        let base = row(b, self.plan, self.args, global);
        let (zero, n, step) = (b.f32(0.0), b.i32((self.norm.width / wide) as i64), b.i32(step as i64));
        let sum = b.for_((first, n, step), &[zero], |b, i, acc| {
            let col = b.mulc(i, wide as i64);
            let col = b.add(from, col);
            let x = load(b, base, col, stored, wide, Builder::load);
            vec![x.into_iter().fold(acc[0], |acc, v| add(b, v, acc))]
        });
        b.reduce(sum[0], &[16, 8, 4, 2, 1], |b, x, y| b.fadd(x, y))
    }
}
