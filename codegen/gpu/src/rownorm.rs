//! Row norms, with gain, bias and residual: a block per row, or, where a row consists of several
//! normalized runs, a warp per run.
//!
//! Each thread holds its columns in registers between the sum and the scaling when they are few,
//! and reads them again when they are many. Sums are in f32: per thread in ascending columns, then
//! over lanes and warps in a fixed tree, so a row's result does not depend on the others.

use crate::cx::{Args, Cx, when_below};
use crate::mlir::{Builder, Cmp, Elem, F32, I8, I32, Memory, V, WARP};
use crate::piece::{self, col_at, row_at};
use crate::{Source, blocks, per_rows};
use llmcc_abi::GpuCtx;
use llmcc_abi::layout::fp8_row;
use llmcc_ir::kernel::{Norm, ParamId, RowElem, RowNorm};
use llmcc_ir::quant::E4M3_MAX;
use std::mem::offset_of;

/// Most threads of a block.
const MAX_THREADS: usize = 512;
/// Pieces that a thread keeps in registers.
const HELD: usize = 4;

/// Emits the kernel.
pub fn emit(cx: &Cx<'_>, k: &RowNorm) -> Source {
    let shape = Shape::new(cx, k);
    let (mlir, program) = cx.function(shape.threads as u32, 1, |b, args| {
        let m = cx.row_count(b, args);
        let row = b.sreg("ctaid.x");
        // Sums of the warps; then their largest magnitudes; the sums that make means.
        b.buffer(Memory {
            name: "of warps",
            at: 0,
            bytes: 4 * shape.warps(),
            stages: shape.stages(),
            conflict_free: false,
            over: &[],
        });
        when_below(b, row, m, |b| rows(&shape, b, args, row));
    });
    Source {
        shared: if shape.warps() > 1 { 4 * (shape.stages() * shape.warps()) as u32 } else { 0 },
        ..Source::new(cx.entry(), (mlir, program), shape.threads as u32, [per_rows(1), blocks(1), blocks(1)])
    }
}

struct Shape<'k> {
    k: &'k RowNorm,
    norm: Option<Norm>,
    cols: usize,
    from: (RowElem, Elem),
    /// `None`: fp8.
    to: Option<Elem>,
    out: RowElem,
    gain: Option<(ParamId, usize)>,
    bias: Option<(ParamId, usize)>,
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
    fn new(cx: &Cx<'_>, k: &'k RowNorm) -> Shape<'k> {
        let RowNorm { x, gather: _, norm, gain, bias, residual: _, out } = *k;
        let ((cols, from), to) = (cx.rows(x), cx.kernel.rows(out).elem);
        let width = norm.map_or(cols, |n| n.width);
        let vector = |v: Option<ParamId>| v.map(|v| (v, cx.kernel.vector(v)));
        let (gain, bias) = (vector(gain), vector(bias));
        let lengths = [gain, bias].into_iter().flatten().map(|(_, len)| len);
        let step = piece::widest(4, [cols, width].into_iter().chain(lengths));
        let warp = WARP;
        let (threads, team) = if width == cols {
            let all = (cols / step).next_power_of_two().clamp(warp, MAX_THREADS);
            (all, all)
        } else {
            ((cols / width).next_power_of_two().min(MAX_THREADS / warp) * warp, warp)
        };
        let stored = (!to.is_quantized()).then(|| piece::storage(to));
        let from = (from, piece::storage(from));
        Shape { k, norm, cols, from, to: stored, out: to, gain, bias, width, step, threads, team }
    }

    /// Warps that share a sum.
    fn warps(&self) -> usize {
        self.team / WARP
    }

    /// Words of shared memory that a warp may need.
    fn stages(&self) -> usize {
        if self.norm.is_some_and(|norm| norm.center) { 3 } else { 2 }
    }

    /// Pieces of a run.
    fn pieces(&self) -> usize {
        self.width / self.step
    }
}

