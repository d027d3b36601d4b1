//! Packing rows of f32 into 16-row blocks, and reading rows back.

use super::{BLOCK, Elem, Format, Packing, fragment};
use half::{bf16, f16};
use llmcc_abi::layout;

/// Why a row cannot be stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PackError {
    /// NaN or infinity.
    #[error("row {row}, column {col} is not a finite number")]
    NotFinite {
        /// Row within the block.
        row: usize,
        /// Column.
        col: usize,
    },
    /// Finite, but not in the range of the format.
    #[error("row {row}, column {col} is too large for the format")]
    TooLarge {
        /// Row within the block.
        row: usize,
        /// Column (for quantized formats: the first of its group).
        col: usize,
    },
}

/// Packs up to 16 rows, `rows` holding them one after the other with `k` columns each, into one block.
///
/// `out` has [`Format::block_bytes`] bytes; every byte is written. Missing rows are stored as zeros.
///
/// # Errors
/// [`PackError`] with the first offending element.
pub fn pack_block(format: Format, rows: &[f32], k: usize, out: &mut [u8]) -> Result<(), PackError> {
    debug_assert_eq!(out.len(), format.block_bytes(k));
    debug_assert!(k > 0 && rows.len().is_multiple_of(k) && rows.len() <= BLOCK * k);
    check_finite(rows, k)?;
    out.fill(0);
    let half = |bytes: [u8; 2], finite: bool| finite.then_some(bytes);
    match format.elem {
        Elem::F32 => pack_plain(format, rows, k, out, |v| Some(v.to_le_bytes())),
        Elem::F16 => pack_plain(format, rows, k, out, |v| half(f16::from_f32(v).to_le_bytes(), f16::from_f32(v).is_finite())),
        Elem::Bf16 => pack_plain(format, rows, k, out, |v| half(bf16::from_f32(v).to_le_bytes(), bf16::from_f32(v).is_finite())),
        Elem::W8 | Elem::W4 | Elem::W4a | Elem::Fp8 => pack_quantized(format, rows, k, out),
    }
}

fn check_finite(rows: &[f32], k: usize) -> Result<(), PackError> {
    // The sum of magnitudes is NaN or infinite if any element is: one vectorised pass; the position is only looked for on failure.
    let bad = |v: &&f32| !v.is_finite();
    if rows.iter().fold(0u32, |m, v| m.max(v.to_bits() & 0x7fff_ffff)) < 0x7f80_0000 {
        return Ok(());
    }
    let at = rows.iter().position(|v| bad(&v)).unwrap_or(0);
    Err(PackError::NotFinite { row: at / k, col: at % k })
}

/// Byte offset of plain element `(r, c)` of `N` bytes in panels: `[k/pair][16][pair]` elements.
fn panel_at<const N: usize>(pair: usize, r: usize, c: usize) -> usize {
    ((c / pair * BLOCK + r) * pair + c % pair) * N
}

/// The same in fragment order, in which f16 and bf16 do not differ.
fn fragment_at<const N: usize>(r: usize, c: usize) -> usize {
    layout::fragment_at(if N == 2 { Elem::F16 } else { Elem::F32 }, r, c).0
}

/// Elements of `N` bytes. The order is chosen outside of the loops, which are most of the time of packing a model.
fn pack_plain<const N: usize>(
    format: Format,
    rows: &[f32],
    k: usize,
    out: &mut [u8],
    bytes: impl Fn(f32) -> Option<[u8; N]>,
) -> Result<(), PackError> {
    match (format.packing, format.elem) {
        (Packing::Panel, Elem::Bf16) => put_rows(rows, k, out, |r, c| panel_at::<N>(2, r, c), bytes),
        (Packing::Panel, _) => put_rows(rows, k, out, |r, c| panel_at::<N>(1, r, c), bytes),
        (Packing::Fragment, _) => put_rows(rows, k, out, fragment_at::<N>, bytes),
    }
}

fn put_rows<const N: usize>(
    rows: &[f32],
    k: usize,
    out: &mut [u8],
    at: impl Fn(usize, usize) -> usize,
    bytes: impl Fn(f32) -> Option<[u8; N]>,
) -> Result<(), PackError> {
    for (row, x) in rows.chunks_exact(k).enumerate() {
        for (col, v) in x.iter().enumerate() {
            let to = at(row, col);
            out[to..to + N].copy_from_slice(&bytes(*v).ok_or(PackError::TooLarge { row, col })?);
        }
    }
    Ok(())
}

