//! Types of tensors in GGUF files: their blocks of columns, and their formats in the table.
//!
//! Layouts follow `ggml-common.h`; every decoder writes the codes and scales of one block.

use super::bits::{SUPER, half, put};
use super::vectors;
use crate::checkpoint::safetensors::StoredType;
use llmcc_ir::quant::{CodedRow, Elem, Format, e4m3_to_f32, e8m0_to_f32};
use llmcc_ir::ty::DType;

/// A type of tensors.
#[derive(Debug)]
pub struct BlockType {
    /// Its number in files.
    number: u32,
    /// GGML's name.
    pub name: &'static str,
    /// Columns of a block.
    pub columns: usize,
    /// Bytes of a block.
    pub bytes: usize,
    /// How readers describe the tensor.
    pub stored: StoredType,
    /// Reads the block of a row whose first column is given; `None` for plain elements.
    pub read: Option<fn(&[u8], &mut CodedRow, usize)>,
}

/// The remedy for an unsupported type.
pub(super) const OTHER_TYPE: &str =
    "take the file of the same model in another quantization, for example Q4_K_M or Q8_0";

const fn plain(number: u32, name: &'static str, bytes: usize, dtype: DType) -> BlockType {
    let stored = StoredType { name, bits: 8 * bytes as u64, dtype: Some(dtype) };
    BlockType { number, name, columns: 1, bytes, stored, read: None }
}

const fn coded(
    number: u32,
    name: &'static str,
    (columns, bytes): (usize, usize),
    (elem, group): (Elem, u16),
    read: fn(&[u8], &mut CodedRow, usize),
) -> BlockType {
    let dtype = DType::Coded(Format::new(elem, group));
    let bits = (8 * bytes / columns) as u64;
    BlockType { number, name, columns, bytes, stored: StoredType { name, bits, dtype: Some(dtype) }, read: Some(read) }
}

