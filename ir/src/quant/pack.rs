//! Packing rows of f32 into 16-row blocks, and reading rows back.

use super::{BLOCK, Encoding, Float, Format, Packing, Quantize, ScaleKind, fragment, scale};
use half::{bf16, f16};
use llmcc_abi::encoding::planes;
use llmcc_abi::layout::{self, K_PAD};

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

/// Packs up to 16 rows, `rows` holding them one after the other with `k` columns each, into one
/// block.
///
/// `out` has [`Format::block_bytes`] bytes; every byte is written. Missing rows are stored as
/// zeros.
///
/// # Errors
/// [`PackError`] with the first offending element.
pub fn pack_block(format: Format, rows: &[f32], k: usize, out: &mut [u8]) -> Result<(), PackError> {
    debug_assert_eq!(out.len(), format.block_bytes(k));
    debug_assert!(k > 0 && rows.len().is_multiple_of(k) && rows.len() <= BLOCK * k);
    check_finite(rows, k)?;
    out.fill(0);
    let half = |bytes: [u8; 2], finite: bool| finite.then_some(bytes);
    match format.encoding().float() {
        Some(Float::F32) => pack_plain(format, rows, k, out, |v| Some(v.to_le_bytes())),
        Some(Float::F16) => {
            pack_plain(format, rows, k, out, |v| half(f16::from_f32(v).to_le_bytes(), f16::from_f32(v).is_finite()))
        }
        Some(Float::Bf16) => {
            pack_plain(format, rows, k, out, |v| half(bf16::from_f32(v).to_le_bytes(), bf16::from_f32(v).is_finite()))
        }
        Some(Float::E4m3) | None => pack_quantized(format, rows, k, out),
    }
}

fn check_finite(rows: &[f32], k: usize) -> Result<(), PackError> {
    // The sum of magnitudes is NaN or infinite if any element is: one vectorised pass; the position
    // is only looked for on failure.
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
    layout::fragment_at(if N == 2 { &Encoding::F16 } else { &Encoding::F32 }, r, c).0
}

