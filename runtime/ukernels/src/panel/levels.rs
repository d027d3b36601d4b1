//! Trellis codes × many int8 rows: the codes of a group become levels once for all rows.
//!
//! To decode a code takes more instructions than to multiply it with a few rows. So the levels of a group wait in the
//! first-level cache ([`Levels`]), as unsigned bytes in the order in which they are multiplied, and all rows pass over
//! them in tiles. Meanwhile sums wait in `c`, which costs them no bit: the chain of an output is the same.
//!
//! A strip of two vectors of 16 rows and 256 columns takes 8 KB. Loading and storing the sums of a tile of 6 rows is 24
//! of some 800 instructions.

use core::mem::MaybeUninit;

use llmcc_abi::PanelArgs;
use llmcc_abi::encoding::Encoding;
use llmcc_abi::layout::{BLOCK, K_PAD, Q8Row};

use super::slice::{self, PanelWeights, TRELLISES};
use super::{Kernel, Place, Tile, int8, trellis};
use crate::isa::{Isa, Shape};

/// Most rows that tiles decode for themselves.
pub(super) const FEW: usize = 4;
/// Most columns of a group.
const DEPTH: usize = 256;
/// Rows that decoding asks for weights by ([`Tile::prefetch`]): many.
const MANY: usize = 12;

/// The levels of a group of a strip, and its scales.
#[repr(C, align(64))]
struct Levels {
    /// For four columns, for each vector: four bytes of each row.
    levels: [u8; DEPTH * 2 * BLOCK],
    /// For each vector.
    scales: [f32; 2 * BLOCK],
}

/// Whether rows and columns are such as [`run`] takes.
#[inline(always)]
pub(super) fn suits(p: &PanelArgs) -> bool {
    p.m as usize > FEW && (K_PAD..=DEPTH).contains(&(p.group as usize))
}

/// Computes a panel of line `F`.
///
/// # Safety
/// As [`super::run`]; the line has trellis codes, and [`suits`].
#[inline(always)]
pub(super) unsafe fn run<I: Isa, const F: usize>(p: &PanelArgs) {
    let vectors = p.blocks as usize * (BLOCK / I::LANES);
    let first = Tile::new(p, PanelWeights::<F>::ENCODING);
    let mut v = 0;
    unsafe {
        if const { I::INT8.vectors == 2 } {
            while vectors - v >= 2 {
                strip::<I, F, 2>(&first.at::<I>(v, 0).ahead::<I, 2>(), p.m as usize);
                v += 2;
            }
        }
        while v < vectors {
            strip::<I, F, 1>(&first.at::<I>(v, 0).ahead::<I, 1>(), p.m as usize);
            v += 1;
        }
    }
}

/// Computes `m` rows of `NV` vectors, which begin at `t`.
#[inline(always)]
unsafe fn strip<I: Isa, const F: usize, const NV: usize>(t: &Tile, m: usize) {
    let mut work = MaybeUninit::<Levels>::uninit();
    let mut place = const { Place::new(PanelWeights::<F>::ENCODING) };
    unsafe {
        for row in 0..m {
            for v in 0..NV {
                I::store(t.c.add(row * t.c_stride + v * I::LANES), I::splat(0.0));
            }
        }
        for (group, k) in (0..t.kp).step_by(t.group).enumerate() {
            let columns = t.group.min(t.kp - k);
            decode::<I, F, NV>(t, &mut place, group, columns, work.as_mut_ptr());
            let q8 = Q8Row { scales: t.q8.scales + group * 4 - k, sums: t.q8.sums + group * t.sum_bytes - k, ..t.q8 };
            let tile = Tile { w: work.as_ptr().cast(), row: 0, a: t.a.add(k), kp: columns, q8, ..*t };
            super::strip::<I, Products, NV>(&tile, m, 0);
        }
    }
}

/// Decodes a group of the vectors that begin at `t`.
#[inline(always)]
unsafe fn decode<I: Isa, const F: usize, const NV: usize>(
    t: &Tile,
    place: &mut Place,
    group: usize,
    columns: usize,
    to: *mut Levels,
) {
    unsafe {
        let factors = place.enter(t, group);
        let none = [I::splat(0.0); 2];
        let [scales, _] = int8::factors_of::<I, F, MANY, NV>(t, group, (factors, place.record), &none);
        for v in 0..NV {
            I::store((&raw mut (*to).scales).cast::<f32>().add(v * I::LANES), scales[v]);
        }
        let mut out = (&raw mut (*to).levels).cast::<u8>();
        for k in (0..columns).step_by(K_PAD) {
            let w = t.vectors::<I, NV>(place.codes, 4);
            trellis::write::<I, F, MANY, NV>(t, &w, k == 0, out);
            out = out.add(K_PAD * NV * I::LANES);
            place.codes += PanelWeights::<F>::SLICE_BYTES;
        }
    }
}

/// Products of int8 rows with [`Levels`], at which the tile's weights point.
struct Products;

impl<I: Isa> Kernel<I> for Products {
    // All lines of trellis codes have the same zero and one scale.
    const ENCODING: Encoding = PanelWeights::<{ TRELLISES.0 }>::ENCODING;
    const SHAPE: Shape = Shape { few: 0, ..I::INT8 };

    #[inline(always)]
    unsafe fn tile<const MR: usize, const NV: usize>(t: &Tile) {
        unsafe {
            let of = t.w.cast::<Levels>();
            let mut dots = int8::start::<I, { TRELLISES.0 }, MR, NV>(t, 0);
            let mut w = (&raw const (*of).levels).cast::<u8>();
            let mut x = [I::zero_words(); NV];
            for k in (0..t.kp).step_by(K_PAD) {
                for quad in 0..K_PAD / 4 {
                    for v in 0..NV {
                        x[v] = I::load_words(w.add(v * I::LANES * 4));
                    }
                    w = w.add(NV * I::LANES * 4);
                    let part = &mut dots[quad % slice::parts::<I, MR, NV>()];
                    slice::add_fours::<I, MR, NV>(t, part, &x, t.a.add(k + quad * 4));
                    if (quad + 1).is_multiple_of(slice::calls(slice::MOST)) {
                        slice::settle::<I, MR, NV>(&mut dots);
                    }
                }
            }
            let mut scale = [I::splat(0.0); NV];
            let mut acc = [scale; MR];
            for v in 0..NV {
                scale[v] = I::load((&raw const (*of).scales).cast::<u8>().add(v * I::LANES * 4));
                for m in 0..MR {
                    acc[m][v] = I::load(t.c.add(m * t.c_stride + v * I::LANES).cast());
                }
            }
            int8::finish::<I, { TRELLISES.0 }, MR, NV>(t, 0, [scale, scale], &dots, &mut acc);
            t.store::<I, MR, NV>(&acc);
        }
    }
}
