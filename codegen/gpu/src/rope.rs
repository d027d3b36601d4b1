//! RoPE tables: cosines and sines of `f32(position · frequency)`.
//!
//! In f64, rounded once: the angle is reduced by multiples of π/2 given to 106 bits, and Taylor
//! polynomials on ±π/4 end below 2⁻⁴⁸. A table has few elements, so that the slow f64 units of
//! small GPUs do not matter.

use crate::cx::{Args, Cx, share_out, when_below};
use crate::mlir::{Builder, Cmp, Elem, F32, F64, I32, I64, V, WARP};
use crate::piece::{col_at, row_at};
use crate::{Source, blocks, per_rows};
use llmcc_abi::{AXES, GpuCtx};
use llmcc_ir::kernel::RopeTable;
use std::mem::offset_of;

/// Emits the kernel.
pub fn emit(cx: &Cx<'_>, k: &RopeTable) -> Source {
    let RopeTable { inv_freq, scale, border, most, axes, out } = *k;
    let (cols, elem) = cx.rows(out);
    let half = cols / 2;
    let threads = half.next_multiple_of(WARP).min(256) as u32;
    let (mlir, program) = cx.function(threads, 1, |b, args| {
        let m = cx.row_count(b, args);
        let row = b.sreg("ctaid.x");
        when_below(b, row, m, |b| {
            let line = row_at(b, args.operand(out), cols, elem, row);
            let mut position = if axes { along_axes(b, &args, row) } else { vec![args.position(b, row)] };
            if let Some(most) = most {
                let most = b.i32(most.min(i32::MAX as usize) as i64);
                position = vec![b.min(position[0], most)];
            }
            let set = set_at(b, args.operand(inv_freq), half, (position[0], border));
            let position: Vec<V> = position.into_iter().map(|p| b.sitofp(p, F32)).collect();
            let n = b.i32(half as i64);
            share_out(b, n, threads, |b, j| {
                let p = col_at(b, set, Elem::F32, j);
                let angle = angle(b, &position, half, p);
                let angle = b.fext(angle, F64);
                let (cos, sin) = cos_sin(b, angle);
                let scale = b.f64(f64::from(scale.get()));
                let p = col_at(b, line, Elem::F32, j);
                for (value, at) in [(cos, 0), (sin, half * 4)] {
                    let value = b.fmul(value, scale);
                    let value = b.ftrunc(value, F32);
                    let p = b.atc(p, at as i64);
                    b.store(value, p);
                }
            });
        });
    });
    Source::new(cx.entry(), (mlir, program), threads, [per_rows(1), blocks(1), blocks(1)])
}

/// The positions of token `row` along the axes.
fn along_axes(b: &mut Builder, args: &Args, row: V) -> Vec<V> {
    let first = b.mulc(row, AXES as i64);
    let load = |axis: usize| {
        let at = b.addc(first, axis as i64);
        args.array_at(b, offset_of!(GpuCtx, arrays.axes), at)
    };
    (0..AXES).map(load).collect()
}

/// The sum of the angles along the axes; `p` is the address of the first axis's frequency, and the next axis's lies `half`
/// floats on.
fn angle(b: &mut Builder, positions: &[V], half: usize, p: V) -> V {
    let turn = |b: &mut Builder, axis: usize, position: V| {
        let p = b.atc(p, (axis * half * 4) as i64);
        let frequency = b.load_const(p, F32);
        b.fmul(position, frequency)
    };
    let first = turn(b, 0, positions[0]);
    positions.iter().enumerate().skip(1).fold(first, |sum, (axis, position)| {
        let own = turn(b, axis, *position);
        b.fadd(sum, own)
    })
}

/// Address of the frequencies of a position.
fn set_at(b: &mut Builder, sets: V, half: usize, (position, border): (V, Option<usize>)) -> V {
    let Some(border) = border else { return sets };
    let after = b.cmpc(Cmp::Sge, position, border.min(i32::MAX as usize) as i64);
    let (none, skip) = (b.i32(0), b.i32(half as i64 * 4));
    let offset = b.select(after, skip, none);
    b.at(sets, offset)
}

/// π/2 in two parts.
const HALF_PI: [f64; 2] = [std::f64::consts::FRAC_PI_2, 6.123_233_995_736_766e-17];
/// 1.5·2⁵²: adding it rounds to an integer, which is then in the low bits.
const ROUND: f64 = 6_755_399_441_055_744.0;
/// Coefficients of `sin x = x + x³·p(x²)`, highest first.
const SIN: [f64; 6] =
    [1.0 / 6_227_020_800.0, -1.0 / 39_916_800.0, 1.0 / 362_880.0, -1.0 / 5040.0, 1.0 / 120.0, -1.0 / 6.0];
/// Coefficients of `cos x = 1 + x²·p(x²)`, highest first.
const COS: [f64; 7] =
    [-1.0 / 87_178_291_200.0, 1.0 / 479_001_600.0, -1.0 / 3_628_800.0, 1.0 / 40_320.0, -1.0 / 720.0, 1.0 / 24.0, -0.5];

/// Cosine and sine of an f64 of at most 2³⁰.
fn cos_sin(b: &mut Builder, x: V) -> (V, V) {
    let (inverse, round) = (b.f64(std::f64::consts::FRAC_2_PI), b.f64(ROUND));
    let turned = b.fma(x, inverse, round);
    let bits = b.bitcast(turned, I64);
    let quadrant = b.trunc(bits, I32);
    let turns = b.fsub(turned, round);
    let turns = b.fneg(turns);
    let (high, low) = (b.f64(HALF_PI[0]), b.f64(HALF_PI[1]));
    let r = b.fma(turns, high, x);
    let r = b.fma(turns, low, r);
    let sq = b.fmul(r, r);
    let (s, c) = (polynomial(b, &SIN, sq), polynomial(b, &COS, sq));
    let cubed = b.fmul(r, sq);
    let sin = b.fma(cubed, s, r);
    let one = b.f64(1.0);
    let cos = b.fma(sq, c, one);
    // A quarter turn: (cos, sin) becomes (−sin, cos).
    let odd = b.andc(quadrant, 1);
    let odd = b.cmpc(Cmp::Ne, odd, 0);
    let (mut a, mut d) = (b.select(odd, sin, cos), b.select(odd, cos, sin));
    let next = b.addc(quadrant, 1);
    for (value, q) in [(&mut a, next), (&mut d, quadrant)] {
        let half_turn = b.andc(q, 2);
        let negative = b.cmpc(Cmp::Ne, half_turn, 0);
        let minus = b.fneg(*value);
        *value = b.select(negative, minus, *value);
    }
    (a, d)
}

fn polynomial(b: &mut Builder, coefficients: &[f64], x: V) -> V {
    let first = b.f64(coefficients[0]);
    coefficients[1..].iter().fold(first, |sum, c| {
        let c = b.f64(*c);
        b.fma(sum, x, c)
    })
}