/// Elements of `N` bytes. The order is chosen outside of the loops, which are most of the time of
/// packing a model.
fn pack_plain<const N: usize>(
    format: Format,
    rows: &[f32],
    k: usize,
    out: &mut [u8],
    bytes: impl Fn(f32) -> Option<[u8; N]>,
) -> Result<(), PackError> {
    match (format.packing, format.encoding().float()) {
        (Packing::Panel, Some(Float::Bf16)) => put_rows(rows, k, out, |r, c| panel_at::<N>(2, r, c), bytes),
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

/// The columns of a quantized row.
struct Columns {
    /// Those that share a scale.
    group: usize,
    /// Those that are quantized together: a super-group, or a group.
    unit: usize,
}

impl Columns {
    /// Of rows of `padded` columns.
    fn of(e: &Encoding, padded: usize) -> Columns {
        let group = e.group().map_or(padded, |g| g.max(1));
        Columns { group, unit: e.super_group().unwrap_or(group) }
    }
}

/// The kinds of the scales, and of those above them.
fn kinds(e: &Encoding) -> (ScaleKind, Option<ScaleKind>) {
    (e.scales[0].map_or(ScaleKind::F16, |s| s.kind), e.scales[1].map(|s| s.kind))
}

fn pack_quantized(format: Format, rows: &[f32], k: usize, out: &mut [u8]) -> Result<(), PackError> {
    let (b, padded, e) = (format.block(k), format.padded_k(k), format.encoding());
    let (columns, (kind, above)) = (Columns::of(&e, padded), kinds(&e));
    let mut codes = vec![0u8; columns.unit];
    let mut factors = vec![(0f32, 0f32); columns.unit.div_ceil(columns.group)];
    for r in 0..BLOCK {
        let row = rows.get(r * k..(r + 1) * k);
        for (unit, from) in (0..padded).step_by(columns.unit).enumerate() {
            let width = columns.unit.min(padded - from);
            // Padding decodes to 0, where there is a code for it, or to something unused (its
            // activations are 0).
            codes[..width].fill(e.zero_code());
            // A group may be all padding.
            let x = row.map(|row| &row[from.min(k)..k.min(from + columns.unit)]);
            let of_unit = x.map_or((0.0, 0.0), |x| quantize(format, x, &mut codes[..x.len()], &mut factors));
            if x.is_none() {
                factors.fill((0.0, 0.0));
            }
            let finite = |(scale, min): &(f32, f32)| scale.is_finite() && min.is_finite();
            if !finite(&of_unit) || !factors.iter().all(finite) {
                return Err(PackError::TooLarge { row: r, col: from });
            }
            if let Some(above) = above {
                let at = b.above_of(unit) + r * above.bytes();
                scale::put(above, of_unit.0, &mut out[at..]);
                if e.scales[1].is_some_and(|s| s.minimum) {
                    scale::put(above, of_unit.1, &mut out[at + b.above_mins..]);
                }
            }
            for (g, (scale, min)) in (from / columns.group..).zip(&factors[..width.div_ceil(columns.group)]) {
                let at = b.scales_of(g) + r * kind.bytes();
                scale::put(kind, *scale, &mut out[at..]);
                if e.has_minimum() {
                    scale::put(kind, *min, &mut out[at + b.mins..]);
                }
            }
            match format.packing {
                Packing::Fragment => fragment::put_codes(&e, &codes[..width], from, r, &mut out[b.codes..]),
                Packing::Panel => {
                    for (g, codes) in (from / columns.group..).zip(codes[..width].chunks(columns.group)) {
                        put_codes(e.bits(), codes, r, &mut out[b.codes_of(g)..]);
                    }
                }
            }
        }
    }
    Ok(())
}

/// Quantizes columns that go together: the scales of their groups to `factors`; returns the scales
/// of those.
fn quantize(format: Format, x: &[f32], codes: &mut [u8], factors: &mut [(f32, f32)]) -> (f32, f32) {
    match format.def().quantize {
        Quantize::Round => (0.0, 0.0),
        Quantize::Group(f) => {
            factors[0] = f(x, codes);
            (0.0, 0.0)
        }
        Quantize::Super(f) => {
            let mut coded = vec![(0u8, 0u8); factors.len()];
            let above = f(x, codes, &mut coded);
            factors.iter_mut().zip(&coded).for_each(|(f, c)| *f = (c.0.into(), c.1.into()));
            above
        }
    }
}

/// Scatters the codes of a group of row `r` into chunks of 64 bytes, which are zero. `codes` is a
/// multiple of 32 long.
fn put_codes(bits: u32, codes: &[u8], r: usize, out: &mut [u8]) {
    match bits {
        8 => {
            for (c, quad) in codes.chunks_exact(4).enumerate() {
                let at = c * 64 + r * 4;
                out[at..at + 4].copy_from_slice(quad);
            }
        }
        4 => {
            for (c, eight) in codes.chunks_exact(8).enumerate() {
                let at = c * 64 + r * 4;
                for j in 0..4 {
                    out[at + j] = eight[j] | eight[4 + j] << 4;
                }
            }
        }
        _ => each_place(bits, codes.len(), r, |i, at, shift, base, mask| out[at] |= (codes[i] >> base & mask) << shift),
    }
}

/// Calls `f(column, byte, bit in the byte, lowest bit of the code, bits)` for every plane of each
/// code of row `r` of a group.
fn each_place(bits: u32, columns: usize, r: usize, mut f: impl FnMut(usize, usize, u32, u32, u8)) {
    let (widths, count) = planes(bits);
    for i in 0..columns {
        let (mut plane, mut base) = (i / K_PAD * K_PAD * 2 * bits as usize, 0);
        for width in &widths[..count] {
            let (in_word, of) = (32 / *width as usize, i % K_PAD);
            let shift = (of % in_word / 4) as u32 * width;
            f(i, plane + of / in_word * 64 + r * 4 + of % 4, shift, base, 0xff >> (8 - width));
            base += width;
            plane += 64 * *width as usize;
        }
    }
}

/// Row `row` of a packed `[n, k]` matrix, decoded to f32.
pub fn unpack_row(format: Format, packed: &[u8], k: usize, row: usize, out: &mut [f32]) {
    let bytes = format.block_bytes(k);
    let block = &packed[row / BLOCK * bytes..][..bytes];
    let r = row % BLOCK;
    let out = &mut out[..k];
    match format.encoding().float() {
        Some(Float::F32) => unpack_plain(format, block, r, out, f32::from_le_bytes),
        Some(Float::F16) => unpack_plain(format, block, r, out, |b| f16::from_le_bytes(b).to_f32()),
        Some(Float::Bf16) => unpack_plain(format, block, r, out, |b| bf16::from_le_bytes(b).to_f32()),
        Some(Float::E4m3) | None => unpack_quantized(format, block, r, out),
    }
}

fn unpack_plain<const N: usize>(
    format: Format,
    block: &[u8],
    r: usize,
    out: &mut [f32],
    value: impl Fn([u8; N]) -> f32,
) {
    match (format.packing, format.encoding().float()) {
        (Packing::Panel, Some(Float::Bf16)) => get_row(block, out, |c| panel_at::<N>(2, r, c), value),
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
    let (b, e) = (format.block(out.len()), format.encoding());
    let (Columns { group, unit }, (kind, above)) = (Columns::of(&e, out.len()), kinds(&e));
    let mut codes = vec![0u8; group.next_multiple_of(8)];
    for (g, run) in out.chunks_mut(group).enumerate() {
        let at = b.scales_of(g) + r * kind.bytes();
        let mut scale = scale::get(kind, &block[at..]);
        let mut min = if e.has_minimum() { scale::get(kind, &block[at + b.mins..]) } else { 0.0 };
        if let Some(above) = above {
            let at = b.above_of(g * group / unit) + r * above.bytes();
            scale *= scale::get(above, &block[at..]);
            min *= if e.scales[1].is_some_and(|s| s.minimum) {
                scale::get(above, &block[at + b.above_mins..])
            } else {
                1.0
            };
        }
        let wanted = &mut codes[..run.len().next_multiple_of(8)];
        match format.packing {
            Packing::Panel => get_codes(e.bits(), &block[b.codes_of(g)..], r, wanted),
            Packing::Fragment => fragment::get_codes(&e, &block[b.codes..], g * group, r, wanted),
        }
        match e.has_minimum() {
            true => run.iter_mut().zip(&codes).for_each(|(v, u)| *v = scale.mul_add(e.number(*u), min)),
            false => run.iter_mut().zip(&codes).for_each(|(v, u)| *v = scale * e.number(*u)),
        }
    }
}

/// The inverse of [`put_codes`]; `codes` is a multiple of 8 long.
fn get_codes(bits: u32, from_block: &[u8], r: usize, codes: &mut [u8]) {
    match bits {
        8 => {
            for (c, quad) in codes.chunks_exact_mut(4).enumerate() {
                let at = c * 64 + r * 4;
                quad.copy_from_slice(&from_block[at..at + 4]);
            }
        }
        4 => {
            for (c, eight) in codes.chunks_exact_mut(8).enumerate() {
                let at = c * 64 + r * 4;
                for j in 0..4 {
                    let byte = from_block[at + j];
                    eight[j] = byte & 15;
                    eight[4 + j] = byte >> 4;
                }
            }
        }
        _ => {
            codes.fill(0);
            each_place(bits, codes.len(), r, |i, at, shift, base, mask| {
                codes[i] |= (from_block[at] >> shift & mask) << base
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Elem, FORMATS, FormatDef};
    use super::*;
    use proptest::prelude::*;

    fn formats() -> Vec<Format> {
        FORMATS.iter().flat_map(FormatDef::formats).flat_map(|f| [f, f.with_packing(Packing::Fragment)]).collect()
    }

    /// Largest error of a format on a group: half a step, a code clipped at the short end of the
    /// symmetric range, and f16 rounding of scale and minimum.
    fn bound(format: Format, x: &[f32]) -> f32 {
        let amax = x.iter().fold(0f32, |m, v| m.max(v.abs()));
        let tiny = 2f32.powi(-24) * 256.0;
        match format.def().name {
            "f32" => 0.0,
            "f16" => amax * 2f32.powi(-11) + tiny,
            "bf16" => amax * 2f32.powi(-8),
            "w8" => amax * (0.5 / 127.0 + 2f32.powi(-10)) + tiny,
            "w4" => amax * (1.0 / 8.0 + 2f32.powi(-8)) + tiny,
            "w4a" => amax * (2.0 / 15.0 * 0.5 + 2f32.powi(-7)) + tiny,
            // Half of the largest step, 32 of 448.
            "fp8" => amax * (16.0 / 448.0 + 2f32.powi(-11)) + tiny,
            // Half of the largest distance of two numbers, 0.3038.
            "nf4" => amax * 0.152,
            // Half a step of all numbers from the least to the largest, a code of the step half a
            // unit too small (15 times), one of the minimum, and f16 scales.
            "q4k" => amax * (1.0 / 15.0 + 1.0 / 63.0 + 0.5 / 63.0 + 2f32.powi(-8)) + tiny,
            name => panic!("the bound of {name} belongs here"),
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
                    let e = f.encoding();
                    let group = e.super_group().or(e.group()).unwrap_or(k);
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
