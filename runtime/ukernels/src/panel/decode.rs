//! Quantized weights × f32 rows: weights are decoded in registers (for many rows, to memory:
//! [`super::many`]), then one fused multiply-add per `k`, in the same chains as for floats.

use core::marker::PhantomData;

use llmcc_abi::encoding::{E2M1, Encoding, FP4_VALUES, NORMAL_FLOAT};
use llmcc_abi::layout::{BLOCK, CHAIN};

use super::float::{end_chains, fma_row};
use super::int8::{kind, load};
use super::many::Widen;
use super::{Kernel, Place, Tile};
use crate::isa::{Isa, Shape};

/// Decoding of one quantized format.
///
/// The product of a scale (f16: 11 significant bits) and a code (at most 8 bits) is exact in f32,
/// so the order of operations leaves no trace; an asymmetric value is rounded once, when the
/// minimum is added, and one of a table of floats when it is scaled. Scales with scales above them
/// have none beside a minimum.
pub(crate) trait Format<I: Isa> {
    /// Encoding of the weights; their group may be any.
    const ENCODING: Encoding;
    /// Columns in 64 bytes of codes: 4 or 8.
    const CHUNK: usize;
    /// Codes of a chunk, made ready for [`Format::value`].
    unsafe fn prepare(x: I::I) -> I::I;
    /// Decoded weights of column `j` of a chunk.
    unsafe fn value(x: I::I, j: usize, scale: I::F, min: I::F) -> I::F;
}

/// Bit at which column `j` of a chunk of 8 lies: low nibbles of the four bytes first, then the high
/// ones.
#[inline(always)]
fn nibble_shift(j: usize) -> i32 {
    (j % 4 * 8 + j / 4 * 4) as i32
}

/// 8 bits, symmetric.
pub(crate) struct W8;

impl<I: Isa> Format<I> for W8 {
    const ENCODING: Encoding = Encoding::W8;
    const CHUNK: usize = 4;

    #[inline(always)]
    unsafe fn prepare(x: I::I) -> I::I {
        unsafe { I::prepare_bytes(x) }
    }
    #[inline(always)]
    unsafe fn value(x: I::I, j: usize, scale: I::F, _min: I::F) -> I::F {
        unsafe { I::mul(I::byte_value(x, j as i32 * 8), scale) }
    }
}

/// 4 bits, symmetric.
pub(crate) struct W4;

impl<I: Isa> Format<I> for W4 {
    const ENCODING: Encoding = Encoding::W4;
    const CHUNK: usize = 8;

    #[inline(always)]
    unsafe fn prepare(x: I::I) -> I::I {
        unsafe { I::prepare_nibbles(x) }
    }
    #[inline(always)]
    unsafe fn value(x: I::I, j: usize, scale: I::F, _min: I::F) -> I::F {
        unsafe { I::mul(I::nibble_value(x, nibble_shift(j)), scale) }
    }
}

/// 4 bits, asymmetric.
pub(crate) struct W4a;

impl<I: Isa> Format<I> for W4a {
    const ENCODING: Encoding = Encoding::W4A;
    const CHUNK: usize = 8;

    #[inline(always)]
    unsafe fn prepare(x: I::I) -> I::I {
        x
    }
    #[inline(always)]
    unsafe fn value(x: I::I, j: usize, scale: I::F, min: I::F) -> I::F {
        unsafe { I::fma(I::nibble_unsigned(x, nibble_shift(j)), scale, min) }
    }
}

/// Floats of 4 bits, `LINE` of [`FLOATS`].
pub(crate) struct Floats<const LINE: usize>;

/// Formats whose codes are the numbers of 16 floats.
const FLOATS: [(Encoding, [u32; 16]); 3] =
    [(Encoding::NF4, NORMAL_FLOAT), (Encoding::FP4, FP4_VALUES), (Encoding::NVFP4, E2M1)];

impl<I: Isa, const LINE: usize> Format<I> for Floats<LINE> {
    const ENCODING: Encoding = FLOATS[LINE].0;
    const CHUNK: usize = 8;

    #[inline(always)]
    unsafe fn prepare(x: I::I) -> I::I {
        x
    }
    #[inline(always)]
    unsafe fn value(x: I::I, j: usize, scale: I::F, _min: I::F) -> I::F {
        unsafe { I::mul(I::nibble_of(x, nibble_shift(j), const { &FLOATS[LINE].1 }), scale) }
    }
}

/// Bytes of a scale of scales.
const fn above_bytes(weights: Encoding) -> usize {
    match weights.scales[1] {
        Some(above) => above.kind.bytes(),
        None => 0,
    }
}

/// Columns that share a scale of scales.
const fn super_columns(weights: Encoding) -> usize {
    match weights.super_group() {
        Some(columns) => columns,
        None => usize::MAX,
    }
}

/// The scales times those above them, at `above`, where there are any.
#[inline(always)]
unsafe fn times_above<I: Isa, T: Format<I>>(scale: I::F, above: *const u8) -> I::F {
    match const { T::ENCODING.scales[1] } {
        Some(level) => unsafe { I::mul(load::<I>(level.kind, above), scale) },
        None => scale,
    }
}

/// The panel of a format with f32 rows.
pub(crate) struct Decode<T>(PhantomData<T>);

/// Scale, minimum and codes of the group at hand.
struct Group<I: Isa, const NV: usize> {
    scale: [I::F; NV],
    min: [I::F; NV],
    codes: [I::I; NV],
}

