//! Dot products of slices of codes with int8 rows, from the description of the codes alone.

use llmcc_abi::INT8_PANELS;
use llmcc_abi::encoding::trellis::LEVEL_ZERO;
use llmcc_abi::encoding::{Code, Encoding, PAIRS_ZERO};
use llmcc_abi::layout::{self, K_PAD};

use super::{Tile, trellis};
use crate::isa::Isa;

/// Dot products of a tile, in up to four parts that are added up in the end: a small tile has too
/// few outputs to keep the multipliers busy.
pub(super) type Dots<I, const MR: usize, const NV: usize> = [[[<I as Isa>::Dot; NV]; MR]; 4];

/// Parts in use: as many as give [`Isa::DOT_CHAINS`] independent chains.
pub(super) const fn parts<I: Isa, const MR: usize, const NV: usize>() -> usize {
    match I::DOT_CHAINS / (MR * NV) {
        0 | 1 => 1,
        2 | 3 => 2,
        _ => 4,
    }
}

/// The largest number that [`Isa::dot4`] takes.
pub(super) const MOST: i32 = 127;

/// Codes as the unsigned numbers `integer + zero` that are multiplied.
#[derive(Clone, Copy)]
struct Unsigned {
    /// Offset above the integers.
    zero: i32,
    /// The largest.
    most: i32,
    /// The numbers that replace table codes.
    table: Option<[u8; 16]>,
}

/// The numbers of a description with [integers](Encoding::unit).
const fn unsigned(e: &Encoding) -> Unsigned {
    match e.code {
        Code::Int { bits, zero } => Unsigned { zero, most: (1 << bits) - 1, table: None },
        Code::Table { .. } => of_table(e),
        Code::Trellis(_) => Unsigned { zero: LEVEL_ZERO, most: MOST, table: None },
        // The zero is subtracted of each picked activation: see `add_pairs`.
        Code::Pairs => Unsigned { zero: 0, most: 15, table: None },
        Code::Signed { .. } => panic!("no line has signed codes"),
        Code::Float(_) => panic!("floats are no integers"),
    }
}

const fn of_table(e: &Encoding) -> Unsigned {
    let (mut least, mut most, mut i) = (0, 0, 0);
    while i < 16 {
        let x = e.integer(i as u8);
        least = if x < least { x } else { least };
        most = if x > most { x } else { most };
        i += 1;
    }
    // Numbers of 8 bits use the zero of `w8`, which some instruction sets need not subtract.
    let zero = if most - least > 127 { 128 } else { -least };
    let (mut table, mut i) = ([0; 16], 0);
    while i < 16 {
        table[i] = (e.integer(i as u8) + zero) as u8;
        i += 1;
    }
    Unsigned { zero, most: if zero == 128 { 255 } else { most - least }, table: Some(table) }
}

/// The weights of line `F` of [`INT8_PANELS`].
pub(crate) struct PanelWeights<const F: usize>;

impl<const F: usize> PanelWeights<F> {
    /// Their encoding; the group may be any.
    pub const ENCODING: Encoding = INT8_PANELS[F].1;
    /// Bytes of the codes of [`K_PAD`] columns of a block.
    pub const SLICE_BYTES: usize = K_PAD * 2 * Self::ENCODING.bits() as usize;
    const NUMBERS: Unsigned = unsigned(&Self::ENCODING);
    /// Bits of the planes of codes, and how many there are.
    pub const PLANES: ([u32; 3], usize) = Self::ENCODING.planes();

    /// Excess of a dot product, for each 1 of the activations.
    pub const fn zero<I: Isa>() -> i32 {
        let of = Self::NUMBERS;
        if of.most > 127 && !I::W8_UNSIGNED { of.zero - 128 } else { of.zero }
    }
}

