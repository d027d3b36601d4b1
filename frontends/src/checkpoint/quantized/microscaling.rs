//! MXFP4 (OCP Microscaling Formats 1.0): 4-bit codes, two in a byte, the first in its low bits, and a
//! power of two for every 32 columns. gpt-oss (arXiv 2508.10925) has the matrices of all experts in one
//! tensor, others each by itself.
//!
//! `NAME_blocks` U8 `[experts, rows, groups, 16]` and `NAME_scales` U8 `[experts, rows, groups]`
//! become the matrix `NAME` `[experts·rows, 32·groups]`. Other files have `NAME` as a stack of
//! transposed matrices.

use super::{COMPUTED, Part, Tensors, UNQUANTIZED, Wrong, coded};
use crate::checkpoint::safetensors::{StoredType, TensorInfo};
use crate::checkpoint::shard::Shard;
use crate::checkpoint::stored::{Entry, Layout};
use llmcc_ir::quant::{CodedRow, Elem, Format, e8m0_to_f32};
use serde_json::{Map, Value};
use std::ops::Range;
use std::sync::Arc;

/// Columns of a group, and the bytes that hold them.
const GROUP: usize = 32;
const BYTES: usize = GROUP / 2;
/// Bytes of a group's codes of 6 bits.
const SIXES: usize = GROUP / 4 * 3;

static MXFP4: StoredType = coded("MXFP4", Format::new(Elem::named("mxfp4"), GROUP as u16), 4);

pub(super) fn mxfp4(_: &Map<String, Value>, tensors: &mut Tensors<'_>) -> Result<(), Wrong> {
    for name in tensors.stems("_blocks") {
        let entry = experts(tensors, &name)?;
        tensors.index.insert(name, entry);
    }
    Ok(())
}

/// The matrices of all experts, one below the other.
fn experts(tensors: &mut Tensors<'_>, name: &str) -> Result<Entry, Wrong> {
    let blocks = format!("{name}_blocks");
    let wrong = |what: String| (format!("tensor `{blocks}` {what}"), UNQUANTIZED);
    let shape = tensors.index.get(&blocks).map(|e| e.info.shape.clone()).unwrap_or_default();
    let [count, n, groups, BYTES] = shape[..] else {
        return Err(wrong(format!("is {shape:?}, which are no matrices of experts in groups of {BYTES} bytes")));
    };
    let sizes = count.checked_mul(n).zip(groups.checked_mul(GROUP));
    let (rows, columns) = sizes.filter(|(n, k)| *n > 0 && *k > 0).ok_or_else(|| wrong("has no sizes".into()))?;
    let codes = tensors.take(&blocks, &["U8"], &[count, n, groups, BYTES])?;
    let scales = tensors.take(&format!("{name}_scales"), &["U8", "F8_E8M0"], &[count, n, groups])?;
    let info = TensorInfo { dtype: &MXFP4, shape: vec![rows, columns], bytes: codes.from..codes.to };
    let layout = Microscaled { codes, scales, groups };
    Ok(Entry { layout: Some(Arc::new(layout)), ..Entry::plain(codes.shard, info) })
}

