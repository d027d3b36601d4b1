//! Conversion between evaluator operands and the byte layouts of [`llmcc_abi::layout`], for tests
//! that run generated code.

use super::kv::{KvRow, Part};
use super::{EvalError, Fp8Rows, KvState, Q8Rows, Rows};
use crate::kernel::RowElem;
use crate::kv::{KvDType, KvSpec};
use crate::quant::Float;
use half::{bf16, f16};
use llmcc_abi::PAGE_TOKENS;
use llmcc_abi::layout::{Page, excess_parts, fp8_place, fp8_row, half_row, kv_nibble, q8_row, q8_sum_bytes};

/// f32 rows as bytes, row-major.
pub fn rows_to_bytes(rows: &Rows) -> Vec<u8> {
    rows.data.iter().flat_map(|v| v.to_le_bytes()).collect()
}

/// f32 rows from bytes; a last incomplete element is ignored.
pub fn rows_from_bytes(cols: usize, bytes: &[u8]) -> Rows {
    Rows { cols, data: (0..bytes.len() / 4).map(|i| f32::from_le_bytes(word(bytes, i * 4))).collect() }
}

/// f16 or bf16 rows as bytes, each of [`half_row`] bytes, padding zeroed. Values are rounded to
/// nearest even.
pub fn half_rows_to_bytes(rows: &Rows, elem: RowElem) -> Vec<u8> {
    let bytes = half_row(rows.cols);
    let mut out = vec![0u8; rows.rows() * bytes];
    for (i, row) in out.chunks_mut(bytes.max(1)).enumerate() {
        for (o, v) in row.chunks_exact_mut(2).zip(rows.row(i)) {
            let bits = match elem.float() {
                Some(Float::F16) => f16::from_f32(*v).to_bits(),
                Some(Float::Bf16) => bf16::from_f32(*v).to_bits(),
                Some(Float::F32 | Float::E4m3) | None => unreachable!("{elem} rows have no elements of 16 bits"),
            };
            o.copy_from_slice(&bits.to_le_bytes());
        }
    }
    out
}

/// f16 or bf16 rows from bytes; a last incomplete row is ignored.
pub fn half_rows_from_bytes(cols: usize, elem: RowElem, bytes: &[u8]) -> Rows {
    let value = |b: &[u8]| {
        let bits = u16::from_le_bytes([b[0], b[1]]);
        match elem.float() {
            Some(Float::F16) => f16::from_bits(bits).to_f32(),
            Some(Float::Bf16) => bf16::from_bits(bits).to_f32(),
            Some(Float::F32 | Float::E4m3) | None => unreachable!("{elem} rows have no elements of 16 bits"),
        }
    };
    let rows = bytes.chunks_exact(half_row(cols).max(1));
    Rows { cols, data: rows.flat_map(|row| row.chunks_exact(2).take(cols).map(value)).collect() }
}

/// fp8 rows as bytes, each laid out as an [`llmcc_abi::layout::Fp8Row`], padding zeroed.
pub fn fp8_rows_to_bytes(rows: &Fp8Rows) -> Vec<u8> {
    let at = fp8_row(rows.cols);
    let mut out = vec![0u8; rows.rows() * at.bytes];
    for (i, row) in out.chunks_mut(at.bytes).enumerate() {
        for (c, code) in rows.codes[i * rows.cols..][..rows.cols].iter().enumerate() {
            row[fp8_place(c)] = *code;
        }
        row[at.scale..][..4].copy_from_slice(&rows.scales[i].to_le_bytes());
    }
    out
}

/// fp8 rows from bytes; a last incomplete row is ignored.
pub fn fp8_rows_from_bytes(cols: usize, bytes: &[u8]) -> Fp8Rows {
    let at = fp8_row(cols);
    let mut q = Fp8Rows { cols, codes: vec![], scales: vec![] };
    for row in bytes.chunks_exact(at.bytes) {
        q.codes.extend((0..cols).map(|c| row[fp8_place(c)]));
        q.scales.push(f32::from_le_bytes(word(row, at.scale)));
    }
    q
}

