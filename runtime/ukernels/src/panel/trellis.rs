//! Dot products of slices of trellis codes with int8 rows.
//!
//! Bit `b` of the codes of 32 columns is a word of a row ([`llmcc_abi::encoding::trellis`]). So each bit of 32 indices
//! is the exclusive or of three words, moved up by some columns, which bring bits of the slice before. The words of
//! bits are merged to fields of two and of four bits in place; a quad of columns then takes a shift, a mask and one or
//! two tables.

use llmcc_abi::encoding::Code;
use llmcc_abi::encoding::trellis::{INDEX_BITS, LEVEL_ZERO, Tap, Trellis};
use llmcc_abi::layout::{BLOCK, K_PAD};

use super::Tile;
use super::slice::{self, Dots, PanelWeights, parts};
use crate::isa::Isa;

/// Planes of codes at most.
const PLANES: usize = INDEX_BITS / 2;

impl<const F: usize> PanelWeights<F> {
    const TRELLIS: Option<&'static Trellis> = match Self::ENCODING.code {
        Code::Trellis(of) => Some(of),
        Code::Float(_) | Code::Int { .. } | Code::Signed { .. } | Code::Table { .. } | Code::Pairs => None,
    };

    const TAPS: [[Tap; 3]; INDEX_BITS] = {
        let (mut out, mut bit) = ([[Tap { plane: 0, age: 0 }; 3]; INDEX_BITS], 0);
        if let Some(of) = Self::TRELLIS {
            while bit < of.index_bits() {
                out[bit] = of.taps(bit);
                bit += 1;
            }
        }
        out
    };

    /// Levels of indices as unsigned numbers.
    const LEVELS: [u8; 64] = {
        let (mut out, mut i) = ([0; 64], 0);
        if let Some(of) = Self::TRELLIS {
            while i < 1 << of.index_bits() {
                out[i] = (of.level_of(i) as i32 + LEVEL_ZERO) as u8;
                i += 1;
            }
        }
        out
    };

    /// See [`Trellis::tables`].
    const TABLES: [[u8; 16]; 2] = match Self::TRELLIS {
        Some(of) => of.tables(),
        None => [[0; 16]; 2],
    };
}

/// Indices of the columns of a slice, of the rows of a vector.
#[derive(Clone, Copy)]
struct Indices<I: Isa> {
    /// For column `4q + b`, byte `b` of each word has four bits in half `q / 4` of word `q % 4`: a whole index, its
    /// upper part, or, with large tables, its lower bits.
    first: [I::I; 4],
    /// Alike lower parts; with large tables the other two bits, in pair `q / 2` of word `q % 2`.
    second: [I::I; 4],
}

/// Two words of single bits as fields of two bits: those of even places, and of odd ones.
#[inline(always)]
unsafe fn pairs<I: Isa>(low: I::I, high: I::I) -> [I::I; 2] {
    unsafe { [I::merge(0x55, low, I::words_left(high, 1)), I::merge(0x55, I::words_right(low, 1), high)] }
}

/// Four words of single bits as fields of four bits, by their places modulo 4.
#[inline(always)]
unsafe fn fours<I: Isa>(words: [I::I; 4]) -> [I::I; 4] {
    unsafe {
        let (low, high) = (pairs::<I>(words[0], words[1]), pairs::<I>(words[2], words[3]));
        let mut out = words;
        for i in 0..2 {
            out[i] = I::merge(0x33, low[i], I::words_left(high[i], 2));
            out[i + 2] = I::merge(0x33, I::words_right(low[i], 2), high[i]);
        }
        out
    }
}