/// Calls of [`Isa::dot4`] between two of [`Isa::settle`]: 1, 2, 4 or 8.
pub(super) const fn calls(most: i32) -> usize {
    // Activations are −128 to 127: all sums that far down are numbers of 16 bits.
    match -(i16::MIN as i32) / (2 * 128 * most) {
        0 | 1 => 1,
        2 | 3 => 2,
        4..=7 => 4,
        _ => 8,
    }
}

/// The weights of a kernel.
#[cfg(target_arch = "x86_64")]
pub(crate) trait Coded {
    /// Encoding, for any group.
    const ENCODING: Encoding;
}

#[cfg(target_arch = "x86_64")]
impl<const F: usize> Coded for PanelWeights<F> {
    const ENCODING: Encoding = Self::ENCODING;
}

/// Weights that matrix units multiply as well: 8 bits, 4 bits, and 4 bits with minima.
pub(crate) type W8 = PanelWeights<0>;
/// See [`W8`].
pub(crate) type W4 = PanelWeights<1>;
/// See [`W8`].
pub(crate) type W4a = PanelWeights<2>;

/// Lines of [`INT8_PANELS`] with trellis codes: the first, and how many.
pub(crate) const TRELLISES: (usize, usize) = (6, 2);

const _: () = {
    let mut line = 0;
    while line < INT8_PANELS.len() {
        let here = line >= TRELLISES.0 && line < TRELLISES.0 + TRELLISES.1;
        assert!(matches!(INT8_PANELS[line].1.code, Code::Trellis(_)) == here);
        line += 1;
    }
    assert!(W8::ENCODING.bits() == 8 && !W8::ENCODING.has_minimum());
    assert!(W4::ENCODING.bits() == 4 && !W4::ENCODING.has_minimum());
    assert!(W4a::ENCODING.bits() == 4 && W4a::ENCODING.has_minimum());
};

/// Adds the dot products of columns `8·FROM..8·TO` of a slice. `w`: codes of each vector; `a`: the
/// slice in the first row; `first`: the slice begins a group.
#[inline(always)]
pub(super) unsafe fn add<
    I: Isa,
    const F: usize,
    const MR: usize,
    const NV: usize,
    const FROM: usize,
    const TO: usize,
    const ANY: bool,
>(
    t: &Tile,
    dots: &mut Dots<I, MR, NV>,
    w: &[*const u8; NV],
    a: *const u8,
    first: bool,
) {
    unsafe {
        match const { PanelWeights::<F>::ENCODING.code } {
            Code::Int { bits: 8, .. } => add_bytes::<I, MR, NV, ANY>(t, dots, w, a),
            Code::Int { bits: 4, .. } => add_nibbles::<I, MR, NV>(t, dots, w, a),
            Code::Trellis(_) => trellis::add::<I, F, MR, NV>(t, dots, w, a, first),
            Code::Pairs => add_pairs::<I, MR, NV>(t, dots, w, a),
            Code::Int { .. } | Code::Signed { .. } | Code::Table { .. } | Code::Float(_) => {
                for eight in FROM..TO {
                    add_eight::<I, F, MR, NV>(t, dots, w, a, eight);
                }
                settle::<I, MR, NV>(dots);
            }
        }
    }
}

/// 8-bit codes. `ANY`: activations may be −128.
#[inline(always)]
unsafe fn add_bytes<I: Isa, const MR: usize, const NV: usize, const ANY: bool>(
    t: &Tile,
    dots: &mut Dots<I, MR, NV>,
    w: &[*const u8; NV],
    a: *const u8,
) {
    unsafe {
        let mut x = [I::prepare_dot8(I::zero_words()); NV];
        for chunk in 0..K_PAD / 4 {
            for v in 0..NV {
                let words = words::<I, MR, NV>(t, v, w[v].add(chunk * 64));
                x[v] = if ANY { I::prepare_dot8_any(words) } else { I::prepare_dot8(words) };
            }
            let acc = &mut dots[chunk % parts::<I, MR, NV>()];
            for m in 0..MR {
                let z = I::splat_word(a.add(m * t.a_stride + chunk * 4));
                for v in 0..NV {
                    acc[m][v] = if ANY { I::dot8_any(acc[m][v], x[v], z) } else { I::dot8(acc[m][v], x[v], z) };
                }
            }
        }
    }
}

