//! Packing rows of f32 into 16-row blocks, and reading rows back.

use super::{
    BLOCK, Code, CodedRow, Encoding, Float, Format, Packing, Quantize, ScaleKind, e4m3_to_f32, fragment, scale, trellis,
};
use half::{bf16, f16};
use llmcc_abi::layout::{self, K_PAD, pair_at};
use std::borrow::Cow;

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

/// Refuses numbers that are not finite, in rows of `k` columns.
///
/// # Errors
/// [`PackError::NotFinite`] with the first of them.
pub fn check_finite(rows: &[f32], k: usize) -> Result<(), PackError> {
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
#[derive(Clone, Copy)]
pub(super) struct Columns {
    /// Those that share a scale.
    pub group: usize,
    /// Those that are quantized together: a super-group, or a group.
    pub unit: usize,
}

impl Columns {
    /// Columns of rows padded to `padded`.
    pub(super) fn of(e: &Encoding, padded: usize) -> Columns {
        let group = e.group().map_or(padded, |g| g.max(1));
        Columns { group, unit: e.super_group().unwrap_or(group) }
    }

    /// Columns whose codes lie together: a group's, or several groups' that share 32 columns.
    fn run(&self) -> usize {
        self.group.max(K_PAD)
    }
}

/// The kinds of the scales, and of those above them.
pub(super) fn kinds(e: &Encoding) -> (ScaleKind, Option<ScaleKind>) {
    (e.scales[0].map_or(ScaleKind::F16, |s| s.kind), e.scales[1].map(|s| s.kind))
}

fn pack_quantized(format: Format, rows: &[f32], k: usize, out: &mut [u8]) -> Result<(), PackError> {
    let mut block = Coded::new(format, k, out);
    let Columns { group, unit } = block.columns;
    let mut codes = vec![0u8; unit];
    let mut factors = vec![(0f32, 0f32); unit.div_ceil(group)];
    for r in 0..BLOCK {
        let row = rows.get(r * k..(r + 1) * k);
        for from in (0..block.padded).step_by(unit) {
            let width = unit.min(block.padded - from);
            // Padding decodes to 0, where there is a code for it, or to something unused (its
            // activations are 0).
            codes[..width].fill(block.e.zero_code());
            // A group may be all padding.
            let x = row.map(|row| &row[from.min(k)..k.min(from + unit)]);
            let above = x.map_or((0.0, 0.0), |x| quantize(format, x, &mut codes[..x.len()], &mut factors));
            if x.is_none() {
                factors.fill((0.0, 0.0));
            }
            let finite = |(scale, min): &(f32, f32)| scale.is_finite() && min.is_finite();
            if !finite(&above) || !factors.iter().all(finite) {
                return Err(PackError::TooLarge { row: r, col: from });
            }
            block.put(r, from, &codes[..width], &factors[..width.div_ceil(group)], above);
        }
    }
    Ok(())
}

/// Packs up to 16 rows of codes, of `k` columns each, into one block: bit for bit.
///
/// `out` has [`Format::block_bytes`] bytes; every byte is written. Missing rows are stored as
/// zeros.
///
/// # Errors
/// [`PackError::NotFinite`] for a scale that is no number.
pub fn pack_codes(format: Format, rows: &[CodedRow], k: usize, out: &mut [u8]) -> Result<(), PackError> {
    debug_assert_eq!(out.len(), format.block_bytes(k));
    out.fill(0);
    let mut block = Coded::new(format, k, out);
    let Columns { group, unit } = block.columns;
    let mut codes = vec![0u8; unit];
    let mut factors = vec![(0f32, 0f32); unit.div_ceil(group)];
    for r in 0..BLOCK {
        let row = rows.get(r);
        if let Some(col) = row.and_then(|row| row.not_finite(&block.e)) {
            return Err(PackError::NotFinite { row: r, col });
        }
        for (number, from) in (0..block.padded).step_by(unit).enumerate() {
            let width = unit.min(block.padded - from);
            codes.fill(block.e.zero_code());
            factors.fill((0.0, 0.0));
            let mut above = (0.0, 0.0);
            if let Some(row) = row {
                let run = &row.codes[from.min(k)..k.min(from + unit)];
                codes[..run.len()].copy_from_slice(run);
                let of_unit = row.factors.iter().skip(from / group);
                factors.iter_mut().zip(of_unit).for_each(|(f, stored)| *f = *stored);
                above = row.above.get(number).copied().unwrap_or(above);
            }
            block.put(r, from, &codes[..width], &factors[..width.div_ceil(group)], above);
        }
    }
    Ok(())
}

/// A block of codes and scales, being written.
struct Coded<'a> {
    e: Encoding,
    packing: Packing,
    layout: layout::Block,
    columns: Columns,
    padded: usize,
    kinds: (ScaleKind, Option<ScaleKind>),
    out: &'a mut [u8],
}

