//! Weights of 8-bit floats × f32 rows: one fused multiply-add per `k`, in the same chains as for floats.
//!
//! A code's exponent and mantissa, moved to their places in a bf16 and given the upper bits of an
//! exponent, are its number times 2⁻⁸: five operations for the codes of four columns. Subnormal numbers
//! and zero need more, but are rare: whether a chain has some is found beside it, and such a chain is
//! computed anew. No operand is a subnormal f32, which some processors multiply a hundred times slower.
//!
//! The codes of NaN have no meaning here: no weight is packed with one.

use core::mem::MaybeUninit;

use llmcc_abi::encoding::Encoding;
use llmcc_abi::layout::{BLOCK, CHAIN};

use super::float::{end_chains, fma_row};
use super::int8::{kind, load};
use super::many::Widen;
use super::{Kernel, Place, Tile};
use crate::isa::{Apart, Isa, Shape};

/// Columns in 64 bytes of codes.
const CHUNK: usize = 4;
/// Bytes of the codes of a column of a block.
const COLUMN: usize = BLOCK;
/// Divides the numbers that [`Isa::e4m3_halves`] gives.
const UNIT: f32 = 256.0;

/// The panel of 8-bit floats with f32 rows; their scales are of rows, or of groups of columns.
pub(crate) struct E4m3<const BY_ROW: bool>;

impl<const BY_ROW: bool> E4m3<BY_ROW> {
    const WEIGHTS: Encoding = if BY_ROW { Encoding::FP8 } else { Encoding::FP8B };
}

/// A run of columns of a vector that have one scale.
struct Run {
    /// The scales.
    scales: *const u8,
    /// The codes of the first column.
    codes: *const u8,
    columns: usize,
    /// Where the weights go, and how many f32 from one column to the next.
    out: *mut f32,
    stride: usize,
}

/// Writes the weights of a run; up to three more columns are written.
#[inline(always)]
unsafe fn write<I: Isa, const BY_ROW: bool>(run: &Run) {
    unsafe {
        let scale = load::<I>(const { kind(E4m3::<BY_ROW>::WEIGHTS) }, run.scales);
        let scaled = I::mul(scale, I::splat(UNIT));
        for chunk in 0..run.columns.div_ceil(CHUNK) {
            let x = I::load_words(run.codes.add(chunk * CHUNK * COLUMN));
            let exact = I::e4m3_small(I::e4m3_least(I::finite(scaled), x));
            let [even, odd] = I::e4m3_halves(x);
            let values = [I::bf16_low(even), I::bf16_low(odd), I::bf16_high(even), I::bf16_high(odd)];
            for j in 0..CHUNK {
                let out = run.out.add((chunk * CHUNK + j) * run.stride);
                // Both are the product rounded once.
                let value = match exact {
                    true => I::mul(I::mul(I::e4m3_exact(values[j]), I::splat(UNIT)), scale),
                    false => I::mul(values[j], scaled),
                };
                I::store(out, value);
            }
        }
    }
}

/// [`write`] as a function of its own.
struct Write<I, const BY_ROW: bool>(core::marker::PhantomData<I>);

impl<I: Isa, const BY_ROW: bool> Apart<Run> for Write<I, BY_ROW> {
    #[inline(always)]
    unsafe fn run(args: Run) {
        unsafe { write::<I, BY_ROW>(&args) }
    }
}

/// Vectors of a tile where a chain begins, and their scales.
struct Chain<I: Isa, const NV: usize> {
    codes: [*const u8; NV],
    scales: [*const u8; NV],
    /// The scales times [`UNIT`].
    scaled: [I::F; NV],
    /// All bits where these are numbers.
    finite: I::I,
    /// The first row's columns.
    a: *const u8,
    a_stride: usize,
}