fn rows(s: &Shape<'_>, b: &mut Builder, args: Args<'_>, row: V) {
    let source = if s.k.gather { args.array_at(b, offset_of!(GpuCtx, out_rows), row) } else { row };
    let x = row_at(b, args.operand(s.k.x), s.cols, s.from.0, source);
    let y = row_at(b, args.operand(s.k.out), s.cols, s.out, row);
    let operand = |v: Option<(ParamId, usize)>| v.map(|(v, len)| (args.operand(v), len));
    let (gain, bias) = (operand(s.gain), operand(s.bias));
    let residual = s.k.residual.map(|r| row_at(b, args.operand(r), s.cols, RowElem::F32, row));
    let tid = b.sreg("tid.x");
    if s.width == s.cols {
        let first = b.i32(0);
        return Run { s, x, y, gain, bias, residual, first, lane: tid }.emit(b);
    }
    let (warp, lane) = b.warp_and_lane(tid);
    let (runs, warps) = (b.i32((s.cols / s.width) as i64), (s.threads / WARP) as i64);
    b.for_range(warp, runs, warps, |b, i| {
        let first = b.mulc(i, s.width as i64);
        Run { s, x, y, gain, bias, residual, first, lane }.emit(b);
    });
}

/// The mean that is subtracted, if any, and the factor of the rest.
type Factor = Option<(Option<V>, V)>;