impl<'a> Coded<'a> {
    fn new(format: Format, k: usize, out: &'a mut [u8]) -> Coded<'a> {
        let (e, padded) = (format.encoding(), format.padded_k(k));
        let columns = Columns::of(&e, padded);
        Coded { e, packing: format.packing, layout: format.block(k), columns, padded, kinds: kinds(&e), out }
    }

    /// Writes the columns from `from` on that are quantized together: their codes, the factors of
    /// their groups and those above.
    fn put(&mut self, r: usize, from: usize, codes: &[u8], factors: &[(f32, f32)], of_unit: (f32, f32)) {
        let (e, b, Columns { group, unit }, (kind, above)) = (&self.e, &self.layout, self.columns, self.kinds);
        if let Some(above) = above {
            let at = b.above_of(from / unit) + r * above.bytes();
            scale::put(above, of_unit.0, &mut self.out[at..]);
            if e.scales[1].is_some_and(|s| s.minimum) {
                scale::put(above, of_unit.1, &mut self.out[at + b.above_mins..]);
            }
        }
        for (g, (scale, min)) in (from / group..).zip(factors) {
            if (kind, self.packing) == (ScaleKind::Six, Packing::Panel) {
                scale::put_six(*scale, (r, g % b.groups), b.scales_of(g), self.out);
                continue;
            }
            let at = b.scales_of(g) + r * kind.bytes();
            scale::put(kind, *scale, &mut self.out[at..]);
            if e.has_minimum() {
                scale::put(kind, *min, &mut self.out[at + b.mins..]);
            }
        }
        match self.packing {
            Packing::Fragment => fragment::put_codes(e, &by_itself(e, codes), from, r, &mut self.out[b.codes..]),
            Packing::Panel => {
                for (i, codes) in codes.chunks(self.columns.run()).enumerate() {
                    let first = (from + i * self.columns.run()) / group;
                    put_codes(e, codes, r, &mut self.out[b.codes_of(first)..]);
                }
            }
        }
    }
}

/// Quantizes columns that go together: the scales of their groups to `factors`; returns the scales
/// of those.
pub(super) fn quantize(format: Format, x: &[f32], codes: &mut [u8], factors: &mut [(f32, f32)]) -> (f32, f32) {
    match format.def().quantize {
        Quantize::Round => (0.0, 0.0),
        Quantize::Group(f) => {
            factors[0] = f(x, codes);
            (0.0, 0.0)
        }
        Quantize::Super(f) => {
            let mut coded = vec![(0u8, 0u8); factors.len()];
            let above = f(x, codes, &mut coded);
            let kind = kinds(&format.encoding()).0;
            let number = |code: u8| match kind {
                ScaleKind::Signed { .. } | ScaleKind::Six => f32::from(code as i8),
                ScaleKind::E4m3 => e4m3_to_f32(code),
                ScaleKind::F32 | ScaleKind::F16 | ScaleKind::Bf16 | ScaleKind::E8m0 | ScaleKind::Unsigned { .. } => {
                    code.into()
                }
            };
            factors.iter_mut().zip(&coded).for_each(|(f, c)| *f = (number(c.0), number(c.1)));
            above
        }
    }
}

/// The codes of a unit of columns, as fragments have them.
fn by_itself<'a>(e: &Encoding, codes: &'a [u8]) -> Cow<'a, [u8]> {
    match e.code {
        Code::Trellis(of) => trellis::by_themselves(of, codes).into(),
        Code::Float(_) | Code::Int { .. } | Code::Signed { .. } | Code::Table { .. } | Code::Pairs => codes.into(),
    }
}

/// Scatters the codes of a group of row `r` into chunks of 64 bytes, which are zero. `codes` is a
/// multiple of 32 long.
fn put_codes(e: &Encoding, codes: &[u8], r: usize, out: &mut [u8]) {
    match e.bits() {
        _ if matches!(e.code, Code::Pairs) => put_pairs(e, codes, r, out),
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
        _ => each_place(e, codes.len(), r, |i, at, shift, base, mask| out[at] |= (codes[i] >> base & mask) << shift),
    }
}