fn pack_quantized(format: Format, rows: &[f32], k: usize, out: &mut [u8]) -> Result<(), PackError> {
    let (b, padded) = (format.block(k), format.padded_k(k));
    let group = columns_of_scale(format, padded);
    let def = format.def();
    let decode = def.decode.unwrap_or(super::Decode { zero: 0, min: false, float: false });
    let mut codes = vec![0u8; group];
    for r in 0..BLOCK {
        let row = rows.get(r * k..(r + 1) * k);
        for (g, from) in (0..padded).step_by(group).enumerate() {
            let width = group.min(padded - from);
            // Padding decodes to 0 (symmetric) or to an unused minimum (its activations are 0).
            codes[..width].fill(decode.zero as u8);
            let (scale, min) = match row {
                Some(row) => {
                    // A group may be all padding.
                    let x = &row[from.min(k)..k.min(from + group)];
                    (def.quantize)(x, &mut codes[..x.len()])
                }
                None => (0.0, 0.0),
            };
            if !scale.is_finite() || !min.is_finite() {
                return Err(PackError::TooLarge { row: r, col: from });
            }
            let scales = b.scales_of(g) + r * 2;
            put_f16(out, scales, scale);
            if decode.min {
                put_f16(out, scales + b.mins, min);
            }
            match format.packing {
                Packing::Panel => put_codes(format.elem, &codes[..width], r, &mut out[b.codes_of(g)..]),
                Packing::Fragment => fragment::put_codes(format.elem, &codes[..width], from, r, &mut out[b.codes..]),
            }
        }
    }
    Ok(())
}

/// Columns that share a scale, in rows of `padded` columns.
fn columns_of_scale(format: Format, padded: usize) -> usize {
    if format.def().by_row() { padded } else { usize::from(format.group).max(1) }
}

fn put_f16(out: &mut [u8], at: usize, x: f32) {
    out[at..at + 2].copy_from_slice(&f16::from_f32(x).to_le_bytes());
}

/// Scatters the codes of a group of row `r` into chunks of 64 bytes. `codes` is a multiple of 32 long.
fn put_codes(elem: Elem, codes: &[u8], r: usize, out: &mut [u8]) {
    if matches!(elem, Elem::W8 | Elem::Fp8) {
        for (c, quad) in codes.chunks_exact(4).enumerate() {
            let at = c * 64 + r * 4;
            out[at..at + 4].copy_from_slice(quad);
        }
    } else {
        for (c, eight) in codes.chunks_exact(8).enumerate() {
            let at = c * 64 + r * 4;
            for j in 0..4 {
                out[at + j] = eight[j] | eight[4 + j] << 4;
            }
        }
    }
}

/// Row `row` of a packed `[n, k]` matrix, decoded to f32.
pub fn unpack_row(format: Format, packed: &[u8], k: usize, row: usize, out: &mut [f32]) {
    let bytes = format.block_bytes(k);
    let block = &packed[row / BLOCK * bytes..][..bytes];
    let r = row % BLOCK;
    let out = &mut out[..k];
    match format.elem {
        Elem::F32 => unpack_plain(format, block, r, out, f32::from_le_bytes),
        Elem::F16 => unpack_plain(format, block, r, out, |b| f16::from_le_bytes(b).to_f32()),
        Elem::Bf16 => unpack_plain(format, block, r, out, |b| bf16::from_le_bytes(b).to_f32()),
        Elem::W8 | Elem::W4 | Elem::W4a | Elem::Fp8 => unpack_quantized(format, block, r, out),
    }
}

fn unpack_plain<const N: usize>(format: Format, block: &[u8], r: usize, out: &mut [f32], value: impl Fn([u8; N]) -> f32) {
    match (format.packing, format.elem) {
        (Packing::Panel, Elem::Bf16) => get_row(block, out, |c| panel_at::<N>(2, r, c), value),
        (Packing::Panel, _) => get_row(block, out, |c| panel_at::<N>(1, r, c), value),
        (Packing::Fragment, _) => get_row(block, out, |c| fragment_at::<N>(r, c), value),
    }
}

fn get_row<const N: usize>(block: &[u8], out: &mut [f32], at: impl Fn(usize) -> usize, value: impl Fn([u8; N]) -> f32) {
    for (c, v) in out.iter_mut().enumerate() {
        let mut bytes = [0; N];
        bytes.copy_from_slice(&block[at(c)..at(c) + N]);
        *v = value(bytes);
    }
}

fn unpack_quantized(format: Format, block: &[u8], r: usize, out: &mut [f32]) {
    let group = columns_of_scale(format, out.len());
    let b = format.block(out.len());
    let decode = format.def().decode.unwrap_or(super::Decode { zero: 0, min: false, float: false });
    let mut codes = vec![0u8; group.next_multiple_of(8)];
    let get_f16 = |at: usize| f16::from_le_bytes([block[at], block[at + 1]]).to_f32();
    for (g, run) in out.chunks_mut(group).enumerate() {
        let scales = b.scales_of(g) + r * 2;
        let scale = get_f16(scales);
        let min = if decode.min { get_f16(scales + b.mins) } else { 0.0 };
        let wanted = &mut codes[..run.len().next_multiple_of(8)];
        match format.packing {
            Packing::Panel => get_codes(format.elem, &block[b.codes_of(g)..], r, wanted),
            Packing::Fragment => fragment::get_codes(format.elem, &block[b.codes..], g * group, r, wanted),
        }
        run.iter_mut().zip(&codes).for_each(|(v, u)| *v = decode.value(*u, scale, min));
    }
}