/// One run of columns and the team that works on it.
struct Run<'a> {
    s: &'a Shape<'a>,
    x: V,
    y: V,
    gain: Option<(V, usize)>,
    bias: Option<(V, usize)>,
    /// The row that the result is added to.
    residual: Option<V>,
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
        let numbers: Vec<(V, bool)> = (0..pieces.div_ceil(team))
            .map(|p| (b.addc(self.lane, (p * team) as i64), (p + 1) * team > pieces))
            .collect();
        let held: Vec<Vec<V>> = numbers.iter().map(|(i, partial)| self.load(b, *i, *partial)).collect();
        let factor = self.s.norm.map(|Norm { eps, width: _, center }| {
            let zero = b.f32(0.0);
            let mean = center.then(|| {
                let sum = held.iter().flatten().fold(zero, |sum, x| b.fadd(sum, *x));
                self.mean(b, sum)
            });
            let mut sum = zero;
            for ((i, partial), values) in numbers.iter().zip(&held) {
                let values = self.centered(b, *i, *partial, values, mean);
                sum = values.iter().fold(sum, |sum, x| b.fma(*x, *x, sum));
            }
            (mean, self.factor(b, sum, eps.get()))
        });
        if self.s.to.is_none() {
            let mut most = b.f32(0.0);
            let mut scaled = vec![];
            for ((i, partial), values) in numbers.iter().zip(&held) {
                let values = self.scaled(b, *i, *partial, values, factor);
                most = magnitude(b, most, &values);
                scaled.push(values);
            }
            let scale = self.scale(b, most);
            for ((i, partial), values) in numbers.iter().zip(&scaled) {
                self.guarded(b, *i, *partial, |b| self.store_codes(b, *i, values, scale));
            }
            return self.finish_codes(b, scale);
        }
        for ((i, partial), values) in numbers.iter().zip(&held) {
            self.guarded(b, *i, *partial, |b| self.store(b, *i, values, factor));
        }
    }

    /// Column after column, twice.
    fn streamed(&self, b: &mut Builder) {
        let (n, step) = (b.i32(self.s.pieces() as i64), b.i32(self.s.team as i64));
        let factor = self.s.norm.map(|Norm { eps, width: _, center }| {
            let zero = b.f32(0.0);
            let mean = center.then(|| {
                let sum = b.for_((self.lane, n, step), &[zero], |b, i, sum| {
                    let values = self.load(b, i, false);
                    vec![values.iter().fold(sum[0], |sum, x| b.fadd(sum, *x))]
                });
                self.mean(b, sum[0])
            });
            let sum = b.for_((self.lane, n, step), &[zero], |b, i, sum| {
                let values = self.load(b, i, false);
                let values = self.centered(b, i, false, &values, mean);
                vec![values.iter().fold(sum[0], |sum, x| b.fma(*x, *x, sum))]
            });
            (mean, self.factor(b, sum[0], eps.get()))
        });
        if self.s.to.is_none() {
            let zero = b.f32(0.0);
            let most = b.for_((self.lane, n, step), &[zero], |b, i, most| {
                let values = self.load(b, i, false);
                let values = self.scaled(b, i, false, &values, factor);
                vec![magnitude(b, most[0], &values)]
            });
            let scale = self.scale(b, most[0]);
            b.for_((self.lane, n, step), &[], |b, i, _| {
                let values = self.load(b, i, false);
                let values = self.scaled(b, i, false, &values, factor);
                self.store_codes(b, i, &values, scale);
                vec![]
            });
            return self.finish_codes(b, scale);
        }
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

    /// Piece `i` less the mean, if there is one; zeros beyond the run.
    fn centered(&self, b: &mut Builder, i: V, partial: bool, values: &[V], mean: Option<V>) -> Vec<V> {
        let Some(mean) = mean else { return values.to_vec() };
        let values: Vec<V> = values.iter().map(|x| b.fsub(*x, mean)).collect();
        if !partial {
            return values;
        }
        let (inside, zero) = (b.cmpc(Cmp::Slt, i, self.s.pieces() as i64), b.f32(0.0));
        values.into_iter().map(|x| b.select(inside, x, zero)).collect()
    }

    /// The mean of the team's sums, in every thread.
    fn mean(&self, b: &mut Builder, sum: V) -> V {
        let mut sum = b.reduce(sum, &[16, 8, 4, 2, 1], |b, x, y| b.fadd(x, y));
        let warps = self.s.warps();
        if warps > 1 {
            sum = across_warps(b, sum, warps, 2 * warps, |b, x, y| b.fadd(x, y));
        }
        let scale = b.f32(1.0 / self.s.width as f32);
        b.fmul(sum, scale)
    }

    /// `1 / √(mean + eps)` of the team's sums of squares, in every thread.
    fn factor(&self, b: &mut Builder, sum: V, eps: f32) -> V {
        let mut sum = b.reduce(sum, &[16, 8, 4, 2, 1], |b, x, y| b.fadd(x, y));
        let warps = self.s.warps();
        if warps > 1 {
            sum = across_warps(b, sum, warps, 0, |b, x, y| b.fadd(x, y));
        }
        let (scale, eps) = (b.f32(1.0 / self.s.width as f32), b.f32(eps));
        let mean = b.fma(sum, scale, eps);
        b.rsqrt(mean)
    }

    /// Scaled values of a piece that may not exist.
    fn scaled(&self, b: &mut Builder, i: V, partial: bool, values: &[V], factor: Factor) -> Vec<V> {
        let alike = self.gain.is_none() && self.bias.is_none() && self.residual.is_none();
        if !partial || (alike && factor.is_none_or(|(mean, _)| mean.is_none())) {
            return self.apply(b, i, values, factor);
        }
        let inside = b.cmpc(Cmp::Slt, i, self.s.pieces() as i64);
        b.if_else(inside, &vec![F32; self.s.step], |b| self.apply(b, i, values, factor), |_| values.to_vec())
    }

    /// `residual + (norm(values)·gain + bias)`.
    fn apply(&self, b: &mut Builder, i: V, values: &[V], factor: Factor) -> Vec<V> {
        let col = self.column(b, i);
        let mut values = values.to_vec();
        if let Some((mean, factor)) = factor {
            values = self.centered(b, i, false, &values, mean);
            values.iter_mut().for_each(|x| *x = b.fmul(*x, factor));
        }
        let part = |b: &mut Builder, (at, len): (V, usize)| {
            let j = if len >= self.s.cols { col } else { b.remc(col, len as i64) };
            let p = col_at(b, at, Elem::F32, j);
            piece::load(b, p, Elem::F32, self.s.step)
        };
        if let Some(gain) = self.gain {
            let gain = part(b, gain);
            values.iter_mut().zip(gain).for_each(|(x, g)| *x = b.fmul(*x, g));
        }
        if let Some(bias) = self.bias {
            let bias = part(b, bias);
            values.iter_mut().zip(bias).for_each(|(x, c)| *x = b.fadd(*x, c));
        }
        if let Some(residual) = self.residual {
            let residual = part(b, (residual, self.s.cols));
            values.iter_mut().zip(residual).for_each(|(x, r)| *x = b.fadd(r, *x));
        }
        values
    }

    fn store(&self, b: &mut Builder, i: V, values: &[V], factor: Factor) {
        let values = self.apply(b, i, values, factor);
        let col = self.column(b, i);
        let storage = self.s.to.unwrap_or(Elem::F32);
        let p = col_at(b, self.y, storage, col);
        piece::store(b, &values, p, storage);
    }

    /// The team's largest magnitude, in every thread: `(factor of values, factor of codes)`.
    fn scale(&self, b: &mut Builder, most: V) -> (V, V) {
        let warps = self.s.warps();
        let mut most = b.reduce(most, &[16, 8, 4, 2, 1], |b, x, y| b.fmax(x, y));
        if warps > 1 {
            most = across_warps(b, most, warps, warps, |b, x, y| b.fmax(x, y));
        }
        let largest = b.f32(E4M3_MAX);
        let inverse = b.fdiv(largest, most);
        let huge = b.f32(f32::MAX);
        let finite = b.op(crate::mlir::I1, format!("arith.cmpf ole, {inverse}, {huge} : f32"));
        let zero = b.f32(0.0);
        (b.select(finite, inverse, zero), b.fdiv(most, largest))
    }

    /// Stores a piece as e4m3 codes, in the order of fp8 rows.
    fn store_codes(&self, b: &mut Builder, i: V, values: &[V], (inverse, _): (V, V)) {
        let col = self.column(b, i);
        let codes: Vec<V> = values
            .chunks(2)
            .map(|pair| {
                let pair: Vec<V> = pair.iter().map(|x| b.fmul(*x, inverse)).collect();
                b.e4m3(pair[0], *pair.last().unwrap_or(&pair[0]))
            })
            .collect();
        let p = self.code_at(b, col);
        match (values.len(), &codes[..]) {
            (4, [low, high]) => {
                let (low, high) = (b.zext(*low, I32), b.zext(*high, I32));
                let high = b.shlc(high, 16);
                let word = b.or(low, high);
                b.store(word, p);
            }
            (2, [pair]) => b.store(*pair, p),
            (_, codes) => {
                let code = b.trunc(codes[0], I8);
                b.store(code, p);
            }
        }
    }

    /// Address of the code of column `col`, as [`fp8_place`](llmcc_abi::layout::fp8_place) has it:
    /// column 64u + 16t + 8p + 4h + j is byte 64u + 32p + 16h + 4t + j.
    fn code_at(&self, b: &mut Builder, col: V) -> V {
        let (unit, t) = (b.andc(col, !63), b.shrc(col, 2));
        let (t, part, j) = (b.andc(t, 12), b.andc(col, 12), b.andc(col, 3));
        let part = b.shlc(part, 2);
        let place = b.or(unit, t);
        let place = b.or(place, part);
        let place = b.or(place, j);
        b.at(self.y, place)
    }

    /// Zeros beyond the last column, and the scale.
    fn finish_codes(&self, b: &mut Builder, (_, scale): (V, V)) {
        let at = fp8_row(self.s.cols).scale;
        let missing = at - self.s.cols;
        if missing > 0 {
            let (n, step) = (b.i32(missing as i64), b.i32(self.s.team as i64));
            b.for_((self.lane, n, step), &[], |b, i, _| {
                let col = b.addc(i, self.s.cols as i64);
                let p = self.code_at(b, col);
                let zero = b.i32(0);
                let zero = b.trunc(zero, I8);
                b.store(zero, p);
                vec![]
            });
        }
        let first = b.cmpc(Cmp::Eq, self.lane, 0);
        b.if_(first, |b| {
            let p = b.atc(self.y, at as i64);
            b.store(scale, p);
        });
    }
}

/// The largest of a magnitude and some values' magnitudes.
fn magnitude(b: &mut Builder, most: V, values: &[V]) -> V {
    values.iter().fold(most, |most, x| {
        let x = b.op(F32, format!("math.absf {x} : f32"));
        b.fmax(most, x)
    })
}

/// Joins a value of each of `warps` (a power of two) warps, the same in all lanes of each; uses
/// `4·warps` bytes of shared memory from word `from` on.
fn across_warps(b: &mut Builder, sum: V, warps: usize, from: usize, join: impl Fn(&mut Builder, V, V) -> V) -> V {
    let tid = b.sreg("tid.x");
    let (warp, lane) = b.warp_and_lane(tid);
    let shared = b.shared();
    let shared = b.atc(shared, 4 * from as i64);
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
    b.reduce(sum, &masks, join)
}