/// All types that are read.
static TYPES: &[BlockType] = &[
    plain(0, "F32", 4, DType::F32),
    plain(1, "F16", 2, DType::F16),
    plain(30, "BF16", 2, DType::Bf16),
    plain(24, "I8", 1, DType::I8),
    plain(26, "I32", 4, DType::I32),
    coded(2, "Q4_0", (32, 18), (Elem::W4, 32), |b, row, at| {
        group(row, at, 32, half(b, 0), 0.0);
        nibbles(&b[2..18], row, at);
    }),
    coded(3, "Q4_1", (32, 20), (Elem::W4A, 32), |b, row, at| {
        group(row, at, 32, half(b, 0), half(b, 2));
        nibbles(&b[4..20], row, at);
    }),
    coded(6, "Q5_0", (32, 22), (Elem::named("w5"), 32), |b, row, at| {
        group(row, at, 32, half(b, 0), 0.0);
        nibbles(&b[6..22], row, at);
        fifth_bits(&b[2..6], row, at);
    }),
    coded(7, "Q5_1", (32, 24), (Elem::named("w5a"), 32), |b, row, at| {
        group(row, at, 32, half(b, 0), half(b, 2));
        nibbles(&b[8..24], row, at);
        fifth_bits(&b[4..8], row, at);
    }),
    coded(8, "Q8_0", (32, 34), (Elem::W8, 32), |b, row, at| {
        group(row, at, 32, half(b, 0), 0.0);
        // Two's complement as a number from 128.
        put(row, at, b[2..34].iter().map(|u| u ^ 0x80));
    }),
    coded(10, "Q2_K", (SUPER, 84), (Elem::named("q2k"), 16), q2_k),
    coded(11, "Q3_K", (SUPER, 110), (Elem::named("q3k"), 16), q3_k),
    coded(12, "Q4_K", (SUPER, 144), (Elem::named("q4k"), 32), |b, row, at| {
        k_scales(b, row, at);
        pairs(&b[16..144], row, at, |_, _| 0);
    }),
    coded(13, "Q5_K", (SUPER, 176), (Elem::named("q5k"), 32), |b, row, at| {
        k_scales(b, row, at);
        let high = &b[16..48];
        pairs(&b[48..176], row, at, |group, i| (high[i] >> group & 1) << 4);
    }),
    coded(14, "Q6_K", (SUPER, 210), (Elem::named("q6k"), 16), q6_k),
    coded(15, "Q8_K", (SUPER, 292), (Elem::named("q8k"), SUPER as u16), |b, row, at| {
        let scale = f32::from_le_bytes([b[0], b[1], b[2], b[3]]);
        group(row, at, SUPER, scale, 0.0);
        put(row, at, b[4..260].iter().copied());
    }),
    coded(20, "IQ4_NL", (32, 18), (Elem::named("iq4nl"), 32), |b, row, at| {
        group(row, at, 32, half(b, 0), 0.0);
        nibbles(&b[2..18], row, at);
    }),
    coded(23, "IQ4_XS", (SUPER, 136), (Elem::named("iq4xs"), 32), |b, row, at| {
        let high = u16::from_le_bytes([b[2], b[3]]);
        row.above[at / SUPER] = (half(b, 0), 0.0);
        for g in 0..8 {
            let low = b[4 + g / 2] >> (g % 2 * 4) & 15;
            let code = u16::from(low) | (high >> (2 * g) & 3) << 4;
            row.factors[at / 32 + g] = (f32::from(code) - 32.0, 0.0);
            nibbles(&b[8 + 16 * g..24 + 16 * g], row, at + 32 * g);
        }
    }),
    coded(34, "TQ1_0", (SUPER, 54), (Elem::named("ternary"), SUPER as u16), tq1_0),
    coded(35, "TQ2_0", (SUPER, 66), (Elem::named("ternary"), SUPER as u16), |b, row, at| {
        group(row, at, SUPER, half(b, 64), 0.0);
        put(row, at, (0..SUPER).map(|i| b[i / 128 * 32 + i % 32] >> (i % 128 / 32 * 2) & 3));
    }),
    coded(39, "MXFP4", (32, 17), (Elem::named("mxfp4"), 32), |b, row, at| {
        group(row, at, 32, e8m0_to_f32(b[0]), 0.0);
        nibbles(&b[1..17], row, at);
    }),
    coded(40, "NVFP4", (64, 36), (Elem::named("nvfp4"), 16), |b, row, at| {
        row.above[at / SUPER] = (1.0, 0.0);
        for g in 0..4 {
            // Without a sign; the code of NaN is 0 in GGML.
            let code = b[g] & 0x7f;
            group(row, at + 16 * g, 16, if code == 0x7f { 0.0 } else { e4m3_to_f32(code) }, 0.0);
            nibbles(&b[4 + 8 * g..12 + 8 * g], row, at + 16 * g);
        }
    }),
    coded(16, "IQ2_XXS", (SUPER, 66), (Elem::named("iq2"), 16), vectors::iq2_xxs),
    coded(17, "IQ2_XS", (SUPER, 74), (Elem::named("iq2"), 16), vectors::iq2_xs),
    coded(22, "IQ2_S", (SUPER, 82), (Elem::named("iq2"), 16), vectors::iq2_s),
    coded(18, "IQ3_XXS", (SUPER, 98), (Elem::named("iq3"), 32), vectors::iq3_xxs),
    coded(21, "IQ3_S", (SUPER, 110), (Elem::named("iq3s"), 32), vectors::iq3_s),
    coded(19, "IQ1_S", (SUPER, 50), (Elem::named("iq2"), 16), vectors::iq1_s),
    coded(29, "IQ1_M", (SUPER, 56), (Elem::named("iq2"), 16), vectors::iq1_m),
];

/// The type of that number.
pub(super) fn by_number(number: u32) -> Option<&'static BlockType> {
    TYPES.iter().find(|t| t.number == number)
}

/// The type that GGML calls so.
pub(crate) fn named(name: &str) -> Option<&'static BlockType> {
    TYPES.iter().find(|t| t.name == name)
}

/// F32, which is the first.
pub(crate) fn floats() -> &'static StoredType {
    &TYPES[0].stored
}

/// The type that readers describe so.
pub(crate) fn of(stored: &StoredType) -> Option<&'static BlockType> {
    TYPES.iter().find(|t| std::ptr::eq(&t.stored, stored))
}

/// The name of an unsupported type.
pub(super) fn unknown(number: u32) -> String {
    let name = match number {
        4 => "Q4_2",
        5 => "Q4_3",
        9 => "Q8_1",
        25 => "I16",
        27 => "I64",
        28 => "F64",
        31 => "Q4_0_4_4",
        32 => "Q4_0_4_8",
        33 => "Q4_0_8_8",
        // bitnet.cpp's I2_S has the same number.
        36 => "IQ4_NL_4_4 (or I2_S of bitnet.cpp)",
        37 => "IQ4_NL_4_8",
        38 => "IQ4_NL_8_8",
        41 => "Q1_0",
        _ => return format!("{number}, which is not known"),
    };
    format!("{name}, which is not read")
}

/// Scale and minimum of the group of `columns` columns that starts at `at`.
fn group(row: &mut CodedRow, at: usize, columns: usize, scale: f32, min: f32) {
    row.factors[at / columns] = (scale, min);
}

