//! Unquantized weights × f32 or bf16 rows: one fused multiply-add per `k`.
//!
//! Products with f32 rows are summed in chains of [`CHAIN`] columns. Their sums wait while a chain
//! runs, on the stack where registers are few: of 12 × 2 vectors 24 additions, loads and stores beside
//! 768 multiply-adds.

use llmcc_abi::encoding::{Encoding, ScaleKind};
use llmcc_abi::layout::{BLOCK, CHAIN};

use super::int8::load;
use super::many::Widen;
use super::{Kernel, Tile};
use crate::isa::{Isa, Shape};

/// Multiplies `x`, the weights of one `k`, with element `k` of each activation row.
///
/// # Safety
/// `a` points to element `k` of the first row.
#[inline(always)]
pub(super) unsafe fn fma_row<I: Isa, const MR: usize, const NV: usize>(
    acc: &mut [[I::F; NV]; MR],
    x: &[I::F; NV],
    a: *const u8,
    a_stride: usize,
) {
    for m in 0..MR {
        unsafe {
            let z = I::splat(a.add(m * a_stride).cast::<f32>().read_unaligned());
            for v in 0..NV {
                acc[m][v] = I::fma(x[v], z, acc[m][v]);
            }
        }
    }
}

/// Adds the chains' results to the sums; the next begin at 0.
#[inline(always)]
pub(super) unsafe fn end_chains<I: Isa, const MR: usize, const NV: usize>(
    sums: &mut [[I::F; NV]; MR],
    acc: &mut [[I::F; NV]; MR],
) {
    for m in 0..MR {
        for v in 0..NV {
            unsafe {
                sums[m][v] = I::add(sums[m][v], acc[m][v]);
                acc[m][v] = I::splat(0.0);
            }
        }
    }
}

/// Adds the chains' results, times the `factors` of their vectors, to the sums; the next begin at 0.
#[inline(always)]
pub(super) unsafe fn end_scaled_chains<I: Isa, const MR: usize, const NV: usize>(
    sums: &mut [[I::F; NV]; MR],
    acc: &mut [[I::F; NV]; MR],
    factors: &[I::F; NV],
) {
    for m in 0..MR {
        for v in 0..NV {
            unsafe {
                sums[m][v] = I::fma(acc[m][v], factors[v], sums[m][v]);
                acc[m][v] = I::splat(0.0);
            }
        }
    }
}

/// A tile of floats of a kind whose blocks hold one column after the other.
#[inline(always)]
unsafe fn by_columns<I: Isa, const MR: usize, const NV: usize>(t: &Tile, kind: ScaleKind) {
    unsafe {
        let w = t.vectors::<I, NV>(0, kind.bytes());
        let mut x = [I::splat(0.0); NV];
        let mut acc = [x; MR];
        let mut sums = acc;
        for from in (0..t.k).step_by(CHAIN) {
            for k in from..t.k.min(from + CHAIN) {
                for v in 0..NV {
                    let p = w[v].add(k * BLOCK * kind.bytes());
                    t.prefetch::<I, MR, NV>(v, p);
                    x[v] = load::<I>(kind, p);
                }
                fma_row::<I, MR, NV>(&mut acc, &x, t.a.add(k * 4), t.a_stride);
            }
            end_chains::<I, MR, NV>(&mut sums, &mut acc);
        }
        t.store::<I, MR, NV>(&sums);
    }
}

/// f32 weights.
pub(crate) struct F32;

impl<I: Isa> Kernel<I> for F32 {
    const ENCODING: Encoding = Encoding::F32;
    const SHAPE: Shape = I::FLOAT;

    #[inline(always)]
    unsafe fn tile<const MR: usize, const NV: usize>(t: &Tile) {
        unsafe { by_columns::<I, MR, NV>(t, ScaleKind::F32) }
    }
}

impl<I: Isa> Widen<I> for F32 {
    #[inline(always)]
    unsafe fn widen(_: &Tile, _: *const u8, _: usize, _: usize, _: *mut f32) {}
}

/// f16 weights.
pub(crate) struct F16;

impl<I: Isa> Kernel<I> for F16 {
    const ENCODING: Encoding = Encoding::F16;
    const SHAPE: Shape = I::HALVES;

    #[inline(always)]
    unsafe fn tile<const MR: usize, const NV: usize>(t: &Tile) {
        unsafe { by_columns::<I, MR, NV>(t, ScaleKind::F16) }
    }
}

