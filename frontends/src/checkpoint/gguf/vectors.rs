//! Blocks of the types that take several numbers at once from a grid: `IQ1`, `IQ2`, `IQ3`.
//!
//! Layouts follow `ggml-common.h`. The decoded numbers are kept exactly: each number is the code of
//! a magnitude and its sign, each scale `2s + 1`, times the block's f16.

use super::bits::{SUPER, half, put};
use super::grids;
use half::f16;
use llmcc_ir::quant::CodedRow;

/// Addend to the code of a magnitude where the number is negative.
const NEGATIVE: u8 = 8;

/// The codes of magnitudes of an entry of 8.
fn eight(entry: u16) -> [u8; 8] {
    std::array::from_fn(|i| (entry >> (2 * i) & 3) as u8)
}

/// The numbers of two entries of 4.
fn twice_four(entries: [u16; 2]) -> [u8; 8] {
    std::array::from_fn(|i| (entries[i / 4] >> (i % 4 * 4) & 15) as u8)
}

/// The signs of 8 numbers by 7 bits: an even number of them is negative.
fn even_signs(bits: u32) -> u8 {
    let seven = (bits & 127) as u8;
    seven | (seven.count_ones() as u8 & 1) << 7
}

/// Writes 8 numbers, negative where `signs` has a bit.
fn put_signed(row: &mut CodedRow, at: usize, magnitudes: [u8; 8], signs: u8) {
    let codes = magnitudes.into_iter().enumerate();
    put(row, at, codes.map(|(i, m)| m + (signs >> i & 1) * NEGATIVE));
}

/// The scale `2s + 1` of the columns from `at` on, which formats have for `group` columns.
fn scale(row: &mut CodedRow, at: usize, (columns, group): (usize, usize), s: u32) {
    row.factors[at / group..(at + columns) / group].fill(((2 * s + 1) as f32, 0.0));
}

fn short(b: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([b[at], b[at + 1]])
}

fn word(b: &[u8], at: usize) -> u32 {
    u32::from(short(b, at)) | u32::from(short(b, at + 2)) << 16
}

/// Per 32 columns: 4 entries in bytes, then 4 times 7 bits of signs and 4 of the scale.
pub(super) fn iq2_xxs(b: &[u8], row: &mut CodedRow, at: usize) {
    row.above[at / SUPER] = (half(b, 0), 0.0);
    for g in 0..8 {
        let (entries, rest, at) = (&b[2 + 8 * g..], word(b, 6 + 8 * g), at + 32 * g);
        scale(row, at, (32, 16), rest >> 28);
        for (i, entry) in entries[..4].iter().enumerate() {
            let magnitudes = eight(grids::IQ2_XXS[usize::from(*entry)]);
            put_signed(row, at + 8 * i, magnitudes, even_signs(rest >> (7 * i)));
        }
    }
}

/// Per 8 columns: 9 bits of the entry and 7 of signs; nibbles of scales.
pub(super) fn iq2_xs(b: &[u8], row: &mut CodedRow, at: usize) {
    row.above[at / SUPER] = (half(b, 0), 0.0);
    nibble_scales(&b[66..74], row, at, 16);
    for i in 0..32 {
        let code = short(b, 2 + 2 * i);
        put_signed(row, at + 8 * i, eight(grids::IQ2_XS[usize::from(code & 511)]), even_signs((code >> 9).into()));
    }
}

/// Per 8 columns: a byte of the entry, a byte of signs, 2 more bits of the entry; nibbles of
/// scales.
pub(super) fn iq2_s(b: &[u8], row: &mut CodedRow, at: usize) {
    row.above[at / SUPER] = (half(b, 0), 0.0);
    nibble_scales(&b[74..82], row, at, 16);
    let (low, signs, high) = (&b[2..34], &b[34..66], &b[66..74]);
    for i in 0..32 {
        let entry = usize::from(low[i]) | usize::from(high[i / 4] >> (i % 4 * 2) & 3) << 8;
        put_signed(row, at + 8 * i, eight(grids::IQ2_S[entry]), signs[i]);
    }
}