/// The indices of the slice at `w`; `first`: it begins a group.
#[inline(always)]
unsafe fn indices<I: Isa, const F: usize, const MR: usize, const NV: usize>(
    t: &Tile,
    v: usize,
    w: *const u8,
    first: bool,
) -> Indices<I> {
    unsafe {
        let (planes, bits) = const { (PanelWeights::<F>::PLANES.1, 2 * PanelWeights::<F>::PLANES.1) };
        let mut now = [I::zero_words(); PLANES];
        let mut before = now;
        for plane in 0..planes {
            let line = w.add(plane * BLOCK * 4);
            t.prefetch::<I, MR, NV>(v, line);
            now[plane] = I::load_words(line);
            if !first {
                before[plane] = I::load_words(line.sub(PanelWeights::<F>::SLICE_BYTES));
            }
        }
        let mut words = [I::zero_words(); INDEX_BITS];
        for bit in 0..bits {
            for tap in const { PanelWeights::<F>::TAPS }[bit] {
                let term = match tap.age {
                    0 => now[tap.plane],
                    age => I::funnel(now[tap.plane], before[tap.plane], age as i32),
                };
                words[bit] = I::xor_words(words[bit], term);
            }
        }
        let none = I::zero_words();
        let [a, b, c, d, e, f] = words;
        if const { PanelWeights::<F>::PLANES.1 == 2 } {
            return Indices { first: fours::<I>([a, b, c, d]), second: [none; 4] };
        }
        if const { I::LARGE_TABLES } {
            let [even, odd] = pairs::<I>(e, f);
            return Indices { first: fours::<I>([a, b, c, d]), second: [even, odd, none, none] };
        }
        Indices { first: fours::<I>([d, e, f, none]), second: fours::<I>([a, b, c, none]) }
    }
}

/// The levels of four columns, as unsigned numbers.
#[inline(always)]
unsafe fn levels<I: Isa, const F: usize>(of: &Indices<I>, quad: usize) -> I::I {
    unsafe {
        let tables = const { &PanelWeights::<F>::TABLES };
        let half = (quad / 4 * 4) as i32;
        let first = I::field_of_bytes(of.first[quad % 4], half, 15);
        if const { PanelWeights::<F>::PLANES.1 == 2 } {
            return I::look_up(first, &tables[0]);
        }
        if const { I::LARGE_TABLES } {
            let upper = I::field_of_bytes(of.second[quad % 2], (quad / 2 * 2) as i32 - 4, 0x30);
            return I::look_up_64(I::or_words(first, upper), const { &PanelWeights::<F>::LEVELS });
        }
        let second = I::field_of_bytes(of.second[quad % 4], half, 15);
        // No sum of bytes is above 127.
        I::add_words(I::look_up(first, &tables[0]), I::look_up(second, &tables[1]))
    }
}

/// The indices of slices at `w`, of each vector.
#[inline(always)]
unsafe fn all_indices<I: Isa, const F: usize, const MR: usize, const NV: usize>(
    t: &Tile,
    w: &[*const u8; NV],
    first: bool,
) -> [Indices<I>; NV] {
    unsafe {
        let mut of = [Indices::<I> { first: [I::zero_words(); 4], second: [I::zero_words(); 4] }; NV];
        for v in 0..NV {
            of[v] = indices::<I, F, MR, NV>(t, v, w[v], first);
        }
        of
    }
}

/// Writes the levels of a slice, as unsigned numbers: for four columns, for each vector, four bytes of each row.
#[inline(always)]
pub(super) unsafe fn write<I: Isa, const F: usize, const MR: usize, const NV: usize>(
    t: &Tile,
    w: &[*const u8; NV],
    first: bool,
    out: *mut u8,
) {
    unsafe {
        let of = all_indices::<I, F, MR, NV>(t, w, first);
        for quad in 0..K_PAD / 4 {
            for v in 0..NV {
                I::store_words(out.add((quad * NV + v) * I::LANES * 4), levels::<I, F>(&of[v], quad));
            }
        }
    }
}

/// Adds the dot products of the columns of a slice. `w`: codes of each vector; `a`: the slice in the first row;
/// `first`: the slice begins a group.
#[inline(always)]
pub(super) unsafe fn add<I: Isa, const F: usize, const MR: usize, const NV: usize>(
    t: &Tile,
    dots: &mut Dots<I, MR, NV>,
    w: &[*const u8; NV],
    a: *const u8,
    first: bool,
) {
    unsafe {
        let of = all_indices::<I, F, MR, NV>(t, w, first);
        let mut x = [I::zero_words(); NV];
        for quad in 0..K_PAD / 4 {
            for v in 0..NV {
                x[v] = levels::<I, F>(&of[v], quad);
            }
            slice::add_fours::<I, MR, NV>(t, &mut dots[quad % parts::<I, MR, NV>()], &x, a.add(quad * 4));
            if (quad + 1).is_multiple_of(slice::calls(slice::MOST)) {
                slice::settle::<I, MR, NV>(dots);
            }
        }
    }
}
