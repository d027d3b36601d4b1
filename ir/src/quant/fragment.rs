//! Codes in fragment order ([`Packing::Fragment`](super::Packing::Fragment)): the inner loops of
//! packing and reading back.
//!
//! The order itself is [`layout::fragment_at`]. Four adjacent columns `4q..4q+4` of a row belong to
//! one lane and one mma step, and the places of their codes differ in fixed ways, so the loops go
//! by fours: halves `2h, 2h+1, 2h+4, 2h+5` with `h = r/8`.

use super::Encoding;
use llmcc_abi::layout::{by_fours, fragment_at, fragment_bits};

/// Scatters the codes of columns `from..` of row `r` over a block's codes. `codes` and `from` are
/// multiples of 4.
pub(super) fn put_codes(e: &Encoding, codes: &[u8], from: usize, r: usize, out: &mut [u8]) {
    for (q, four) in codes.chunks_exact(4).enumerate() {
        let (at, _) = fragment_at(e, r % 8, from + 4 * q);
        if by_fours(e) {
            let at = at + r / 8 * 4;
            out[at..at + 4].copy_from_slice(four);
        } else if fragment_bits(e) == 8 {
            let at = at + r / 8 * 2;
            out[at..at + 2].copy_from_slice(&four[..2]);
            out[at + 4..at + 6].copy_from_slice(&four[2..]);
        } else {
            for (byte, code) in out[at..at + 4].iter_mut().zip([four[0], four[2], four[1], four[3]]) {
                *byte |= code << (r / 8 * 4);
            }
        }
    }
}