/// The same for [`Code::Pairs`]: of each four columns the first two that are not zero, or the first others besides.
fn put_pairs(e: &Encoding, codes: &[u8], r: usize, out: &mut [u8]) {
    for (k, four) in (0..).step_by(4).zip(codes.chunks_exact(4)) {
        let of = |zero: bool| (0..4).filter(move |c| (four[*c] == e.zero_code()) == zero);
        let mut places = [0, 0];
        places.iter_mut().zip(of(false).chain(of(true))).for_each(|(to, c)| *to = c);
        places.sort_unstable();
        for (i, c) in places.into_iter().enumerate() {
            let [(at, bit), (place, of_place)] = pair_at(r, k, i);
            out[at] |= four[c] << bit;
            out[place] |= (c as u8) << of_place;
        }
    }
}

/// Calls `f(column, byte, bit in the byte, lowest bit of the code, bits)` for every plane of each
/// code of row `r` of a group.
fn each_place(e: &Encoding, columns: usize, r: usize, mut f: impl FnMut(usize, usize, u32, u32, u8)) {
    let (widths, count) = e.planes();
    for i in 0..columns {
        let (mut plane, mut base) = (i / K_PAD * K_PAD * 2 * e.bits() as usize, 0);
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
    codes_of_row(format, block, out.len(), r).decode(&format.packed_encoding(), out);
}

/// Row `row` of a packed `[n, k]` matrix as the codes and scales that [`pack_codes`] stores; `None` where the packing
/// [has none of these](Format::keeps_codes).
pub fn unpack_codes(format: Format, packed: &[u8], k: usize, row: usize) -> Option<CodedRow> {
    if !format.keeps_codes() {
        return None;
    }
    let bytes = format.block_bytes(k);
    Some(codes_of_row(format, &packed[row / BLOCK * bytes..][..bytes], k, row % BLOCK))
}

/// Row `r` of a block of `k` columns, as the packing has it.
fn codes_of_row(format: Format, block: &[u8], k: usize, r: usize) -> CodedRow {
    let (b, e) = (format.block(k), format.packed_encoding());
    let (columns, (kind, above)) = (Columns::of(&e, k), kinds(&e));
    let group = columns.group;
    let mut row = CodedRow::new(&e, k);
    let minimum = |at: usize| if e.has_minimum() { scale::get(kind, &block[at + b.mins..]) } else { 0.0 };
    let planes = (kind, format.packing) == (ScaleKind::Six, Packing::Panel);
    for (g, f) in row.factors.iter_mut().enumerate() {
        let at = b.scales_of(g) + r * kind.bytes();
        *f = match planes {
            true => (scale::get_six((r, g % b.groups), b.scales_of(g), block), 0.0),
            false => (scale::get(kind, &block[at..]), minimum(at)),
        };
    }
    if let Some(above) = above {
        let minima = e.scales[1].is_some_and(|s| s.minimum);
        for (s, f) in row.above.iter_mut().enumerate() {
            let at = b.above_of(s) + r * above.bytes();
            let minimum = if minima { scale::get(above, &block[at + b.above_mins..]) } else { 1.0 };
            *f = (scale::get(above, &block[at..]), minimum);
        }
    }
    let mut codes = vec![0u8; columns.run().min(k).next_multiple_of(8)];
    for (i, run) in row.codes.chunks_mut(columns.run()).enumerate() {
        let from = i * columns.run();
        let wanted = &mut codes[..run.len().next_multiple_of(8)];
        match format.packing {
            Packing::Panel => get_codes(&e, &block[b.codes_of(from / group)..], r, wanted),
            Packing::Fragment => fragment::get_codes(&e, &block[b.codes..], from, r, wanted),
        }
        run.copy_from_slice(&wanted[..run.len()]);
    }
    row
}

/// The inverse of [`put_codes`]; `codes` is a multiple of 8 long.
fn get_codes(e: &Encoding, from_block: &[u8], r: usize, codes: &mut [u8]) {
    match e.bits() {
        _ if matches!(e.code, Code::Pairs) => {
            codes.fill(e.zero_code());
            for (k, four) in (0..).step_by(4).zip(codes.chunks_exact_mut(4)) {
                for [(at, bit), (place, of_place)] in [0, 1].map(|i| pair_at(r, k, i)) {
                    four[usize::from(from_block[place] >> of_place & 3)] = from_block[at] >> bit & 15;
                }
            }
        }
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
            each_place(e, codes.len(), r, |i, at, shift, base, mask| {
                codes[i] |= (from_block[at] >> shift & mask) << base
            });
        }
    }
}

#[cfg(test)]
mod tests;
