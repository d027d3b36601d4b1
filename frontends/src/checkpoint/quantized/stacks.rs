//! Experts are one matrix below the other, whose rows are of one format. A method chooses the
//! format of each by its own scales and zeros (those that fit f16 take less room), or leaves some
//! experts unchanged; so differences within a stack are brought together here, without a change of
//! any value: scales of finer groups are repeated, symmetric codes get the minimum that they have,
//! and matrices that no format holds together are decoded. So are floats of different types, in any
//! checkpoint.

use super::bytes::IN_BLOCKS;
use super::{COMPUTED, Tensors, grouped_type};
use crate::checkpoint::safetensors::{StoredType, TensorInfo, stored_type};
use crate::checkpoint::shard::Shard;
use crate::checkpoint::stored::{Entry, Layout, Rows, read_f32};
use llmcc_ir::quant::{Code, CodedRow, Elem, Format, StoredRows};
use llmcc_ir::ty::DType;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;

/// Brings the matrices of each stack together, and the rounding of their inputs.
pub(super) fn unify(tensors: &mut Tensors<'_>) {
    let mut stacks: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for name in tensors.index.keys() {
        if let Some(stack) = stack(name) {
            stacks.entry(stack).or_default().push(name.clone());
        }
    }
    let mut plain = 0;
    for names in stacks.values() {
        one_kind_of_input(tensors, names);
        let entries = || names.iter().filter_map(|name| tensors.index.get(name));
        let types: Vec<&'static StoredType> = entries().map(|e| e.info.dtype).collect();
        // Others are refused when they are read.
        let matrices = entries().all(|e| e.info.shape.len() == 2 && e.info.dtype.dtype.is_some_and(is_read));
        if !matrices || types.windows(2).all(|two| two[0] == two[1]) {
            continue;
        }
        // Floats that nothing has quantized are floats still.
        let floats = entries().all(|e| e.layout.is_none());
        plain += usize::from(floats);
        let to = if floats { stored_type("F32") } else { common(&types) };
        let to = to.unwrap_or(&COMPUTED);
        for name in names {
            if let Some(entry) = tensors.index.get_mut(name).filter(|e| e.info.dtype != to) {
                *entry = as_type(entry, to);
            }
        }
    }
    if plain > 0 {
        tensors.notes.push(format!(
            "the experts of {plain} stacks are floats of different types: all experts of such a stack are taken as f32"
        ));
    }
}

/// Floats of 16 and 32 bits, and codes.
fn is_read(dtype: DType) -> bool {
    matches!(dtype, DType::F32 | DType::F16 | DType::Bf16 | DType::Coded(_))
}

/// The inputs of all matrices of a stack are rounded to one kind of numbers, or not at all.
fn one_kind_of_input(tensors: &mut Tensors<'_>, names: &[String]) {
    let kinds: BTreeSet<_> =
        names.iter().filter_map(|n| tensors.index.get(n)).map(|e| e.input.map(|i| i.number)).collect();
    if kinds.len() < 2 {
        return;
    }
    for name in names {
        if let Some(entry) = tensors.index.get_mut(name) {
            entry.input = None;
        }
    }
    let stack = names.first().and_then(|name| stack(name)).unwrap_or_default();
    tensors.notes.push(format!(
        "`{stack}`: only some of the experts have a scale for their input, or they round it to different numbers: \
         none is rounded by them"
    ));
}

/// The name without the number of an expert: `experts.3.`, `experts.expert_3.` and the like.
fn stack(name: &str) -> Option<String> {
    let parts: Vec<&str> = name.split('.').collect();
    let digits = |s: &str| !s.is_empty() && s.bytes().all(|b| b.is_ascii_digit());
    let number = |s: &str| digits(s.strip_prefix("expert_").unwrap_or(s));
    let at = parts.windows(2).position(|two| two[0].ends_with("experts") && number(two[1]))?;
    let parts = parts.iter().enumerate().filter(|(i, _)| *i != at + 1);
    Some(parts.map(|(_, part)| *part).collect::<Vec<_>>().join("."))
}

