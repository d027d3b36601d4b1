//! The prologue for a single row: everything that a thread has of it stays in registers.
//!
//! A step of one token waits for nothing but latency here: all loads of the row start at once, gains
//! and biases have been loaded before the kernels before ended, and one barrier lies between the sums
//! of warps and the factor. Sums have the order of the general prologue ([`input`]), so the row has the
//! same bits.

use super::Plan;
use super::input::{self, Factors, Staged, Vector};
use crate::cx::Args;
use crate::mlir::{Builder, Cmp, Elem, V, WARP};
use llmcc_ir::kernel::Norm;

/// Most pieces of a row that a thread holds.
const PIECES: usize = 8;

/// A thread's pieces of the row, with their gains and biases.
pub struct Ahead {
    norm: Norm,
    stored: Elem,
    wide: usize,
    pieces: Vec<OwnPiece>,
}

struct OwnPiece {
    /// First column; that of the row's last piece, where this one lies beyond.
    col: V,
    /// Whether it lies in the row.
    inside: V,
    gain: Option<Vec<V>>,
    bias: Option<Vec<V>>,
}

/// Loads gains and biases, before the wait for kernels before; `None` where the prologue is none for
/// a row in registers: normalized in one run, and short.
pub fn ahead(b: &mut Builder, plan: &Plan<'_>, args: Args<'_>) -> Option<Ahead> {
    let how = input::how(plan, args);
    let threads = plan.schedule.warps * WARP;
    let pieces = plan.k / how.wide;
    let norm = how.norm.filter(|norm| norm.width == plan.k)?;
    if !plan.schedule.direct || pieces > PIECES * threads {
        return None;
    }
    let tid = b.sreg("tid.x");
    let of = |b: &mut Builder, i: usize| {
        let number = b.addc(tid, (i * threads) as i64);
        let inside = b.cmpc(Cmp::Slt, number, pieces as i64);
        let last = b.i32(pieces as i64 - 1);
        let number = b.min(number, last);
        let col = b.mulc(number, how.wide as i64);
        let mut part = |v: Option<Vector>| v.map(|v| input::part(b, plan, v, col, how.wide));
        let (gain, bias) = (part(how.gain), part(how.bias));
        OwnPiece { col, inside, gain, bias }
    };
    let pieces = (0..pieces.div_ceil(threads)).map(|i| of(b, i)).collect();
    Some(Ahead { norm, stored: how.stored, wide: how.wide, pieces })
}

/// Stages row `row` of the step, normalized. Ends with a barrier.
pub fn compute(b: &mut Builder, plan: &Plan<'_>, args: Args<'_>, to: Staged, row: V, factors: V, ahead: &Ahead) {
    let norm = ahead.norm;
    let base = input::row(b, plan, args, row);
    let mut x: Vec<Vec<V>> =
        ahead.pieces.iter().map(|p| input::load(b, base, p.col, ahead.stored, ahead.wide, Builder::load)).collect();
    let shared = Factors { at: factors, rows: plan.schedule.rows, runs: 1, center: norm.center };
    let (scale, eps) = (1.0 / norm.width as f32, norm.eps.get());
    if norm.center {
        let mean = total(b, plan, &shared, (ahead, &x), |b, x, sum| b.fadd(sum, x));
        let (scale, zero) = (b.f32(scale), b.f32(0.0));
        let mean = b.fma(mean, scale, zero);
        x.iter_mut().flatten().for_each(|v| *v = b.fsub(*v, mean));
        // The words for the sums of warps are used again.
        b.barrier();
    }
    let sum = total(b, plan, &shared, (ahead, &x), |b, x, sum| b.fma(x, x, sum));
    let (scale, eps) = (b.f32(scale), b.f32(eps));
    let mean = b.fma(sum, scale, eps);
    let factor = b.rsqrt(mean);
    for (p, x) in ahead.pieces.iter().zip(&mut x) {
        x.iter_mut().for_each(|v| *v = b.fmul(*v, factor));
        if let Some(gain) = &p.gain {
            x.iter_mut().zip(gain).for_each(|(v, g)| *v = b.fmul(*v, *g));
        }
        if let Some(bias) = &p.bias {
            x.iter_mut().zip(bias).for_each(|(v, c)| *v = b.fadd(*v, *c));
        }
        b.if_(p.inside, |b| input::store(b, to.base, p.col, x, plan));
    }
    let one = b.i32(1);
    input::zeros(b, plan, to, one);
    b.barrier();
}

/// The sum over the row of the values that `add` adds, in every thread.
fn total(
    b: &mut Builder,
    plan: &Plan<'_>,
    shared: &Factors,
    (ahead, x): (&Ahead, &[Vec<V>]),
    add: impl Fn(&mut Builder, V, V) -> V,
) -> V {
    let mut sum = b.f32(0.0);
    for (p, x) in ahead.pieces.iter().zip(x) {
        let more = x.iter().fold(sum, |acc, v| add(b, *v, acc));
        sum = b.select(p.inside, more, sum);
    }
    let sum = b.reduce(sum, &[16, 8, 4, 2, 1], |b, x, y| b.fadd(x, y));
    let tid = b.sreg("tid.x");
    let (warp, lane) = b.warp_and_lane(tid);
    let leader = b.cmpc(Cmp::Eq, lane, 0);
    b.if_(leader, |b| {
        let p = shared.sum_at(b, warp, 0);
        b.store(sum, p);
    });
    b.barrier();
    let zero = b.i32(0);
    shared.sum_of_warps(b, zero, plan.schedule.warps)
}
