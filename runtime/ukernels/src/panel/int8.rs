//! Quantized weights × int8 rows: per group one exact integer dot product, then one f32 fused multiply-add (two for asymmetric weights).

use core::marker::PhantomData;

use llmcc_abi::layout::{Elem, K_PAD};

use super::{Kernel, Tile};
use crate::isa::{Isa, Shape};

/// Integer dot products of one quantized format.
pub(crate) trait Format<I: Isa> {
    /// Weight format.
    const ELEM: Elem;
    /// Bytes of the codes of [`K_PAD`] columns of a block.
    const SLICE_BYTES: usize;
    /// What was added to each code to store it, as far as [`Format::slice`] does not undo it.
    const ZERO: i32;
    /// Adds the dot products of [`K_PAD`] columns. `w`: codes of each vector; `a`: the first row.
    unsafe fn slice<const MR: usize, const NV: usize>(t: &Tile, acc: &mut [[I::Dot; NV]; MR], w: &[*const u8; NV], a: *const u8);
}

/// 8 bits, symmetric.
pub(crate) struct W8;

impl<I: Isa> Format<I> for W8 {
    const ELEM: Elem = Elem::W8;
    const SLICE_BYTES: usize = K_PAD * 16;
    const ZERO: i32 = if I::W8_UNSIGNED { 128 } else { 0 };

    #[inline(always)]
    unsafe fn slice<const MR: usize, const NV: usize>(t: &Tile, acc: &mut [[I::Dot; NV]; MR], w: &[*const u8; NV], a: *const u8) {
        unsafe {
            let mut x = [I::prepare_dot8(I::zero_words()); NV];
            for chunk in 0..K_PAD / 4 {
                for v in 0..NV {
                    t.prefetch::<I>(v, w[v].add(chunk * 64));
                    x[v] = I::prepare_dot8(I::load_words(w[v].add(chunk * 64)));
                }
                for m in 0..MR {
                    let z = I::splat_word(a.add(m * t.a_stride + chunk * 4));
                    for v in 0..NV {
                        acc[m][v] = I::dot8(acc[m][v], x[v], z);
                    }
                }
            }
        }
    }
}

/// The dot products of a slice of 4-bit codes.
#[inline(always)]
unsafe fn slice4<I: Isa, const MR: usize, const NV: usize>(t: &Tile, acc: &mut [[I::Dot; NV]; MR], w: &[*const u8; NV], a: *const u8) {
    unsafe {
        let mut low = [I::zero_words(); NV];
        let mut high = low;
        for chunk in 0..K_PAD / 8 {
            for v in 0..NV {
                t.prefetch::<I>(v, w[v].add(chunk * 64));
                let x = I::load_words(w[v].add(chunk * 64));
                low[v] = I::low_nibbles(x);
                high[v] = I::high_nibbles(x);
            }
            for m in 0..MR {
                let z = I::splat_word(a.add(m * t.a_stride + chunk * 8));
                for v in 0..NV {
                    acc[m][v] = I::dot4(acc[m][v], low[v], z);
                }
            }
            for m in 0..MR {
                let z = I::splat_word(a.add(m * t.a_stride + chunk * 8 + 4));
                for v in 0..NV {
                    acc[m][v] = I::dot4(acc[m][v], high[v], z);
                }
            }
        }
        for m in 0..MR {
            for v in 0..NV {
                acc[m][v] = I::settle(acc[m][v]);
            }
        }
    }
}

/// 4 bits, symmetric.
pub(crate) struct W4;

impl<I: Isa> Format<I> for W4 {
    const ELEM: Elem = Elem::W4;
    const SLICE_BYTES: usize = K_PAD * 8;
    const ZERO: i32 = 8;

    #[inline(always)]
    unsafe fn slice<const MR: usize, const NV: usize>(t: &Tile, acc: &mut [[I::Dot; NV]; MR], w: &[*const u8; NV], a: *const u8) {
        unsafe { slice4::<I, MR, NV>(t, acc, w, a) }
    }
}

