//! Weights of 8-bit floats × f32 rows: one fused multiply-add per `k`, in the same chains as for floats, and one per
//! chain with its scale.
//!
//! A code's exponent and mantissa, moved to their places in a bf16 and given the upper bits of an
//! exponent, are its number in the [unit of chains](chain_unit): five operations for the codes of four
//! columns. Subnormal numbers and zero need more, but are rare: whether a chain has some is found beside it, and such
//! a chain is computed anew. No operand is a subnormal f32, which some processors multiply a hundred times slower.
//!
//! The codes of NaN have no meaning here: no weight is packed with one.

use core::mem::MaybeUninit;

use llmcc_abi::encoding::Encoding;
use llmcc_abi::layout::{BLOCK, CHAIN, chain_unit};

use super::float::{end_scaled_chains, fma_row};
use super::int8::{kind, load};
use super::many::Widen;
use super::{Kernel, Place, Tile};
use crate::isa::{Apart, Isa, Shape};

/// Columns in 64 bytes of codes.
const CHUNK: usize = 4;
/// Bytes of the codes of a column of a block.
const COLUMN: usize = BLOCK;
/// The unit of [`Isa::e4m3_halves`], which is that of chains.
const UNIT: f32 = 256.0;

/// The panel of 8-bit floats with f32 rows; their scales are of rows, or of groups of columns.
pub(crate) struct E4m3<const BY_ROW: bool>;

impl<const BY_ROW: bool> E4m3<BY_ROW> {
    const WEIGHTS: Encoding = if BY_ROW { Encoding::FP8 } else { Encoding::FP8B };
    const SAME_UNIT: () = assert!(matches!(chain_unit(&Self::WEIGHTS), Some(UNIT)));
}

/// Columns of a vector.
struct Run {
    /// The codes of the first column.
    codes: *const u8,
    columns: usize,
    /// Where the numbers go, and how many f32 from one column to the next.
    out: *mut f32,
    stride: usize,
}

/// Writes the numbers of a run in units of [`UNIT`]; up to three more columns are written.
#[inline(always)]
unsafe fn write<I: Isa>(run: &Run) {
    unsafe {
        for chunk in 0..run.columns.div_ceil(CHUNK) {
            let x = I::load_words(run.codes.add(chunk * CHUNK * COLUMN));
            let exact = I::e4m3_small(I::e4m3_least(I::splat_bits(u32::MAX), x));
            let [even, odd] = I::e4m3_halves(x);
            let decoded = [I::bf16_low(even), I::bf16_low(odd), I::bf16_high(even), I::bf16_high(odd)];
            for j in 0..CHUNK {
                let out = run.out.add((chunk * CHUNK + j) * run.stride);
                I::store(out, if exact { I::e4m3_exact(decoded[j]) } else { decoded[j] });
            }
        }
    }
}

/// [`write`] as a function of its own.
struct Write<I>(core::marker::PhantomData<I>);

impl<I: Isa> Apart<Run> for Write<I> {
    #[inline(always)]
    unsafe fn run(args: Run) {
        unsafe { write::<I>(&args) }
    }
}

/// `LANES` factors of chains, from their scales.
#[inline(always)]
unsafe fn factor<I: Isa, const BY_ROW: bool>(scales: *const u8) -> I::F {
    let () = E4m3::<BY_ROW>::SAME_UNIT;
    unsafe { I::mul(load::<I>(const { kind(E4m3::<BY_ROW>::WEIGHTS) }, scales), I::splat(UNIT)) }
}

/// Vectors of a tile where a chain begins.
struct Chain<const NV: usize> {
    codes: [*const u8; NV],
    /// The first row's columns.
    a: *const u8,
    a_stride: usize,
}

impl<const NV: usize> Chain<NV> {
    /// A whole chain. Whether it has no subnormal number; else its sums have no meaning.
    #[inline(always)]
    unsafe fn whole<I: Isa, const MR: usize>(&self, t: &Tile, acc: &mut [[I::F; NV]; MR]) -> bool {
        unsafe {
            let mut least = I::splat_bits(u32::MAX);
            let zero = I::zero_words();
            let mut x = [I::splat(0.0); NV];
            for chunk in 0..CHAIN / CHUNK {
                let (mut even, mut odd) = ([zero; NV], [zero; NV]);
                for v in 0..NV {
                    let p = self.codes[v].add(chunk * CHUNK * COLUMN);
                    t.prefetch::<I, MR, NV>(v, p);
                    let x = I::load_words(p);
                    least = I::e4m3_least(least, x);
                    [even[v], odd[v]] = I::e4m3_halves(x);
                }
                let a = self.a.add(chunk * CHUNK * 4);
                for v in 0..NV {
                    x[v] = I::bf16_low(even[v]);
                }
                fma_row::<I, MR, NV>(acc, &x, a, self.a_stride);
                for v in 0..NV {
                    x[v] = I::bf16_low(odd[v]);
                }
                fma_row::<I, MR, NV>(acc, &x, a.add(4), self.a_stride);
                for v in 0..NV {
                    x[v] = I::bf16_high(even[v]);
                }
                fma_row::<I, MR, NV>(acc, &x, a.add(8), self.a_stride);
                for v in 0..NV {
                    x[v] = I::bf16_high(odd[v]);
                }
                fma_row::<I, MR, NV>(acc, &x, a.add(12), self.a_stride);
            }
            !I::e4m3_small(least)
        }
    }