/// The format that holds the rows of all of these as they are.
fn common(types: &[&StoredType]) -> Option<&'static StoredType> {
    let formats: Option<Vec<Format>> = types.iter().map(|t| t.dtype?.coded()).collect();
    let formats = formats?;
    let block = IN_BLOCKS.dtype.and_then(|t| t.coded())?;
    if formats.iter().all(|f| f.elem == Elem::FP8 || *f == block) {
        return Some(&IN_BLOCKS);
    }
    let width = |f: &Format| {
        let e = f.encoding();
        let (Code::Int { bits, .. }, [Some(_), None]) = (e.code, e.scales) else { return None };
        e.group().map(|group| (bits, group))
    };
    let widths: Option<Vec<(u32, usize)>> = formats.iter().map(width).collect();
    let widths = widths?;
    let (bits, group) = (widths.iter().map(|w| w.0).max()?, widths.iter().map(|w| w.1).min()?);
    let elem = match bits {
        0..=2 => "w2z",
        3 => "w3z",
        4 => "w4z",
        _ => "w8z",
    };
    grouped_type(Elem::named(elem), group).filter(|_| widths.iter().all(|w| w.1.is_multiple_of(group)))
}

/// The same matrix as that type.
fn as_type(entry: &Entry, to: &'static StoredType) -> Entry {
    let (from, k) = (entry.info.dtype.dtype, entry.info.shape.last().copied().unwrap_or(0));
    let source = match &entry.layout {
        Some(layout) => MatrixBefore::Layout(Arc::clone(layout)),
        None => MatrixBefore::Plain(entry.shard, entry.info.bytes.clone()),
    };
    let format = to.dtype.and_then(|t| t.coded()).map(|f| f.encoding());
    let layout = Unified {
        source,
        from: from.unwrap_or(DType::F32),
        unit: format.and_then(|e| e.group()).unwrap_or(k).max(1),
        minima: format.is_some_and(|e| e.has_minimum()),
        // Decoded, columns are where the model has them.
        order: entry.order.clone().filter(|_| format.is_none()),
        k,
    };
    let info = TensorInfo { dtype: to, ..entry.info.clone() };
    let order = entry.order.clone().filter(|_| format.is_some());
    Entry { layout: Some(Arc::new(layout)), order, input: entry.input, ..Entry::plain(entry.shard, info) }
}

/// The former kind of a matrix.
#[derive(Debug)]
enum MatrixBefore {
    Layout(Arc<dyn Layout>),
    /// Elements one after the other, in this file.
    Plain(usize, Range<usize>),
}

#[derive(Debug)]
struct Unified {
    source: MatrixBefore,
    /// Its type.
    from: DType,
    /// Columns of a group, as it is now.
    unit: usize,
    /// The format has minima.
    minima: bool,
    /// The column that each of the matrix's elements is, if it is decoded and that is another one.
    order: Option<Arc<Vec<u32>>>,
    k: usize,
}

impl Layout for Unified {
    fn parts(&self) -> Vec<(usize, Range<usize>)> {
        match &self.source {
            MatrixBefore::Layout(layout) => layout.parts(),
            MatrixBefore::Plain(shard, bytes) => vec![(*shard, bytes.clone())],
        }
    }

    fn codes(&self, shards: &[Shard], row: usize, out: &mut CodedRow) {
        let (MatrixBefore::Layout(layout), Some(format)) = (&self.source, self.from.coded()) else { return };
        let e = format.encoding();
        let mut own = CodedRow::new(&e, self.k);
        layout.codes(shards, row, &mut own);
        out.codes.copy_from_slice(&own.codes);
        let zero = if let Code::Int { zero, .. } = e.code { zero as f32 } else { 0.0 };
        let group = e.group().unwrap_or(self.k).max(1);
        for (g, f) in out.factors.iter_mut().enumerate() {
            let (scale, min) = own.factors.get(g * self.unit / group).copied().unwrap_or_default();
            // A power of two or none times the scale, and so exact.
            let min = if e.has_minimum() { min } else { -scale * zero };
            *f = (scale, if self.minima { min } else { 0.0 });
        }
    }

    fn values(&self, shards: &[Shard], row: usize, out: &mut [f32]) {
        match &self.source {
            MatrixBefore::Layout(layout) => {
                Rows { layout: &**layout, shards, dtype: self.from, columns: self.k }.values(row, out);
            }
            MatrixBefore::Plain(shard, bytes) => {
                let size = self.from.bytes().unwrap_or(0) * self.k;
                let file = shards.get(*shard).and_then(|s| s.map.get(bytes.clone())).unwrap_or_default();
                read_f32(self.from, file.get(row * size..(row + 1) * size).unwrap_or_default(), out);
            }
        }
        if let Some(order) = &self.order {
            let stored = out.to_vec();
            for (column, v) in order.iter().zip(stored) {
                if let Some(out) = out.get_mut(*column as usize) {
                    *out = v;
                }
            }
        }
    }
}