/// 4 bits, asymmetric.
pub(crate) struct W4a;

impl<I: Isa> Format<I> for W4a {
    const ELEM: Elem = Elem::W4a;
    const SLICE_BYTES: usize = K_PAD * 8;
    const ZERO: i32 = 0;

    #[inline(always)]
    unsafe fn slice<const MR: usize, const NV: usize>(t: &Tile, acc: &mut [[I::Dot; NV]; MR], w: &[*const u8; NV], a: *const u8) {
        unsafe { slice4::<I, MR, NV>(t, acc, w, a) }
    }
}

/// Starts the dot products of group `group`: what the zero point of the weights will add in excess is taken off in advance.
#[inline(always)]
unsafe fn start<I: Isa, T: Format<I>, const MR: usize, const NV: usize>(t: &Tile, group: usize) -> [[I::Dot; NV]; MR] {
    unsafe {
        let mut dot = [[I::dot(0); NV]; MR];
        if const { T::ZERO != 0 } {
            for m in 0..MR {
                let sum = t.a.add(m * t.a_stride + t.q8.sums + group * 4).cast::<i32>().read_unaligned();
                dot[m] = [I::dot(-T::ZERO * sum); NV];
            }
        }
        dot
    }
}

/// Scales the dot products of group `group` into `acc`.
#[inline(always)]
unsafe fn finish<I: Isa, T: Format<I>, const MR: usize, const NV: usize>(
    t: &Tile,
    group: usize,
    dot: &[[I::Dot; NV]; MR],
    acc: &mut [[I::F; NV]; MR],
) {
    unsafe {
        let scales = t.vectors::<I, NV>(group * 32, 2);
        let mins = t.vectors::<I, NV>(t.block.mins + group * 32, 2);
        let mut scale = [I::splat(0.0); NV];
        let mut min = scale;
        for v in 0..NV {
            t.prefetch::<I>(v, scales[v]);
            scale[v] = I::load_f16(scales[v]);
            if const { matches!(T::ELEM, Elem::W4a) } {
                min[v] = I::load_f16(mins[v]);
            }
        }
        for m in 0..MR {
            let a = t.a.add(m * t.a_stride + group * 4);
            let a_scale = I::splat(a.add(t.q8.scales).cast::<f32>().read_unaligned());
            for v in 0..NV {
                let product = I::to_f32(I::total(dot[m][v]));
                acc[m][v] = I::fma(product, I::mul(scale[v], a_scale), acc[m][v]);
            }
            if const { matches!(T::ELEM, Elem::W4a) } {
                let sum = I::splat(a.add(t.q8.sums).cast::<i32>().read_unaligned() as f32);
                for v in 0..NV {
                    acc[m][v] = I::fma(I::mul(min[v], a_scale), sum, acc[m][v]);
                }
            }
        }
    }
}

/// The panel of a format with int8 rows.
pub(crate) struct Int8<T>(PhantomData<T>);

impl<I: Isa, T: Format<I>> Kernel<I> for Int8<T> {
    const ELEM: Elem = T::ELEM;
    const SHAPE: Shape = I::INT8;

    #[inline(always)]
    unsafe fn tile<const MR: usize, const NV: usize>(t: &Tile) {
        unsafe {
            let mut w = t.vectors::<I, NV>(t.block.codes, 4);
            let mut acc = [[I::splat(0.0); NV]; MR];
            let (mut k, mut group) = (0, 0);
            while k < t.kp {
                let end = t.kp.min(k + t.group);
                let mut dot = start::<I, T, MR, NV>(t, group);
                while k < end {
                    T::slice::<MR, NV>(t, &mut dot, &w, t.a.add(k));
                    for v in 0..NV {
                        w[v] = w[v].add(T::SLICE_BYTES);
                    }
                    k += K_PAD;
                }
                finish::<I, T, MR, NV>(t, group, &dot, &mut acc);
                group += 1;
            }
            t.store::<I, MR, NV>(&acc);
        }
    }
}