impl<I: Isa, const NV: usize> Chain<I, NV> {
    /// A whole chain. Whether it has no subnormal number; else its sums have no meaning.
    #[inline(always)]
    unsafe fn whole<const MR: usize>(&self, t: &Tile, acc: &mut [[I::F; NV]; MR]) -> bool {
        unsafe {
            let mut least = self.finite;
            let zero = I::zero_words();
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
                let mut x = self.scaled;
                for v in 0..NV {
                    x[v] = I::mul(I::bf16_low(even[v]), self.scaled[v]);
                }
                fma_row::<I, MR, NV>(acc, &x, a, self.a_stride);
                for v in 0..NV {
                    x[v] = I::mul(I::bf16_low(odd[v]), self.scaled[v]);
                }
                fma_row::<I, MR, NV>(acc, &x, a.add(4), self.a_stride);
                for v in 0..NV {
                    x[v] = I::mul(I::bf16_high(even[v]), self.scaled[v]);
                }
                fma_row::<I, MR, NV>(acc, &x, a.add(8), self.a_stride);
                for v in 0..NV {
                    x[v] = I::mul(I::bf16_high(odd[v]), self.scaled[v]);
                }
                fma_row::<I, MR, NV>(acc, &x, a.add(12), self.a_stride);
            }
            !I::e4m3_small(least)
        }
    }

    /// `columns` of any numbers, at most [`CHAIN`].
    #[inline(always)]
    unsafe fn any<const BY_ROW: bool, const MR: usize>(&self, columns: usize, acc: &mut [[I::F; NV]; MR]) {
        let mut weights = MaybeUninit::<[[[f32; BLOCK]; 4]; CHAIN]>::uninit();
        let weights: *mut f32 = weights.as_mut_ptr().cast();
        let stride = NV * I::LANES;
        const { assert!(NV * I::LANES <= 4 * BLOCK) };
        unsafe {
            for v in 0..NV {
                let (scales, codes, out) = (self.scales[v], self.codes[v], weights.add(v * I::LANES));
                I::apart::<Run, Write<I, BY_ROW>>(Run { scales, codes, columns, out, stride });
            }
            *acc = [[I::splat(0.0); NV]; MR];
            for k in 0..columns {
                let mut x = self.scaled;
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
            let kind = const { kind(E4m3::<BY_ROW>::WEIGHTS) };
            let factors = t.vectors::<I, NV>(0, kind.bytes());
            let codes = t.vectors::<I, NV>(0, 4);
            let zero = [I::splat(0.0); NV];
            let (mut acc, mut sums) = ([zero; MR], [zero; MR]);
            let mut place = const { Place::new(E4m3::<BY_ROW>::WEIGHTS) };
            let mut chain = Chain::<I, NV> {
                codes,
                scales: codes,
                scaled: zero,
                finite: I::zero_words(),
                a: t.a,
                a_stride: t.a_stride,
            };
            for (group, first) in (0..t.k).step_by(t.group).enumerate() {
                let scales = place.enter(t, group);
                chain.finite = I::finite(zero[0]);
                for v in 0..NV {
                    chain.scales[v] = factors[v].add(scales);
                    t.prefetch::<I, MR, NV>(v, chain.scales[v]);
                    chain.scaled[v] = I::mul(load::<I>(kind, chain.scales[v]), I::splat(UNIT));
                    // Half of f32's exponents are far from where that could matter.
                    if const { !BY_ROW } {
                        chain.finite = I::and_words(chain.finite, I::finite(chain.scaled[v]));
                    }
                }
                let end = t.k.min(first + t.group);
                for k in (first..end).step_by(CHAIN) {
                    for v in 0..NV {
                        chain.codes[v] = codes[v].add(place.codes);
                    }
                    chain.a = t.a.add(k * 4);
                    let columns = (end - k).min(CHAIN);
                    if columns < CHAIN || !chain.whole::<MR>(t, &mut acc) {
                        chain.any::<BY_ROW, MR>(columns, &mut acc);
                    }
                    end_chains::<I, MR, NV>(&mut sums, &mut acc);
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
        let kind = const { kind(E4m3::<BY_ROW>::WEIGHTS) };
        let mut first = from;
        while first < to {
            let group = first / t.group;
            let end = to.min((group + 1) * t.group);
            for lane in (0..BLOCK).step_by(I::LANES) {
                unsafe {
                    write::<I, BY_ROW>(&Run {
                        scales: w.add(t.block.scales_of(group) + lane * kind.bytes()),
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
}