/// A scale in 4 bits for each so many columns.
fn nibble_scales(b: &[u8], row: &mut CodedRow, at: usize, columns: usize) {
    for (i, u) in b.iter().enumerate() {
        scale(row, at + 2 * columns * i, (columns, columns), u32::from(u & 15));
        scale(row, at + 2 * columns * i + columns, (columns, columns), u32::from(u >> 4));
    }
}

/// Entries of 4 columns in bytes; then of 32 columns 4 times 7 bits of signs and 4 of the scale.
pub(super) fn iq3_xxs(b: &[u8], row: &mut CodedRow, at: usize) {
    row.above[at / SUPER] = (half(b, 0), 0.0);
    for g in 0..8 {
        let (entries, rest, at) = (&b[2 + 8 * g..], word(b, 66 + 4 * g), at + 32 * g);
        scale(row, at, (32, 32), rest >> 28);
        for i in 0..4 {
            let pair = [0, 1].map(|j| grids::IQ3_XXS[usize::from(entries[2 * i + j])]);
            put_signed(row, at + 8 * i, twice_four(pair), even_signs(rest >> (7 * i)));
        }
    }
}

/// Entries of 4 columns in 9 bits, the highest stored apart; signs; nibbles of scales.
pub(super) fn iq3_s(b: &[u8], row: &mut CodedRow, at: usize) {
    row.above[at / SUPER] = (half(b, 0), 0.0);
    nibble_scales(&b[106..110], row, at, 32);
    let (low, high, signs) = (&b[2..66], &b[66..74], &b[74..106]);
    let entry = |i: usize| grids::IQ3_S[usize::from(low[i]) | usize::from(high[i / 8] >> (i % 8) & 1) << 8];
    for (i, sign) in signs.iter().enumerate() {
        put_signed(row, at + 8 * i, twice_four([entry(2 * i), entry(2 * i + 1)]), *sign);
    }
}

/// Writes 8 numbers of −1, 0 and 1, an eighth less or more.
fn put_moved(row: &mut CodedRow, at: usize, entry: usize, less: bool) {
    // Behind the magnitudes of `IQ2`: an eighth, seven, nine.
    let codes: [u8; 3] = match less {
        true => [5 + NEGATIVE, 3 + NEGATIVE, 4],
        false => [4 + NEGATIVE, 3, 5],
    };
    put(row, at, eight(grids::IQ1[entry]).into_iter().map(|g| codes[usize::from(g).min(2)]));
}

/// Per 8 columns: a byte of the entry; per 32 columns: 3 more bits of each entry, the scale, and
/// the direction in which the numbers are moved.
pub(super) fn iq1_s(b: &[u8], row: &mut CodedRow, at: usize) {
    row.above[at / SUPER] = (half(b, 0), 0.0);
    for g in 0..8 {
        let (high, at) = (short(b, 34 + 2 * g), at + 32 * g);
        scale(row, at, (32, 16), u32::from(high >> 12 & 7));
        for i in 0..4 {
            let entry = usize::from(b[2 + 4 * g + i]) | usize::from(high >> (3 * i) & 7) << 8;
            put_moved(row, at + 8 * i, entry, high >> 15 == 1);
        }
    }
}

/// Per 8 columns: a byte of the entry, 3 more bits of it, and the direction in which the numbers
/// are moved; per 16 columns: 3 bits of scales, beside bits of the block's f16.
pub(super) fn iq1_m(b: &[u8], row: &mut CodedRow, at: usize) {
    let (low, high, scales) = (&b[..32], &b[32..48], &b[48..56]);
    let bits = (0..4).fold(0u16, |bits, i| bits | short(scales, 2 * i) >> 12 << (4 * i));
    row.above[at / SUPER] = (f16::from_bits(bits).to_f32(), 0.0);
    for g in 0..16 {
        scale(row, at + 16 * g, (16, 16), u32::from(short(scales, g / 4 * 2) >> (g % 4 * 3) & 7));
    }
    for i in 0..32 {
        let more = high[i / 2] >> (i % 2 * 4);
        put_moved(row, at + 8 * i, usize::from(low[i]) | usize::from(more & 7) << 8, more & 8 != 0);
    }
}