/// Multiplies column `j` of the chunk in `g`, whose first element `a` points to, into `acc`.
#[inline(always)]
unsafe fn column<I: Isa, T: Format<I>, const MR: usize, const NV: usize>(
    acc: &mut [[I::F; NV]; MR],
    g: &Group<I, NV>,
    a: *const u8,
    a_stride: usize,
    j: usize,
) {
    unsafe {
        let mut x = g.scale;
        for v in 0..NV {
            x[v] = T::value(g.codes[v], j, g.scale[v], g.min[v]);
        }
        fma_row::<I, MR, NV>(acc, &x, a.add(j * 4), a_stride);
    }
}

impl<I: Isa, T: Format<I>> Kernel<I> for Decode<T> {
    const ENCODING: Encoding = T::ENCODING;
    const SHAPE: Shape = I::DECODE;
    const LONG: bool = true;

    #[inline(always)]
    unsafe fn tile<const MR: usize, const NV: usize>(t: &Tile) {
        unsafe {
            let kind = const { kind(T::ENCODING) };
            let factors = t.vectors::<I, NV>(0, kind.bytes());
            let codes = t.vectors::<I, NV>(0, 4);
            let above_of = t.vectors::<I, NV>(0, const { above_bytes(T::ENCODING) });
            let zero = [I::splat(0.0); NV];
            let mut g = Group::<I, NV> { scale: zero, min: zero, codes: [I::zero_words(); NV] };
            let mut acc = [zero; MR];
            let mut sums = acc;
            let mut place = const { Place::new(T::ENCODING) };
            let (mut k, mut group) = (0, 0);
            while k < t.k {
                let end = t.k.min(k + t.group);
                let scales = place.enter(t, group);
                for v in 0..NV {
                    t.prefetch::<I, MR, NV>(v, factors[v].add(scales));
                    let above = above_of[v].wrapping_add(place.record + t.block.above);
                    g.scale[v] = times_above::<I, T>(load::<I>(kind, factors[v].add(scales)), above);
                    if const { T::ENCODING.has_minimum() } {
                        g.min[v] = load::<I>(kind, factors[v].add(scales + t.block.mins));
                    }
                }
                while k < end {
                    for v in 0..NV {
                        let p = codes[v].add(place.codes);
                        t.prefetch::<I, MR, NV>(v, p);
                        g.codes[v] = T::prepare(I::load_words(p));
                    }
                    let a = t.a.add(k * 4);
                    if end - k >= T::CHUNK {
                        // Spelled out, not looped: a constant column makes its shift a constant.
                        column::<I, T, MR, NV>(&mut acc, &g, a, t.a_stride, 0);
                        column::<I, T, MR, NV>(&mut acc, &g, a, t.a_stride, 1);
                        column::<I, T, MR, NV>(&mut acc, &g, a, t.a_stride, 2);
                        column::<I, T, MR, NV>(&mut acc, &g, a, t.a_stride, 3);
                        if const { T::CHUNK == 8 } {
                            column::<I, T, MR, NV>(&mut acc, &g, a, t.a_stride, 4);
                            column::<I, T, MR, NV>(&mut acc, &g, a, t.a_stride, 5);
                            column::<I, T, MR, NV>(&mut acc, &g, a, t.a_stride, 6);
                            column::<I, T, MR, NV>(&mut acc, &g, a, t.a_stride, 7);
                        }
                    } else {
                        for j in 0..end - k {
                            column::<I, T, MR, NV>(&mut acc, &g, a, t.a_stride, j);
                        }
                    }
                    place.codes += 64;
                    k += T::CHUNK;
                    if k.is_multiple_of(CHAIN) {
                        end_chains::<I, MR, NV>(&mut sums, &mut acc);
                    }
                }
                group += 1;
            }
            end_chains::<I, MR, NV>(&mut sums, &mut acc);
            t.store::<I, MR, NV>(&sums);
        }
    }
}

impl<I: Isa, T: Format<I>> Widen<I> for Decode<T> {
    #[inline(always)]
    unsafe fn widen(t: &Tile, w: *const u8, from: usize, to: usize, out: *mut f32) {
        for first in (from..to).step_by(t.group) {
            let group = first / t.group;
            for lane in (0..BLOCK).step_by(I::LANES) {
                unsafe {
                    let kind = const { kind(T::ENCODING) };
                    let factors = w.add(t.block.scales_of(group) + lane * kind.bytes());
                    let above = t.block.above_of(first / const { super_columns(T::ENCODING) });
                    let above = w.add(above + lane * const { above_bytes(T::ENCODING) });
                    let scale = times_above::<I, T>(load::<I>(kind, factors), above);
                    let min = if const { T::ENCODING.has_minimum() } {
                        load::<I>(kind, factors.add(t.block.mins))
                    } else {
                        scale
                    };
                    let codes = w.add(t.block.codes_of(group) + lane * 4);
                    for chunk in 0..(to.min(first + t.group) - first).div_ceil(T::CHUNK) {
                        let x = T::prepare(I::load_words(codes.add(chunk * 64)));
                        let out = out.add((first - from + chunk * T::CHUNK) * BLOCK + lane);
                        for j in 0..T::CHUNK {
                            I::store(out.add(j * BLOCK), T::value(x, j, scale, min));
                        }
                    }
                }
            }
        }
    }
}