/// The inverse of [`put_codes`]; `codes` is a multiple of 8 long.
fn get_codes(elem: Elem, from_block: &[u8], r: usize, codes: &mut [u8]) {
    if matches!(elem, Elem::W8 | Elem::Fp8) {
        for (c, quad) in codes.chunks_exact_mut(4).enumerate() {
            let at = c * 64 + r * 4;
            quad.copy_from_slice(&from_block[at..at + 4]);
        }
    } else {
        for (c, eight) in codes.chunks_exact_mut(8).enumerate() {
            let at = c * 64 + r * 4;
            for j in 0..4 {
                let byte = from_block[at + j];
                eight[j] = byte & 15;
                eight[4 + j] = byte >> 4;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::FORMATS;
    use super::*;
    use proptest::prelude::*;

    fn formats() -> Vec<Format> {
        let panels = FORMATS.iter().flat_map(|d| d.groups().iter().map(|group| Format::new(d.elem, *group as u16)));
        panels.flat_map(|f| [f, f.with_packing(Packing::Fragment)]).collect()
    }

    /// Largest error of a format on a group: half a step, a code clipped at the short end of the symmetric range, and f16 rounding of scale and minimum.
    fn bound(format: Format, x: &[f32]) -> f32 {
        let amax = x.iter().fold(0f32, |m, v| m.max(v.abs()));
        let tiny = 2f32.powi(-24) * 256.0;
        match format.elem {
            Elem::F32 => 0.0,
            Elem::F16 => amax * 2f32.powi(-11) + tiny,
            Elem::Bf16 => amax * 2f32.powi(-8),
            Elem::W8 => amax * (0.5 / 127.0 + 2f32.powi(-10)) + tiny,
            Elem::W4 => amax * (1.0 / 8.0 + 2f32.powi(-8)) + tiny,
            Elem::W4a => amax * (2.0 / 15.0 * 0.5 + 2f32.powi(-7)) + tiny,
            // Half of the largest step, 32 of 448.
            Elem::Fp8 => amax * (16.0 / 448.0 + 2f32.powi(-11)) + tiny,
        }
    }

    proptest! {
        #[test]
        fn packed_rows_read_back_within_half_a_step(seed in 0u64..1000, n in 1usize..17, k in 1usize..300) {
            let mut s = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
            let rows: Vec<f32> = (0..n * k).map(|_| {
                s ^= s << 13; s ^= s >> 7; s ^= s << 17;
                (s >> 40) as f32 / (1u64 << 23) as f32 - 1.0
            }).collect();
            for f in formats() {
                let mut block = vec![0xAA; f.block_bytes(k)];
                pack_block(f, &rows, k, &mut block).unwrap();
                let mut back = vec![0f32; k];
                for r in 0..n {
                    unpack_row(f, &block, k, r, &mut back);
                    let group = if f.group == 0 { k } else { f.group.into() };
                    for (x, y) in rows[r * k..(r + 1) * k].chunks(group).zip(back.chunks(group)) {
                        for (a, b) in x.iter().zip(y) {
                            prop_assert!((a - b).abs() <= bound(f, x), "{f}: {a} came back as {b}");
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn not_a_number_and_overflow_are_located() {
        let mut rows = vec![0.5f32; 3 * 40];
        rows[47] = f32::NAN;
        for f in formats() {
            let mut block = vec![0; f.block_bytes(40)];
            assert_eq!(pack_block(f, &rows, 40, &mut block), Err(PackError::NotFinite { row: 1, col: 7 }), "{f}");
        }
        rows[47] = 1e30;
        let w4 = Format::new(Elem::W4, 32);
        let mut block = vec![0; w4.block_bytes(40)];
        assert_eq!(pack_block(w4, &rows, 40, &mut block), Err(PackError::TooLarge { row: 1, col: 0 }));
    }

    #[test]
    fn names_round_trip() {
        for f in formats() {
            assert_eq!(Format::parse(&f.to_string()), Some(f));
        }
        assert_eq!(Format::parse("w4g33"), None);
        assert_eq!(Format::parse("w4"), None);
        assert_eq!(Format::parse("fp8"), Some(Format::FP8));
        assert_eq!(Format::parse("fp8g32"), None);
        assert_eq!(Format::parse("fp8g0"), None);
        assert_eq!(Format::parse("bf16g32"), None);
        assert_eq!(Format::parse("w4.fragg32"), None);
        assert_eq!(Format::parse("w4g32.frag").map(|f| f.packing), Some(Packing::Fragment));
    }
}