/// The inverse of [`put_codes`].
pub(super) fn get_codes(e: &Encoding, block: &[u8], from: usize, r: usize, codes: &mut [u8]) {
    for (q, four) in codes.chunks_exact_mut(4).enumerate() {
        let (at, _) = fragment_at(e, r % 8, from + 4 * q);
        if by_fours(e) {
            let at = at + r / 8 * 4;
            four.copy_from_slice(&block[at..at + 4]);
        } else if fragment_bits(e) == 8 {
            let at = at + r / 8 * 2;
            four[..2].copy_from_slice(&block[at..at + 2]);
            four[2..].copy_from_slice(&block[at + 4..at + 6]);
        } else {
            let nibble = |i: usize| block[at + i] >> (r / 8 * 4) & 15;
            four.copy_from_slice(&[nibble(0), nibble(2), nibble(1), nibble(3)]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Elem, FORMATS, Float, Format, Packing, pack_block, unpack_row};
    use super::*;
    use half::{bf16, f16};
    use llmcc_abi::layout::FRAGMENT_K;

    /// `(row, column)` of register half `i` of the A operand of lane `lane`, as the PTX ISA
    /// describes `mma.m16n8k16` for 16-bit types.
    fn mma_a(lane: usize, i: usize) -> (usize, usize) {
        let (group, thread) = (lane / 4, lane % 4);
        let row = if i < 2 || (4..6).contains(&i) { group } else { group + 8 };
        let col = thread * 2 + (i & 1) + if i >= 4 { 8 } else { 0 };
        (row, col)
    }

    /// The code or element that a lane finds as half `i` of its A operand of mma step `step` in
    /// tile `tile`, read as the kernels read it: pieces of 16 bytes, 4-bit codes by shift and mask
    /// of a 32-bit word.
    fn lane_reads(e: &Encoding, codes: &[u8], tile: usize, lane: usize, step: usize, i: usize) -> u32 {
        let chunk = |c: usize, bytes: usize| &codes[tile * bytes + c * 512 + lane * 16..][..16];
        match fragment_bits(e) {
            32 => {
                let piece = chunk(2 * step + i / 4, 4096);
                u32::from_le_bytes(piece[i % 4 * 4..][..4].try_into().unwrap())
            }
            16 => u32::from(u16::from_le_bytes(chunk(step, 2048)[i * 2..][..2].try_into().unwrap())),
            // A word is a row's four columns of the step: pairs 0 and 2 of the halves, or 1 and 3.
            8 if by_fours(e) => chunk(step / 2, 1024)[step % 2 * 8 + i / 2 % 2 * 4 + i % 2 + i / 4 * 2].into(),
            8 => chunk(step / 2, 1024)[step % 2 * 8 + i].into(),
            _ => {
                let word = u32::from_le_bytes(chunk(0, 512)[step * 4..][..4].try_into().unwrap());
                let pair = word >> (4 * (i / 2)) & 0x000f_000f;
                if i.is_multiple_of(2) { pair & 0xffff } else { pair >> 16 }
            }
        }
    }

    /// An element that says where it is: its number among the 1024 of a tile, modulo the codes
    /// there are.
    fn number(r: usize, k: usize, codes: usize) -> usize {
        (r * FRAGMENT_K + k) * 7 % codes
    }

    /// Product of the tile with any vector through the A fragments: permuting the columns of A and
    /// the rows of B alike changes nothing, and lane `t` of a quad multiplies 16 adjacent columns.
    #[test]
    fn fragments_are_the_a_operand_with_adjacent_columns_per_lane() {
        for d in FORMATS.iter().filter(|d| d.encoding.is_quantized()) {
            let e = &d.encoding.by_itself();
            let codes = 1 << e.bits();
            let mut out = vec![0; 2 * llmcc_abi::layout::fragment_tile_bytes(e)];
            for r in 0..16 {
                let row: Vec<u8> = (0..2 * FRAGMENT_K).map(|k| number(r, k, codes) as u8).collect();
                put_codes(e, &row[..32], 0, r, &mut out);
                put_codes(e, &row[32..], 32, r, &mut out);
                let mut back = vec![0; 2 * FRAGMENT_K];
                get_codes(e, &out, 0, r, &mut back);
                assert_eq!(back, row);
            }
            each_half(|tile, lane, step, i, r, k| {
                assert_eq!(
                    lane_reads(e, &out, tile, lane, step, i),
                    number(r, k, codes) as u32,
                    "{} ({r}, {k})",
                    d.name
                );
            });
        }
    }

    /// Calls `f(tile, lane, step, half, row, column)` for every half of every lane.
    fn each_half(f: impl Fn(usize, usize, usize, usize, usize, usize)) {
        for at in 0..2 * 4 * 32 * 8 {
            let (tile, step, lane, i) = (at / 1024, at / 256 % 4, at / 8 % 32, at % 8);
            let (row, col) = mma_a(lane, i);
            // Column `col` of step `step` holds k = 16t + 4·step + e of the quad's lane t, where e
            // counts the lane's four columns of the step.
            let t = col % 8 / 2;
            let e = col % 2 + if col >= 8 { 2 } else { 0 };
            f(tile, lane, step, i, row, tile * FRAGMENT_K + 16 * t + 4 * step + e);
        }
    }

    /// `(row, column)` of byte `j` of register `r` of the A operand of lane `lane`, as the PTX ISA
    /// describes `mma.m16n8k32` for 8-bit types.
    fn mma_a8(lane: usize, r: usize, j: usize) -> (usize, usize) {
        (lane / 4 + r % 2 * 8, lane % 4 * 4 + j + r / 2 * 16)
    }

    /// A piece of 16 bytes is an A operand for 8-bit types, with the lane's columns of 16-bit
    /// steps, in another order.
    #[test]
    fn pieces_of_fp8_are_operands_of_8_bits() {
        let mut out = vec![0; llmcc_abi::layout::fragment_tile_bytes(&Encoding::FP8)];
        let code = |r: usize, k: usize| number(r, k, 251) as u8;
        for r in 0..16 {
            put_codes(&Encoding::FP8, &(0..FRAGMENT_K).map(|k| code(r, k)).collect::<Vec<_>>(), 0, r, &mut out);
        }
        for (piece, lane, r, j) in (0..1024).map(|i| (i / 512, i / 16 % 32, i / 4 % 4, i % 4)) {
            let (row, col) = mma_a8(lane, r, j);
            let (h, t) = (col / 16, col / 4 % 4);
            assert_eq!(out[piece * 512 + lane * 16 + 4 * r + j], code(row, 16 * t + 8 * piece + 4 * h + j));
        }
    }

    #[test]
    fn plain_formats_have_the_same_fragments() {
        for (format, k) in [(Format::F32, 128), (Format::F16, 100), (Format::BF16, 65)] {
            let format = format.with_packing(Packing::Fragment);
            let rows: Vec<f32> = (0..16 * k).map(|i| (i % 251) as f32).collect();
            let mut out = vec![0xAA; format.block_bytes(k)];
            pack_block(format, &rows, k, &mut out).unwrap();
            each_half(|tile, lane, step, i, r, c| {
                let x = if c < k { rows[r * k + c] } else { 0.0 };
                let bits = match format.encoding().float() {
                    Some(Float::F16) => f16::from_f32(x).to_bits().into(),
                    Some(Float::Bf16) => bf16::from_f32(x).to_bits().into(),
                    _ => x.to_bits(),
                };
                assert_eq!(lane_reads(&format.encoding(), &out, tile, lane, step, i), bits, "{format} ({r}, {c})");
            });
        }
    }

    #[test]
    fn the_order_is_the_published_function() {
        for d in FORMATS {
            let mut seen = std::collections::HashSet::new();
            for (r, k) in (0..16).flat_map(|r| (0..FRAGMENT_K).map(move |k| (r, k))) {
                let (at, bit) = fragment_at(&d.encoding, r, k);
                let bytes = llmcc_abi::layout::fragment_tile_bytes(&d.encoding);
                assert!((at + d.bits().div_ceil(8) as usize) <= bytes);
                assert!(seen.insert((at, bit)), "two elements share a place");
                if d.encoding.is_quantized() {
                    let mut out = vec![0; bytes];
                    let mut codes = vec![0; FRAGMENT_K];
                    codes[k] = 15;
                    put_codes(&d.encoding, &codes, 0, r, &mut out);
                    assert_eq!(out[at], 15 << bit);
                }
            }
        }
    }

    #[test]
    fn packings_store_the_same_values() {
        for d in FORMATS.iter().filter(|d| d.encoding.is_quantized()) {
            for (group, k, n) in d.groups.iter().flat_map(|g| [(*g, 200, 16), (*g, 31, 3), (*g, 33, 1), (*g, 64, 16)]) {
                let rows: Vec<f32> = (0..n * k).map(|i| ((i * 2_654_435_761) % 1000) as f32 / 500.0 - 1.0).collect();
                let read = |format: Format| {
                    let mut out = vec![0xAA; format.block_bytes(k)];
                    pack_block(format, &rows, k, &mut out).unwrap();
                    let mut back = vec![0f32; 16 * k];
                    back.chunks_mut(k).enumerate().for_each(|(r, row)| unpack_row(format, &out, k, r, row));
                    back
                };
                let panel = Format::new(Elem(d), group as u16);
                assert_eq!(read(panel), read(panel.with_packing(Packing::Fragment)), "{panel} k={k}");
            }
        }
    }
}