/// 4-bit codes.
#[inline(always)]
unsafe fn add_nibbles<I: Isa, const MR: usize, const NV: usize>(
    t: &Tile,
    dots: &mut Dots<I, MR, NV>,
    w: &[*const u8; NV],
    a: *const u8,
) {
    unsafe {
        let parts = parts::<I, MR, NV>();
        let mut x = [[I::zero_words(); NV]; 2];
        for chunk in 0..K_PAD / 8 {
            for v in 0..NV {
                let both = words::<I, MR, NV>(t, v, w[v].add(chunk * 64));
                (x[0][v], x[1][v]) = (I::field_of_bytes(both, 0, 15), I::field_of_bytes(both, 4, 15));
            }
            add_fours::<I, MR, NV>(t, &mut dots[2 * chunk % parts], &x[0], a.add(chunk * 8));
            add_fours::<I, MR, NV>(t, &mut dots[(2 * chunk + 1) % parts], &x[1], a.add(chunk * 8 + 4));
        }
        settle::<I, MR, NV>(dots);
    }
}

/// [`Code::Pairs`]: a word has two codes of each of two fours of columns, which multiply the activations at their
/// places. The zero of a code is subtracted by the complement of its activation: `u·a + 8·(−1 − a) = (u − 8)·a − 8`, to
/// which [`ones`] adds the rest.
#[inline(always)]
unsafe fn add_pairs<I: Isa, const MR: usize, const NV: usize>(
    t: &Tile,
    dots: &mut Dots<I, MR, NV>,
    w: &[*const u8; NV],
    a: *const u8,
) {
    unsafe {
        let parts = parts::<I, MR, NV>();
        let (zeros, all) = (I::splat_bits(PAIRS_ZERO as u32 * 0x0101_0101), I::splat_bits(u32::MAX));
        let (mut both, mut x, mut at) = ([I::zero_words(); NV], [I::zero_words(); NV], [I::zero_words(); NV]);
        for eight in 0..K_PAD / 8 {
            for v in 0..NV {
                if eight % 2 == 0 {
                    both[v] = words::<I, MR, NV>(t, v, w[v].add(eight / 2 * 64));
                }
                let places = w[v].add(layout::PAIR_PLACES);
                if eight == 0 {
                    t.prefetch::<I, MR, NV>(v, places);
                }
                x[v] = I::field_of_bytes(both[v], eight as i32 % 2 * 4, 15);
                at[v] = I::field_of_bytes(I::load_words(places), eight as i32 * 2, 3);
            }
            let acc = &mut dots[eight % parts];
            for m in 0..MR {
                let a = a.add(m * t.a_stride + eight * 8);
                for v in 0..NV {
                    let picked = I::pick(a, at[v]);
                    let sum = I::dot4_each(acc[m][v], x[v], picked);
                    acc[m][v] = I::dot4_each(sum, zeros, I::xor_words(picked, all));
                }
            }
        }
        settle::<I, MR, NV>(dots);
    }
}

/// The start of the dot products of `columns` columns of [`Code::Pairs`].
pub(super) const fn ones(columns: usize) -> i32 {
    PAIRS_ZERO * columns as i32 / 2
}

/// The words at `p`, which belong to vector `v`; further ones are prefetched.
#[inline(always)]
unsafe fn words<I: Isa, const MR: usize, const NV: usize>(t: &Tile, v: usize, p: *const u8) -> I::I {
    unsafe {
        t.prefetch::<I, MR, NV>(v, p);
        I::load_words(p)
    }
}

