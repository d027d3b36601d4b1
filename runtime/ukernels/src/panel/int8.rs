//! Quantized weights × int8 rows: per group one exact integer dot product, then one f32 fused
//! multiply-add (two for asymmetric weights).

use core::marker::PhantomData;

use llmcc_abi::encoding::Encoding;
use llmcc_abi::layout::{self, BLOCK, K_PAD};

use super::{Kernel, Place, Tile};
use crate::isa::{Isa, Shape};

/// Dot products of a tile, in up to four parts that are added up in the end: a small tile has too
/// few outputs to keep the multipliers busy.
type Dots<I, const MR: usize, const NV: usize> = [[[<I as Isa>::Dot; NV]; MR]; 4];

/// Parts in use: as many as give [`Isa::DOT_CHAINS`] independent chains.
const fn parts<I: Isa, const MR: usize, const NV: usize>() -> usize {
    match I::DOT_CHAINS / (MR * NV) {
        0 | 1 => 1,
        2 | 3 => 2,
        _ => 4,
    }
}

/// Integer dot products of one quantized format.
pub(crate) trait Format<I: Isa> {
    /// What the weights are; of any group.
    const ENCODING: Encoding;
    /// Bytes of the codes of [`K_PAD`] columns of a block.
    const SLICE_BYTES: usize;
    /// What was added to each code to store it, as far as [`Format::slice`] does not undo it.
    const ZERO: i32;
    /// Adds the dot products of [`K_PAD`] columns. `w`: codes of each vector; `a`: the first row.
    unsafe fn slice<const MR: usize, const NV: usize>(
        t: &Tile,
        dots: &mut Dots<I, MR, NV>,
        w: &[*const u8; NV],
        a: *const u8,
    );
}

/// 8 bits, symmetric.
pub(crate) struct W8;

impl<I: Isa> Format<I> for W8 {
    const ENCODING: Encoding = Encoding::W8;
    const SLICE_BYTES: usize = K_PAD * 16;
    const ZERO: i32 = if I::W8_UNSIGNED { 128 } else { 0 };