    /// `columns` of any numbers, at most [`CHAIN`].
    #[inline(always)]
    unsafe fn any<I: Isa, const MR: usize>(&self, columns: usize, acc: &mut [[I::F; NV]; MR]) {
        let mut weights = MaybeUninit::<[[[f32; BLOCK]; 4]; CHAIN]>::uninit();
        let weights: *mut f32 = weights.as_mut_ptr().cast();
        let stride = NV * I::LANES;
        const { assert!(NV * I::LANES <= 4 * BLOCK) };
        unsafe {
            for v in 0..NV {
                let (codes, out) = (self.codes[v], weights.add(v * I::LANES));
                I::apart::<Run, Write<I>>(Run { codes, columns, out, stride });
            }
            let mut x = [I::splat(0.0); NV];
            *acc = [x; MR];
            for k in 0..columns {
                for v in 0..NV {
                    x[v] = I::load(weights.add(k * stride + v * I::LANES).cast());
                }
                fma_row::<I, MR, NV>(acc, &x, self.a.add(k * 4), self.a_stride);
            }
        }
    }
}

impl<I: Isa, const BY_ROW: bool> Kernel<I> for E4m3<BY_ROW> {
    const ENCODING: Encoding = Self::WEIGHTS;
    const SHAPE: Shape = I::DECODE;
    const LONG: bool = true;

    #[inline(always)]
    unsafe fn tile<const MR: usize, const NV: usize>(t: &Tile) {
        unsafe {
            let scales = t.vectors::<I, NV>(0, const { kind(E4m3::<BY_ROW>::WEIGHTS).bytes() });
            let codes = t.vectors::<I, NV>(0, 4);
            let zero = [I::splat(0.0); NV];
            let (mut acc, mut sums, mut factors) = ([zero; MR], [zero; MR], zero);
            let mut place = const { Place::new(E4m3::<BY_ROW>::WEIGHTS) };
            let mut chain = Chain::<NV> { codes, a: t.a, a_stride: t.a_stride };
            for (group, first) in (0..t.k).step_by(t.group).enumerate() {
                let at = place.enter(t, group);
                for v in 0..NV {
                    let p = scales[v].add(at);
                    t.prefetch::<I, MR, NV>(v, p);
                    factors[v] = factor::<I, BY_ROW>(p);
                }
                let end = t.k.min(first + t.group);
                for k in (first..end).step_by(CHAIN) {
                    for v in 0..NV {
                        chain.codes[v] = codes[v].add(place.codes);
                    }
                    chain.a = t.a.add(k * 4);
                    let columns = (end - k).min(CHAIN);
                    if columns < CHAIN || !chain.whole::<I, MR>(t, &mut acc) {
                        chain.any::<I, MR>(columns, &mut acc);
                    }
                    end_scaled_chains::<I, MR, NV>(&mut sums, &mut acc, &factors);
                    place.codes += CHAIN * COLUMN;
                }
            }
            t.store::<I, MR, NV>(&sums);
        }
    }
}

impl<I: Isa, const BY_ROW: bool> Widen<I> for E4m3<BY_ROW> {
    #[inline(always)]
    unsafe fn widen(t: &Tile, w: *const u8, from: usize, to: usize, out: *mut f32) {
        let mut first = from;
        while first < to {
            let group = first / t.group;
            let end = to.min((group + 1) * t.group);
            for lane in (0..BLOCK).step_by(I::LANES) {
                unsafe {
                    write::<I>(&Run {
                        codes: w.add(t.block.codes_of(group) + (first - group * t.group) * COLUMN + lane * 4),
                        columns: end - first,
                        out: out.add((first - from) * BLOCK + lane),
                        stride: BLOCK,
                    });
                }
            }
            first = end;
        }
    }

    #[inline(always)]
    unsafe fn factors(t: &Tile, w: *const u8, from: usize, out: *mut f32) {
        let (at, bytes) = (t.block.scales_of(from / t.group), const { kind(E4m3::<BY_ROW>::WEIGHTS).bytes() });
        for lane in (0..BLOCK).step_by(I::LANES) {
            unsafe { I::store(out.add(lane), factor::<I, BY_ROW>(w.add(at + lane * bytes))) };
        }
    }
}