/// int8 rows as bytes, each laid out as an [`llmcc_abi::layout::Q8Row`], padding zeroed.
pub fn q8_rows_to_bytes(rows: &Q8Rows) -> Vec<u8> {
    let at = q8_row(rows.cols, rows.group);
    let (groups, each, parts) = (rows.groups(), q8_sum_bytes(rows.group), excess_parts(rows.group));
    let mut out = vec![0u8; rows.rows() * at.bytes];
    for (i, row) in out.chunks_mut(at.bytes).enumerate() {
        for (o, c) in row.iter_mut().zip(&rows.codes[i * rows.cols..][..rows.cols]) {
            *o = *c as u8;
        }
        for g in i * groups..(i + 1) * groups {
            let (scale, sum) = (at.scales + g % groups * 4, at.sums + g % groups * each);
            row[scale..][..4].copy_from_slice(&rows.scales[g].to_le_bytes());
            let excesses = &rows.excesses[g * parts..][..parts];
            for (i, word) in std::iter::once(&rows.sums[g]).chain(excesses).enumerate() {
                row[sum + i * 4..][..4].copy_from_slice(&word.to_le_bytes());
            }
        }
    }
    out
}

/// int8 rows from bytes; a last incomplete row is ignored.
pub fn q8_rows_from_bytes(cols: usize, group: usize, bytes: &[u8]) -> Q8Rows {
    let at = q8_row(cols, group);
    let mut q = Q8Rows { cols, group, codes: vec![], scales: vec![], sums: vec![], excesses: vec![] };
    for row in bytes.chunks_exact(at.bytes) {
        q.codes.extend(row[..cols].iter().map(|b| *b as i8));
        for g in 0..q.groups() {
            q.scales.push(f32::from_le_bytes(word(row, at.scales + g * 4)));
            let sum = at.sums + g * q8_sum_bytes(group);
            q.sums.push(i32::from_le_bytes(word(row, sum)));
            let parts = (1..=excess_parts(group)).map(|part| i32::from_le_bytes(word(row, sum + part * 4)));
            q.excesses.extend(parts);
        }
    }
    q
}

fn word(bytes: &[u8], at: usize) -> [u8; 4] {
    [bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]
}

/// Bytes of a page of a state.
fn page_of(spec: &KvSpec) -> Page {
    spec.page()
}

/// Byte offsets of one element, its scale (meaningful for codes only), and the bits that are below it
/// in its byte.
fn offsets(spec: &KvSpec, part: Part, head: usize, slot: usize, j: usize) -> (usize, usize, usize) {
    let (p, d, bits) = (page_of(spec), spec.stored_dim(part == Part::Keys), spec.dtype.bits());
    // Elements of a token, and which of them this is, in units of whole bytes.
    let (n, j, bytes, up) = match bits {
        4 => {
            let (j, up) = kv_nibble(d, part == Part::Keys, j);
            (d / 2, j, 1, up)
        }
        _ => (d, j, bits / 8, 0),
    };
    let scale = (head * PAGE_TOKENS + slot) * 4;
    match part {
        Part::Keys => (((head * n + j) * PAGE_TOKENS + slot) * bytes, p.k_scales + scale, up),
        Part::Values => (p.v + ((head * PAGE_TOKENS + slot) * n + j) * bytes, p.v_scales + scale, up),
    }
}

/// Writes a state into a page pool. `tables[s]` lists the pages of sequence `s` in order of
/// position; the pool is an array of pages and bytes of positions never stored keep their contents.
///
/// # Errors
/// A sequence has more positions than its pages hold, or a page lies outside the pool.
pub fn kv_to_pages(state: &KvState, tables: &[Vec<u32>], pool: &mut [u8]) -> Result<(), EvalError> {
    each_token(state.spec, tables, pool.len(), |seq, position, base, slot| {
        for part in [Part::Keys, Part::Values] {
            if let Some(row) = state.get(part, seq, position) {
                write_row(&state.spec, part, row, &mut pool[base..], slot);
            }
        }
        Ok(())
    })?;
    match (0..state.sequences())
        .find(|s| state.spec.rows(state.len(*s)) > tables.get(*s).map_or(0, Vec::len) * PAGE_TOKENS)
    {
        Some(s) => {
            Err(EvalError::batch(format!("sequence {s} has {} positions, more than its pages hold", state.len(s))))
        }
        None => Ok(()),
    }
}