    #[inline(always)]
    unsafe fn slice<const MR: usize, const NV: usize>(
        t: &Tile,
        dots: &mut Dots<I, MR, NV>,
        w: &[*const u8; NV],
        a: *const u8,
    ) {
        unsafe {
            let mut x = [I::prepare_dot8(I::zero_words()); NV];
            for chunk in 0..K_PAD / 4 {
                for v in 0..NV {
                    t.prefetch::<I, MR, NV>(v, w[v].add(chunk * 64));
                    x[v] = I::prepare_dot8(I::load_words(w[v].add(chunk * 64)));
                }
                let acc = &mut dots[chunk % parts::<I, MR, NV>()];
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
unsafe fn slice4<I: Isa, const MR: usize, const NV: usize>(
    t: &Tile,
    dots: &mut Dots<I, MR, NV>,
    w: &[*const u8; NV],
    a: *const u8,
) {
    unsafe {
        let parts = parts::<I, MR, NV>();
        let mut low = [I::zero_words(); NV];
        let mut high = low;
        for chunk in 0..K_PAD / 8 {
            for v in 0..NV {
                t.prefetch::<I, MR, NV>(v, w[v].add(chunk * 64));
                let x = I::load_words(w[v].add(chunk * 64));
                low[v] = I::low_nibbles(x);
                high[v] = I::high_nibbles(x);
            }
            let acc = &mut dots[2 * chunk % parts];
            for m in 0..MR {
                let z = I::splat_word(a.add(m * t.a_stride + chunk * 8));
                for v in 0..NV {
                    acc[m][v] = I::dot4(acc[m][v], low[v], z);
                }
            }
            let acc = &mut dots[(2 * chunk + 1) % parts];
            for m in 0..MR {
                let z = I::splat_word(a.add(m * t.a_stride + chunk * 8 + 4));
                for v in 0..NV {
                    acc[m][v] = I::dot4(acc[m][v], high[v], z);
                }
            }
        }
        for acc in &mut dots[..parts] {
            for m in 0..MR {
                for v in 0..NV {
                    acc[m][v] = I::settle(acc[m][v]);
                }
            }
        }
    }
}

/// 4 bits, symmetric.
pub(crate) struct W4;

impl<I: Isa> Format<I> for W4 {
    const ENCODING: Encoding = Encoding::W4;
    const SLICE_BYTES: usize = K_PAD * 8;
    const ZERO: i32 = 8;

    #[inline(always)]
    unsafe fn slice<const MR: usize, const NV: usize>(
        t: &Tile,
        dots: &mut Dots<I, MR, NV>,
        w: &[*const u8; NV],
        a: *const u8,
    ) {
        unsafe { slice4::<I, MR, NV>(t, dots, w, a) }
    }
}

/// 4 bits, asymmetric.
pub(crate) struct W4a;

impl<I: Isa> Format<I> for W4a {
    const ENCODING: Encoding = Encoding::W4A;
    const SLICE_BYTES: usize = K_PAD * 8;
    const ZERO: i32 = 0;

    #[inline(always)]
    unsafe fn slice<const MR: usize, const NV: usize>(
        t: &Tile,
        dots: &mut Dots<I, MR, NV>,
        w: &[*const u8; NV],
        a: *const u8,
    ) {
        unsafe { slice4::<I, MR, NV>(t, dots, w, a) }
    }
}

/// 4 bits, asymmetric, with two levels of scales.
pub(crate) struct Q4k;

impl<I: Isa> Format<I> for Q4k {
    // Its records are of a super-group, whatever the caller says.
    const ENCODING: Encoding = Encoding::Q4K.in_groups(32);
    const SLICE_BYTES: usize = K_PAD * 8;
    const ZERO: i32 = 0;

    #[inline(always)]
    unsafe fn slice<const MR: usize, const NV: usize>(
        t: &Tile,
        dots: &mut Dots<I, MR, NV>,
        w: &[*const u8; NV],
        a: *const u8,
    ) {
        unsafe { slice4::<I, MR, NV>(t, dots, w, a) }
    }
}

/// Starts the dot products of group `group`: what the zero point of the weights will add in excess
/// is taken off in advance.
#[inline(always)]
unsafe fn start<I: Isa, T: Format<I>, const MR: usize, const NV: usize>(t: &Tile, group: usize) -> Dots<I, MR, NV> {
    unsafe {
        let mut dots = [[[I::dot(0); NV]; MR]; 4];
        if const { T::ZERO != 0 } {
            for m in 0..MR {
                let sum = t.a.add(m * t.a_stride + t.q8.sums + group * 4).cast::<i32>().read_unaligned();
                dots[0][m] = [I::dot(-T::ZERO * sum); NV];
            }
        }
        dots
    }
}

/// Whether the factors of a record are loaded when it is entered, not when they are needed, where
/// the processor would see reads go backwards and lose track of the stream (a row from memory: 85
/// instead of 95 % of its bandwidth). Larger tiles have no registers for that.
const fn early(weights: Encoding, mr: usize, nv: usize) -> bool {
    nv == 1 && mr <= 6 && weights.scales[1].is_none()
}

/// Both halves of the factors at byte `factors` of the block of a tile of one vector.
#[inline(always)]
unsafe fn halves<I: Isa, const NV: usize>(t: &Tile, factors: usize) -> [I::F; 2] {
    unsafe {
        let p = t.vectors::<I, NV>(factors, 2)[0];
        [I::load_f16(p), I::load_f16(p.add(BLOCK * 2))]
    }
}

/// Scales the dot products of group `group`, whose factors start at byte `factors` of the block (or
/// are in `record`, see [`early`]), in the record at byte `record_at`, into `acc`.
#[inline(always)]
unsafe fn finish<I: Isa, T: Format<I>, const MR: usize, const NV: usize>(
    t: &Tile,
    group: usize,
    (factors, record_at): (usize, usize),
    record: &[I::F; 2],
    dots: &Dots<I, MR, NV>,
    acc: &mut [[I::F; NV]; MR],
) {
    unsafe {
        let mut scale = [I::splat(0.0); NV];
        let mut min = scale;
        if const { T::ENCODING.scales[1].is_some() } {
            // Codes of up to 7 bits, times the f16 at the start of the record.
            let (codes, above) = (t.vectors::<I, NV>(factors, 1), t.vectors::<I, NV>(record_at + t.block.above, 2));
            for v in 0..NV {
                scale[v] = I::mul(I::load_i8(codes[v]), I::load_f16(above[v]));
                let unit = I::load_f16(above[v].add(t.block.above_mins));
                min[v] = I::mul(I::load_i8(codes[v].add(t.block.mins)), unit);
            }
        } else if const { early(T::ENCODING, MR, NV) } {
            scale[0] = record[group % const { layout::groups_per_record(&T::ENCODING) }];
            min[0] = record[1];
        } else {
            let scales = t.vectors::<I, NV>(factors, 2);
            for v in 0..NV {
                scale[v] = I::load_f16(scales[v]);
                if const { T::ENCODING.has_minimum() } {
                    min[v] = I::load_f16(scales[v].add(t.block.mins));
                }
            }
        }
        for m in 0..MR {
            let a = t.a.add(m * t.a_stride + group * 4);
            let a_scale = I::splat(a.add(t.q8.scales).cast::<f32>().read_unaligned());
            for v in 0..NV {
                let mut total = I::total(dots[0][m][v]);
                for part in 1..parts::<I, MR, NV>() {
                    total = I::add_words(total, I::total(dots[part][m][v]));
                }
                acc[m][v] = I::fma(I::to_f32(total), I::mul(scale[v], a_scale), acc[m][v]);
            }
            if const { T::ENCODING.has_minimum() } {
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
    const ENCODING: Encoding = T::ENCODING;
    const SHAPE: Shape = I::INT8;

    #[inline(always)]
    unsafe fn tile<const MR: usize, const NV: usize>(t: &Tile) {
        unsafe {
            let codes = t.vectors::<I, NV>(0, 4);
            let mut acc = [[I::splat(0.0); NV]; MR];
            let mut place = const { Place::new(T::ENCODING) };
            let mut record = [I::splat(0.0); 2];
            let (mut k, mut group) = (0, 0);
            while k < t.kp {
                let end = t.kp.min(k + t.group);
                let factors = place.enter(t, group);
                if const { early(T::ENCODING, MR, NV) } && factors == place.record {
                    // Factors take lines of the stream as well: without this, as many lines of
                    // codes further on would not be asked for.
                    t.prefetch::<I, MR, NV>(0, t.w.add(factors));
                    record = halves::<I, NV>(t, factors);
                }
                let mut dots = start::<I, T, MR, NV>(t, group);
                while k < end {
                    let mut w = codes;
                    for v in 0..NV {
                        w[v] = codes[v].add(place.codes);
                    }
                    T::slice::<MR, NV>(t, &mut dots, &w, t.a.add(k));
                    place.codes += T::SLICE_BYTES;
                    k += K_PAD;
                }
                finish::<I, T, MR, NV>(t, group, (factors, place.record), &record, &dots, &mut acc);
                group += 1;
            }
            t.store::<I, MR, NV>(&acc);
        }
    }
}