/// The matrix `STEM.NAME` U8 `[rows, columns / 2]` with `STEM.SCALES` U8 `[rows, groups]`, as
/// compressed-tensors, ModelOpt and DeepSeek-V4's experts have it. `names`: the names of both.
pub(super) fn matrix(tensors: &mut Tensors<'_>, stem: &str, names: [&str; 2]) -> Result<Entry, Wrong> {
    let [name, scales] = names.map(|name| format!("{stem}.{name}"));
    let [n, half] = tensors.matrix(&name)?;
    let sixes = tensors.index.get(&scales).and_then(|e| e.info.shape.get(1).copied()).filter(|groups| *groups > 0);
    if let Some(groups) = sixes.filter(|groups| groups.checked_mul(SIXES) == Some(half) && n > 0) {
        return six_bits(tensors, [&name, &scales], [n, groups]);
    }
    let whole = n > 0 && half > 0 && half.is_multiple_of(BYTES);
    if !whole {
        let what = format!("tensor `{name}` is {:?}, which are no rows in groups of {BYTES} bytes", [n, half]);
        return Err((what, UNQUANTIZED));
    }
    let groups = half / BYTES;
    let codes = tensors.take(&name, &["U8", "I8"], &[n, half])?;
    let scales = tensors.take(&scales, &["U8", "F8_E8M0"], &[n, groups])?;
    let info = TensorInfo { dtype: &MXFP4, shape: vec![n, groups * GROUP], bytes: codes.from..codes.to };
    let layout = Microscaled { codes, scales, groups };
    Ok(Entry { layout: Some(Arc::new(layout)), ..Entry::plain(codes.shard, info) })
}

/// MXFP6: e2m3 numbers, four in three bytes, the first in the lowest bits; decoded.
fn six_bits(tensors: &mut Tensors<'_>, [name, scales]: [&str; 2], [n, groups]: [usize; 2]) -> Result<Entry, Wrong> {
    let codes = tensors.take(name, &["U8"], &[n, groups.saturating_mul(SIXES)])?;
    let scales = tensors.take(scales, &["U8", "F8_E8M0"], &[n, groups])?;
    let info = TensorInfo { dtype: &COMPUTED, shape: vec![n, groups * GROUP], bytes: codes.from..codes.to };
    let layout = Microscaled { codes, scales, groups };
    Ok(Entry { layout: Some(Arc::new(layout)), ..Entry::plain(codes.shard, info) })
}

/// The number of an e2m3 code: a sign, two bits of the exponent, three of the fraction.
fn e2m3(code: u32) -> f32 {
    let (exponent, fraction) = (code >> 3 & 3, (code & 7) as f32 / 8.0);
    let magnitude = if exponent == 0 { fraction } else { (1.0 + fraction) * (1 << (exponent - 1)) as f32 };
    if code & 32 == 0 { magnitude } else { -magnitude }
}

/// Nibbles, the low one first, or codes of 6 bits; and exponents.
#[derive(Debug)]
struct Microscaled {
    codes: Part,
    scales: Part,
    /// Groups of a row.
    groups: usize,
}

impl Layout for Microscaled {
    fn parts(&self) -> Vec<(usize, Range<usize>)> {
        vec![self.codes.place(), self.scales.place()]
    }

    fn codes(&self, shards: &[Shard], row: usize, out: &mut CodedRow) {
        let first = row * self.groups;
        let bytes = self.codes.bytes(shards).get(first * BYTES..).unwrap_or_default();
        let pairs = bytes.iter().flat_map(|u| [u & 15, u >> 4]);
        out.codes.iter_mut().zip(pairs).for_each(|(c, u)| *c = u);
        let exponents = self.scales.bytes(shards).get(first..).unwrap_or_default();
        out.factors.iter_mut().zip(exponents).for_each(|(f, u)| *f = (e8m0_to_f32(*u), 0.0));
    }

    /// Values of codes of 6 bits; matrices of other widths stay codes.
    fn values(&self, shards: &[Shard], row: usize, out: &mut [f32]) {
        let first = row * self.groups;
        let bytes = self.codes.bytes(shards).get(first * SIXES..).unwrap_or_default();
        for (four, (out, bytes)) in out.chunks_mut(4).zip(bytes.chunks(3)).enumerate() {
            let word = bytes.iter().rev().fold(0, |word, u| word << 8 | u32::from(*u));
            let scale = self.scales.bytes(shards).get(first + four * 4 / GROUP).map_or(0.0, |u| e8m0_to_f32(*u));
            out.iter_mut().enumerate().for_each(|(i, v)| *v = scale * e2m3(word >> (6 * i)));
        }
    }
}