/// Reads a page pool: positions `0..lens[s]` of each sequence `s`, in the pages `tables[s]`.
///
/// # Errors
/// A sequence is longer than its pages hold, or a page lies outside the pool.
pub fn kv_from_pages(spec: KvSpec, tables: &[Vec<u32>], lens: &[usize], pool: &[u8]) -> Result<KvState, EvalError> {
    let mut state = KvState::new(spec);
    for (s, len) in lens.iter().enumerate() {
        if spec.rows(*len) > tables.get(s).map_or(0, Vec::len) * PAGE_TOKENS {
            return Err(EvalError::batch(format!("sequence {s} has {len} positions, more than its pages hold")));
        }
    }
    each_token(spec, tables, pool.len(), |seq, position, base, slot| {
        if position < lens.get(seq).copied().unwrap_or(0) {
            for part in [Part::Keys, Part::Values] {
                state.put(part, seq, position, read_row(&spec, part, &pool[base..], slot));
            }
        }
        Ok(())
    })?;
    Ok(state)
}

/// Calls `f(sequence, position, byte offset of the page, row in the page)` for the positions of all rows
/// of all pages.
fn each_token(
    spec: KvSpec,
    tables: &[Vec<u32>],
    pool: usize,
    mut f: impl FnMut(usize, usize, usize, usize) -> Result<(), EvalError>,
) -> Result<(), EvalError> {
    let bytes = page_of(&spec).bytes;
    for (seq, table) in tables.iter().enumerate() {
        for (i, number) in table.iter().enumerate() {
            let base = *number as usize * bytes;
            if base + bytes > pool {
                return Err(EvalError::batch(format!("page {number} of sequence {seq} lies outside the pool")));
            }
            for slot in 0..PAGE_TOKENS {
                f(seq, (i * PAGE_TOKENS + slot + 1) * spec.every.max(1) - 1, base, slot)?;
            }
        }
    }
    Ok(())
}

fn write_row(spec: &KvSpec, part: Part, row: &KvRow, page: &mut [u8], slot: usize) {
    let d = spec.stored_dim(part == Part::Keys);
    for (c, v) in row.data.iter().enumerate() {
        let (at, scale_at, up) = offsets(spec, part, c / d, slot, c % d);
        match spec.dtype {
            KvDType::F32 => page[at..at + 4].copy_from_slice(&(*v as f32).to_le_bytes()),
            KvDType::F16 => page[at..at + 2].copy_from_slice(&f16::from_f64(*v).to_le_bytes()),
            KvDType::Bf16 => page[at..at + 2].copy_from_slice(&bf16::from_f64(*v).to_le_bytes()),
            KvDType::Int8 => {
                page[at] = (*v as i8) as u8;
                page[scale_at..scale_at + 4].copy_from_slice(&row.scales[c / d].to_le_bytes());
            }
            KvDType::Int4 => {
                page[at] = page[at] & !(15 << up) | (*v as i8 as u8 & 15) << up;
                page[scale_at..scale_at + 4].copy_from_slice(&row.scales[c / d].to_le_bytes());
            }
        }
    }
}

fn read_row(spec: &KvSpec, part: Part, page: &[u8], slot: usize) -> KvRow {
    let mut row = KvRow { data: vec![], scales: vec![] };
    let key = part == Part::Keys;
    let d = spec.stored_dim(key);
    for c in 0..spec.width(key) {
        let (at, scale_at, up) = offsets(spec, part, c / d, slot, c % d);
        row.data.push(match spec.dtype {
            KvDType::F32 => f64::from(f32::from_le_bytes(word(page, at))),
            KvDType::F16 => f16::from_le_bytes([page[at], page[at + 1]]).to_f64(),
            KvDType::Bf16 => bf16::from_le_bytes([page[at], page[at + 1]]).to_f64(),
            KvDType::Int8 => f64::from(page[at] as i8),
            KvDType::Int4 => f64::from((page[at] >> up & 15 ^ 8) as i8 - 8),
        });
        if spec.dtype.encoding().is_quantized() && c % d == 0 {
            row.scales.push(f32::from_le_bytes(word(page, scale_at)));
        }
    }
    row
}