/// Numbers of up to 7 bits of 4 columns, the first of which `a` holds.
#[inline(always)]
pub(super) unsafe fn add_fours<I: Isa, const MR: usize, const NV: usize>(
    t: &Tile,
    acc: &mut [[I::Dot; NV]; MR],
    x: &[I::I; NV],
    a: *const u8,
) {
    for m in 0..MR {
        unsafe {
            let z = I::splat_word(a.add(m * t.a_stride));
            for v in 0..NV {
                acc[m][v] = I::dot4(acc[m][v], x[v], z);
            }
        }
    }
}

/// Columns `8·eight..8·eight + 8` of any codes.
#[inline(always)]
unsafe fn add_eight<I: Isa, const F: usize, const MR: usize, const NV: usize>(
    t: &Tile,
    dots: &mut Dots<I, MR, NV>,
    w: &[*const u8; NV],
    a: *const u8,
    eight: usize,
) {
    let of = const { PanelWeights::<F>::NUMBERS };
    unsafe {
        let mut x = [[I::zero_words(); NV]; 2];
        for v in 0..NV {
            [x[0][v], x[1][v]] = numbers::<I, F, MR, NV>(t, v, w[v], eight);
        }
        for half in 0..2 {
            let a = a.add(eight * 8 + half * 4);
            let acc = &mut dots[half % parts::<I, MR, NV>()];
            if of.most > 127 {
                for v in 0..NV {
                    let ready = I::prepare_dot8(x[half][v]);
                    for m in 0..MR {
                        acc[m][v] = I::dot8(acc[m][v], ready, I::splat_word(a.add(m * t.a_stride)));
                    }
                }
            } else {
                add_fours::<I, MR, NV>(t, acc, &x[half], a);
                if (eight * 2 + half + 1).is_multiple_of(calls(of.most)) {
                    settle::<I, MR, NV>(dots);
                }
            }
        }
    }
}

/// The numbers of 8 columns of a vector, put together from the planes of their codes: the first
/// four columns, and the others.
#[inline(always)]
unsafe fn numbers<I: Isa, const F: usize, const MR: usize, const NV: usize>(
    t: &Tile,
    v: usize,
    w: *const u8,
    eight: usize,
) -> [I::I; 2] {
    let (of, (widths, count)) = const { (PanelWeights::<F>::NUMBERS, PanelWeights::<F>::PLANES) };
    let (mut plane, mut base) = (w, 0);
    unsafe {
        let mut codes = [I::zero_words(); 2];
        for width in &widths[..count] {
            let (bits, mask) = (*width as i32, ((0xff >> (8 - width)) << base) as u8);
            // 64 bytes have 32 bits of each row; 8 columns are twice `bits` of each byte.
            let of_line = 4 / *width as usize;
            let line = plane.add(eight / of_line * 64);
            if eight.is_multiple_of(of_line) {
                t.prefetch::<I, MR, NV>(v, line);
                if const { PanelWeights::<F>::PLANES.1 > 1 } {
                    t.prefetch_planes::<I, MR, NV>(v, line);
                }
            }
            let x = I::words_right(I::load_words(line), (eight % of_line) as i32 * 2 * bits);
            codes[0] = I::or_words(codes[0], I::field_of_bytes(x, -base, mask));
            codes[1] = I::or_words(codes[1], I::field_of_bytes(x, bits - base, mask));
            plane = plane.add(64 * *width as usize);
            base += bits;
        }
        for code in &mut codes {
            if let Some(table) = of.table {
                *code = I::look_up(*code, &table);
            }
        }
        codes
    }
}

/// Moves the narrow sums to wide ones.
#[inline(always)]
pub(super) unsafe fn settle<I: Isa, const MR: usize, const NV: usize>(dots: &mut Dots<I, MR, NV>) {
    for acc in &mut dots[..parts::<I, MR, NV>()] {
        for m in 0..MR {
            for v in 0..NV {
                acc[m][v] = unsafe { I::settle(acc[m][v]) };
            }
        }
    }
}
