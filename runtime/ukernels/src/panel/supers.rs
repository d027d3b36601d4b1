//! Weights with [integer scales](llmcc_abi::encoding::Encoding::has_integer_scales) × int8 rows: sums stay integers
//! over a super-group, then one f32 fused multiply-add.
//!
//! Per output and 256 columns that is one conversion and one multiply-add in f32 where scales of 32 columns that are
//! floats take eight of each; per 32 columns an integer multiplication and an addition remain. No sum overflows:
//! `32 · 128 · 128 · 256 = 2²⁷`.

use llmcc_abi::encoding::{Encoding, ScaleKind};
use llmcc_abi::layout::{BLOCK, EXCESS, K_PAD, SIX_LOW};

use super::int8::{load, sum_at};
use super::slice::{self, Dots, PanelWeights, parts};
use super::{Kernel, Tile};
use crate::isa::{Isa, Shape};

/// The panel of line `F` of [`INT8_PANELS`](llmcc_abi::INT8_PANELS), whose scales are integers.
pub(crate) struct Supers<const F: usize>;

impl<const F: usize> Supers<F> {
    /// The kind of the scales above.
    const ABOVE: ScaleKind = match PanelWeights::<F>::ENCODING.scales[1] {
        Some(above) => above.kind,
        // Not here.
        None => ScaleKind::F16,
    };
}

/// The scales of a super-group, as they are stored.
struct Scales<I: Isa, const NV: usize> {
    above: [I::F; NV],
    low: [I::I; NV],
    high: [I::I; NV],
}

impl<I: Isa, const NV: usize> Scales<I, NV> {
    /// Reads the scales of the record at byte `record`.
    #[inline(always)]
    unsafe fn read<const F: usize>(t: &Tile, record: usize) -> Scales<I, NV> {
        unsafe {
            let mut out =
                Scales { above: [I::splat(0.0); NV], low: [I::zero_words(); NV], high: [I::zero_words(); NV] };
            let above = t.vectors::<I, NV>(record + t.block.above, const { Supers::<F>::ABOVE.bytes() });
            let low = t.vectors::<I, NV>(record + t.block.scales, 4);
            let high = t.vectors::<I, NV>(record + t.block.scales - SIX_LOW, 2);
            for v in 0..NV {
                out.above[v] = load::<I>(const { Supers::<F>::ABOVE }, above[v]);
                out.low[v] = I::load_words(low[v]);
                out.high[v] = I::load_shorts(high[v]);
            }
            out
        }
    }
}

/// Starts the dot products of part `part` of super-group `index`: with the excess of the numbers, if there is one.
#[inline(always)]
unsafe fn start<I: Isa, const F: usize, const MR: usize, const NV: usize>(
    t: &Tile,
    index: usize,
    part: usize,
) -> Dots<I, MR, NV> {
    const {
        // Lines of other formats are seen here, too, though they do not come here.
        let (here, zero) = (PanelWeights::<F>::ENCODING.has_integer_scales(), PanelWeights::<F>::zero::<I>());
        assert!(!here || zero == 0 || zero == -EXCESS, "rows have the excesses of numbers that are 128 too large");
    }
    unsafe {
        let mut dots = [[[I::dot(0); NV]; MR]; 4];
        if const { PanelWeights::<F>::zero::<I>() != 0 } {
            for m in 0..MR {
                let excess = sum_at(t, m, index).add(4 + part * 4).cast::<i32>().read_unaligned();
                dots[0][m] = [I::dot(excess); NV];
            }
        }
        dots
    }
}

/// Adds dot products times scales to the sums of a super-group.
#[inline(always)]
unsafe fn add<I: Isa, const MR: usize, const NV: usize>(
    sums: &mut [[I::I; NV]; MR],
    dots: &Dots<I, MR, NV>,
    scale: &[I::I; NV],
) {
    unsafe {
        for m in 0..MR {
            for v in 0..NV {
                let mut total = I::total(dots[0][m][v]);
                for part in 1..parts::<I, MR, NV>() {
                    total = I::add_words(total, I::total(dots[part][m][v]));
                }
                sums[m][v] = I::add_words(sums[m][v], I::mul_words(total, scale[v]));
            }
        }
    }
}

impl<I: Isa, const F: usize> Kernel<I> for Supers<F> {
    const ENCODING: Encoding = PanelWeights::<F>::ENCODING;
    const SHAPE: Shape = I::INT8;
    const SOME: bool = PanelWeights::<F>::ENCODING.bits() != 4;

    #[inline(always)]
    unsafe fn tile<const MR: usize, const NV: usize>(t: &Tile) {
        unsafe {
            let codes = t.vectors::<I, NV>(0, 4);
            let mut acc = [[I::splat(0.0); NV]; MR];
            // Byte of the block, column, and which super-group.
            let (mut at, mut k, mut index) = (0, 0, 0);
            while k < t.kp {
                if const { NV * I::LANES <= BLOCK } {
                    for line in (0..t.block.codes).step_by(64) {
                        t.prefetch::<I, MR, NV>(0, t.w.add(at + line));
                    }
                }
                // All when the record is entered: a stream that goes back loses its prefetchers.
                let scales = Scales::<I, NV>::read::<F>(t, at);
                at += t.block.codes;
                let mut sums = [[I::zero_words(); NV]; MR];
                let (end, mut part) = (t.kp.min(k + t.group), 0);
                while k < end {
                    let mut dots = start::<I, F, MR, NV>(t, index, part);
                    let mut w = codes;
                    for v in 0..NV {
                        w[v] = w[v].add(at);
                    }
                    slice::add::<I, F, MR, NV, 0, 4, false>(t, &mut dots, &w, t.a.add(k), false);
                    let mut scale = [I::zero_words(); NV];
                    for v in 0..NV {
                        scale[v] = I::six(scales.low[v], scales.high[v], part as i32);
                    }
                    add::<I, MR, NV>(&mut sums, &dots, &scale);
                    (at, k, part) = (at + PanelWeights::<F>::SLICE_BYTES, k + K_PAD, part + 1);
                }
                for m in 0..MR {
                    let a_scale = t.a.add(m * t.a_stride + t.q8.scales + index * 4).cast::<f32>();
                    let a_scale = I::splat(a_scale.read_unaligned());
                    for v in 0..NV {
                        acc[m][v] = I::fma(I::to_f32(sums[m][v]), I::mul(scales.above[v], a_scale), acc[m][v]);
                    }
                }
                index += 1;
            }
            t.store::<I, MR, NV>(&acc);
        }
    }
}
