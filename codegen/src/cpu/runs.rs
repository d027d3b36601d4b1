//! Transformations of whole runs of columns, in place: normalization and rotation.

use super::emit::{Emit, F32, F64, LANES};
use cranelift_codegen::ir::{InstBuilder, Value};
use llmcc_ir::kernel::Norm;

/// Divides a run by its root mean square, of the run less its mean if that is asked for.
pub(super) fn normalize(e: &mut Emit, run: Value, norm: &Norm) {
    let Norm { eps, width, center } = *norm;
    if center {
        let sum = sum(e, run, width, |_, v| v);
        let columns = e.float(width as f32);
        let mean = e.fdiv(sum, columns);
        let mean = e.splat(mean);
        each(e, run, width, |e, v| e.fsub(v, mean));
    }
    let sum = sum(e, run, width, |e, v| e.fmul(v, v));
    // All columns get the error of the factor: in f64 it is rounded once, not four times.
    let sum = e.b.ins().fpromote(F64, sum);
    let [columns, eps, one] = [width as f64, eps.get().into(), 1.0].map(|x| e.b.ins().f64const(x));
    let mean = e.fdiv(sum, columns);
    let mean = e.fadd(mean, eps);
    let root = e.b.ins().sqrt(mean);
    let factor = e.fdiv(one, root);
    let factor = e.b.ins().fdemote(F32, factor);
    let factor = e.splat(factor);
    each(e, run, width, |e, v| e.fmul(v, factor));
}

/// The sum of `of` over a run, kept in 16 partial sums (column mod 16), which are added in a fixed
/// order.
fn sum(e: &mut Emit, run: Value, width: usize, of: impl Fn(&mut Emit, Value) -> Value) -> Value {
    let zero = e.floats(0.0);
    let sums = joined(e, run, width, zero, of, |e, a, b| e.fadd(a, b));
    e.sum_lanes(sums)
}

/// Reduces `of` by `join` over a run, from `start` on: one result per lane, four vectors in a fixed
/// order.
pub(super) fn joined(
    e: &mut Emit,
    run: Value,
    width: usize,
    start: Value,
    of: impl Fn(&mut Emit, Value) -> Value,
    join: impl Fn(&mut Emit, Value, Value) -> Value,
) -> Value {
    const ACCUMULATORS: usize = 4;
    let block = ACCUMULATORS * LANES;
    let blocks = width / block * block;
    let more = |e: &mut Emit, p: Value, offset: usize, lanes: usize, acc: Value| {
        let v = e.load_lanes(p, offset, lanes);
        let v = of(e, v);
        join(e, acc, v)
    };
    let mut acc = e.fixed(blocks * 4, block * 4, &[start; ACCUMULATORS], |e, at, acc| {
        let p = e.add(run, at);
        acc.iter().enumerate().map(|(i, a)| more(e, p, i * 16, LANES, *a)).collect()
    });
    for (i, col) in (blocks..width).step_by(LANES).enumerate() {
        acc[i] = more(e, run, col * 4, LANES.min(width - col), acc[i]);
    }
    let (a, b) = (join(e, acc[0], acc[1]), join(e, acc[2], acc[3]));
    join(e, a, b)
}

/// Replaces each number of a run by a function of it.
fn each(e: &mut Emit, run: Value, width: usize, of: impl Fn(&mut Emit, Value) -> Value) {
    let change = |e: &mut Emit, p: Value, lanes: usize| {
        let v = e.load_lanes(p, 0, lanes);
        let v = of(e, v);
        e.store_lanes(v, p, 0, lanes);
    };
    let whole = width / LANES * LANES;
    e.each_fixed(whole * 4, 16, |e, at| {
        let p = e.add(run, at);
        change(e, p, LANES);
    });
    if whole < width {
        let p = e.offset(run, whole * 4);
        change(e, p, width - whole);
    }
}

/// Rotates the first `dim` columns of a head; `table` has `dim/2` cosines, then `dim/2` sines.
pub(super) fn rotate(e: &mut Emit, head: Value, table: Value, dim: usize) {
    let half = dim / 2;
    let pairs = |e: &mut Emit, x: Value, t: Value, lanes: usize| {
        let (a, b) = (e.load_lanes(x, 0, lanes), e.load_lanes(x, half * 4, lanes));
        let (cos, sin) = (e.load_lanes(t, 0, lanes), e.load_lanes(t, half * 4, lanes));
        let (ac, bs) = (e.fmul(a, cos), e.fmul(b, sin));
        let (bc, as_) = (e.fmul(b, cos), e.fmul(a, sin));
        let (first, second) = (e.fsub(ac, bs), e.fadd(bc, as_));
        e.store_lanes(first, x, 0, lanes);
        e.store_lanes(second, x, half * 4, lanes);
    };
    let whole = half / LANES * LANES;
    e.each_fixed(whole * 4, 16, |e, at| {
        let (x, t) = (e.add(head, at), e.add(table, at));
        pairs(e, x, t, LANES);
    });
    if whole < half {
        let (x, t) = (e.offset(head, whole * 4), e.offset(table, whole * 4));
        pairs(e, x, t, half - whole);
    }
}