/// Two codes in each byte: the low nibbles, then the high ones.
fn nibbles(b: &[u8], row: &mut CodedRow, at: usize) {
    put(row, at, b.iter().map(|u| u & 15).chain(b.iter().map(|u| u >> 4)));
}

fn fifth_bits(b: &[u8], row: &mut CodedRow, at: usize) {
    for (i, c) in row.codes[at..at + 32].iter_mut().enumerate() {
        *c |= (b[i / 8] >> (i % 8) & 1) << 4;
    }
}

/// Super-blocks of `Q4_K` and `Q5_K`: two f16, and 8 pairs of 6-bit codes in 12 bytes.
fn k_scales(b: &[u8], row: &mut CodedRow, at: usize) {
    row.above[at / SUPER] = (half(b, 0), -half(b, 2));
    let packed = &b[4..16];
    for g in 0..8 {
        let (scale, min) = match g {
            0..4 => (packed[g] & 63, packed[g + 4] & 63),
            _ => (packed[g + 4] & 15 | packed[g - 4] >> 6 << 4, packed[g + 4] >> 4 | packed[g] >> 6 << 4),
        };
        row.factors[at / 32 + g] = (scale.into(), min.into());
    }
}

/// 8 groups of 32 codes in 128 bytes: two share 32 bytes. `high(group, i)` is added.
fn pairs(b: &[u8], row: &mut CodedRow, at: usize, high: impl Fn(usize, usize) -> u8) {
    for g in 0..8 {
        let bytes = &b[g / 2 * 32..][..32];
        put(row, at + 32 * g, bytes.iter().enumerate().map(|(i, u)| (u >> (g % 2 * 4) & 15) | high(g, i)));
    }
}

/// The byte of a column of `Q2_K` and `Q3_K`, and its two bits.
fn two_bits(b: &[u8], i: usize) -> u8 {
    b[i / 128 * 32 + i % 32] >> (i % 128 / 32 * 2) & 3
}

fn q2_k(b: &[u8], row: &mut CodedRow, at: usize) {
    row.above[at / SUPER] = (half(b, 80), -half(b, 82));
    for (g, u) in b[..16].iter().enumerate() {
        row.factors[at / 16 + g] = ((u & 15).into(), (u >> 4).into());
    }
    put(row, at, (0..SUPER).map(|i| two_bits(&b[16..80], i)));
}

fn q3_k(b: &[u8], row: &mut CodedRow, at: usize) {
    let (high, scales) = (&b[..32], &b[96..108]);
    row.above[at / SUPER] = (half(b, 108), 0.0);
    for g in 0..16 {
        let low = scales[g % 8] >> (g / 8 * 4) & 15;
        let code = low | (scales[8 + g % 4] >> (g / 4 * 2) & 3) << 4;
        row.factors[at / 16 + g] = (f32::from(code) - 32.0, 0.0);
    }
    put(row, at, (0..SUPER).map(|i| two_bits(&b[32..96], i) | (high[i % 32] >> (i / 32) & 1) << 2));
}

fn q6_k(b: &[u8], row: &mut CodedRow, at: usize) {
    let (low, high) = (&b[..128], &b[128..192]);
    row.above[at / SUPER] = (half(b, 208), 0.0);
    for (g, u) in b[192..208].iter().enumerate() {
        row.factors[at / 16 + g] = (f32::from(*u as i8), 0.0);
    }
    let code = |i: usize| {
        let (part, j) = (i / 128, i % 128);
        let four = low[part * 64 + j % 64] >> (j / 64 * 4) & 15;
        four | (high[part * 32 + j % 32] >> (j / 32 * 2) & 3) << 4
    };
    put(row, at, (0..SUPER).map(code));
}

/// Five digits of base 3 in a byte, as a fraction of 256, and four in the last bytes.
fn tq1_0(b: &[u8], row: &mut CodedRow, at: usize) {
    const POWERS: [u8; 5] = [1, 3, 9, 27, 81];
    group(row, at, SUPER, half(b, 52), 0.0);
    let digit = |byte: u8, n: usize| ((u16::from(byte.wrapping_mul(POWERS[n])) * 3) >> 8) as u8;
    let run = |bytes: &[u8], digits: usize| -> Vec<u8> {
        (0..digits).flat_map(|n| bytes.iter().map(move |u| digit(*u, n))).collect()
    };
    let all = [run(&b[..32], 5), run(&b[32..48], 5), run(&b[48..52], 4)].concat();
    put(row, at, all.into_iter());
}