impl<I: Isa> Widen<I> for F16 {
    #[inline(always)]
    unsafe fn widen(_: &Tile, w: *const u8, from: usize, to: usize, out: *mut f32) {
        for vector in 0..(to - from) * BLOCK / I::LANES {
            unsafe { I::store(out.add(vector * I::LANES), I::load_f16(w.add(from * 32 + vector * I::LANES * 2))) }
        }
    }
}

/// bf16 weights.
pub(crate) struct Bf16;

impl<I: Isa> Kernel<I> for Bf16 {
    const ENCODING: Encoding = Encoding::BF16;
    const SHAPE: Shape = I::HALVES;

    #[inline(always)]
    unsafe fn tile<const MR: usize, const NV: usize>(t: &Tile) {
        unsafe {
            let w = t.vectors::<I, NV>(0, 4);
            let mut x = [I::splat(0.0); NV];
            let mut acc = [x; MR];
            let mut sums = acc;
            let mut pair = [I::zero_words(); NV];
            for from in (0..t.k).step_by(CHAIN) {
                let to = t.k.min(from + CHAIN);
                for k in from / 2..to / 2 {
                    let a = t.a.add(k * 8);
                    for v in 0..NV {
                        t.prefetch::<I, MR, NV>(v, w[v].add(k * 64));
                        pair[v] = I::load_words(w[v].add(k * 64));
                        x[v] = I::bf16_low(pair[v]);
                    }
                    fma_row::<I, MR, NV>(&mut acc, &x, a, t.a_stride);
                    for v in 0..NV {
                        x[v] = I::bf16_high(pair[v]);
                    }
                    fma_row::<I, MR, NV>(&mut acc, &x, a.add(4), t.a_stride);
                }
                if to % 2 == 1 {
                    for v in 0..NV {
                        x[v] = I::bf16_low(I::load_words(w[v].add(to / 2 * 64)));
                    }
                    fma_row::<I, MR, NV>(&mut acc, &x, t.a.add((to - 1) * 4), t.a_stride);
                }
                end_chains::<I, MR, NV>(&mut sums, &mut acc);
            }
            t.store::<I, MR, NV>(&sums);
        }
    }
}

impl<I: Isa> Widen<I> for Bf16 {
    #[inline(always)]
    unsafe fn widen(_: &Tile, w: *const u8, from: usize, to: usize, out: *mut f32) {
        for pair in 0..(to - from).div_ceil(2) {
            for lane in (0..BLOCK).step_by(I::LANES) {
                unsafe {
                    let x = I::load_words(w.add((from / 2 + pair) * 64 + lane * 4));
                    I::store(out.add(2 * pair * BLOCK + lane), I::bf16_low(x));
                    I::store(out.add((2 * pair + 1) * BLOCK + lane), I::bf16_high(x));
                }
            }
        }
    }
}

/// bf16 weights × bf16 rows.
pub(crate) struct Bf16Rows;

impl<I: Isa> Kernel<I> for Bf16Rows {
    const ENCODING: Encoding = Encoding::BF16;
    const SHAPE: Shape = I::BF16;

    #[inline(always)]
    unsafe fn tile<const MR: usize, const NV: usize>(t: &Tile) {
        unsafe {
            let w = t.vectors::<I, NV>(0, 4);
            let mut x = [I::zero_words(); NV];
            let mut acc = [[I::splat(0.0); NV]; MR];
            for pair in 0..t.k / 2 {
                for v in 0..NV {
                    t.prefetch::<I, MR, NV>(v, w[v].add(pair * 64));
                    x[v] = I::load_words(w[v].add(pair * 64));
                }
                for m in 0..MR {
                    let a = I::splat_word(t.a.add(m * t.a_stride + pair * 4));
                    for v in 0..NV {
                        acc[m][v] = I::dot_bf16(acc[m][v], x[v], a);
                    }
                }
            }
            if t.k % 2 == 1 {
                for v in 0..NV {
                    x[v] = I::load_words(w[v].add(t.k / 2 * 64));
                }
                for m in 0..MR {
                    // The row ends here: its last element pairs with zero, as the weight's does.
                    let a = I::splat_bits(u32::from(
                        t.a.add(m * t.a_stride + (t.k - 1) * 2).cast::<u16>().read_unaligned(),
                    ));
                    for v in 0..NV {
                        acc[m][v] = I::dot_bf16(acc[m][v], x[v], a);
                    }
                }
            }
            t.store::<I, MR, NV>(&acc);
        }
    }
}
