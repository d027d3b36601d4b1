//! Numbers of 8 bits that are codes, with a scale for each block of rows and columns: FP8 as DeepSeek
//! (arXiv 2412.19437), FBGEMM and ModelOpt have it, int8 as LLM.int8() (arXiv 2208.07339) and
//! compressed-tensors do.

use super::nvfp4::fp4;
use super::sparse::{self, Sparse};
use super::tensors::is_f16;
use super::{
    COMPUTED, Part, Tensors, UNQUANTIZED, Wrong, activations, coded, grouped_type, microscaling, required, unit,
};
use crate::checkpoint::safetensors::{StoredType, TensorInfo};
use crate::checkpoint::shard::Shard;
use crate::checkpoint::stored::{Entry, Layout};
use llmcc_ir::graph::UnaryOp;
use llmcc_ir::quant::{CodedRow, Elem, Format, e4m3_to_f32};
use serde_json::{Map, Value};
use std::ops::Range;
use std::sync::Arc;

/// Columns of a group of FP8 in blocks, and of integers that have one scale for more.
const GROUP: usize = 128;

static BY_ROW: StoredType = coded("FP8 by rows", Format::new(Elem::FP8, 0), 8);
pub(super) static IN_BLOCKS: StoredType = coded("FP8 in blocks", Format::new(Elem::named("fp8b"), GROUP as u16), 8);

/// Types of scales; bytes are powers of two.
const SCALES: &[&str] = &["F32", "BF16", "F16", "F8_E8M0", "U8"];

/// Kinds of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ByteKind {
    /// `F8_E4M3`
    E4m3,
    /// `I8`
    Int8,
}

/// The tensors of a matrix `[n, k]`.
#[derive(Clone, Debug)]
pub(super) struct Scaled {
    pub kind: ByteKind,
    pub codes: Part,
    /// Which elements the codes are, where not all are there.
    pub sparse: Option<Sparse>,
    pub scales: Part,
    /// Dimensions of the scales.
    pub scaled: Vec<usize>,
    /// Rows and columns of a block, where scales are of blocks.
    pub block: Option<[usize; 2]>,
    /// Subtracted from integers; as many as there are scales.
    pub zeros: Option<Part>,
    /// Multiplies scales.
    pub times: f32,
}

/// Names of a matrix's scales: in Transformers, in other tools, in DeepSeek-V4, in Mistral's files.
const FP8_SCALES: [&str; 4] = ["weight_scale_inv", "weight_scale", "scale", "qscale_weight"];

/// Fine-grained FP8, or with a scale for each matrix or row; stacks of experts; experts of MXFP4
/// (DeepSeek-V4).
pub(super) fn fp8(settings: &Map<String, Value>, tensors: &mut Tensors<'_>) -> Result<(), Wrong> {
    let block = block_size(settings.get("weight_block_size"))?;
    let fixed = match settings.get("activation_scheme").filter(|v| !v.is_null()).map(|v| v.as_str()) {
        None | Some(Some("dynamic")) => false,
        Some(Some("static")) => true,
        Some(_) => {
            let what =
                format!("`activation_scheme` is {}; supported are dynamic and static", settings["activation_scheme"]);
            return Err((what, UNQUANTIZED));
        }
    };
    for ending in FP8_SCALES {
        for stem in tensors.stems(&format!(".{ending}")) {
            let dtype = tensors.index.get(&format!("{stem}.weight")).map(|e| e.info.dtype.name);
            match dtype {
                Some("I8") => {
                    let entry = microscaling::matrix(tensors, &stem, ["weight", ending])?;
                    tensors.index.insert(format!("{stem}.weight"), entry);
                }
                // ModelOpt's, in DeepSeek-V4's experts.
                Some("U8") if tensors.index.contains_key(&format!("{stem}.weight_scale_2")) => {
                    let entry = fp4(tensors, [&stem, "weight", "weight_scale_2"], |x| x)?;
                    tensors.index.insert(format!("{stem}.weight"), entry);
                }
                // A norm or the like may be called so too.
                other if ending == "scale" && other != Some("F8_E4M3") => {}
                _ => {
                    if fixed {
                        required::input_scale(tensors, &stem, "and `activation_scheme` is static")?;
                    }
                    scaled(tensors, &stem, ending, (ByteKind::E4m3, block), 1.0)?;
                }
            }
        }
    }
    for name in tensors.stems("_scale_inv") {
        stack(tensors, &name, block)?;
    }
    // Also of matrices that are decoded.
    activations::fixed(tensors, Some(UnaryOp::RoundE4m3))
}

/// The matrices `NAME` F8_E4M3 `[experts, rows, columns]` of all experts and their scales
/// `NAME_scale_inv` `[experts, blocks, blocks]`, decoded; of scales without columns each expert has one.
fn stack(tensors: &mut Tensors<'_>, name: &str, block: Option<[usize; 2]>) -> Result<(), Wrong> {
    let (scale, wrong) = (format!("{name}_scale_inv"), |what: String| (format!("`{name}`: {what}"), UNQUANTIZED));
    let shape = |name: &str| tensors.index.get(name).map(|e| e.info.shape.clone()).unwrap_or_default();
    let (codes, scales) = (shape(name), shape(&scale));
    let [count, n, k] = codes[..] else { return Err(wrong(format!("{codes:?} are not matrices of experts"))) };
    let [across, down] = match scales[..] {
        [experts] if experts == count => [1, 1],
        [experts, down, across] if experts == count => [across, down],
        _ => return Err(wrong(format!("scales {scales:?} do not fit matrices {codes:?}"))),
    };
    // As Transformers reads them, blocks follow from how many there are.
    let whole = |[rows, columns]: &[usize; 2]| {
        n.is_multiple_of(*rows) && [n / rows, k.div_ceil(*columns)] == [down, across] && cuts(k, *columns)
    };
    let block = block.filter(whole).or_else(|| Some([blocks_of(n, down)?, blocks_of(k, across)?]));
    let total = count.checked_mul(n).filter(|rows| *rows > 0 && k > 0);
    let (Some([rows, columns]), Some(_)) = (block, total) else {
        return Err(wrong(format!("scales {scales:?} do not fit matrices {codes:?}")));
    };
    let codes = tensors.take(name, &["F8_E4M3"], &[count, n, k])?;
    let part = tensors.take(&scale, SCALES, &scales)?;
    let source = Scaled {
        kind: ByteKind::E4m3,
        codes,
        sparse: None,
        scales: part,
        scaled: scales,
        block,
        zeros: None,
        times: 1.0,
    };
    let info = TensorInfo { dtype: &COMPUTED, shape: vec![count, n, k], bytes: codes.from..codes.to };
    let layout = Bytes { source, k, rows, columns, across, unit: k, minima: false };
    tensors.index.insert(name.into(), Entry { layout: Some(Arc::new(layout)), ..Entry::plain(codes.shard, info) });
    Ok(())
}

/// FBGEMM's FP8: a scale for each row.
pub(super) fn fbgemm(_: &Map<String, Value>, tensors: &mut Tensors<'_>) -> Result<(), Wrong> {
    all_fp8(tensors, "weight_scale", None)?;
    activations::fixed(tensors, None)
}

/// `[rows, columns]`, where it is there.
pub(in crate::checkpoint) fn block_size(value: Option<&Value>) -> Result<Option<[usize; 2]>, Wrong> {
    let Some(value) = value.filter(|v| !v.is_null()) else { return Ok(None) };
    let size = |v: &Value| v.as_u64().and_then(|n| usize::try_from(n).ok()).filter(|n| *n > 0);
    let list: Option<Vec<usize>> = match value.as_str() {
        // As older files of compressed-tensors have it: "128x128".
        Some(text) => text.split('x').map(|n| n.parse().ok().filter(|n| *n > 0)).collect(),
        None => value.as_array().and_then(|list| list.iter().map(size).collect()),
    };
    match list.as_deref() {
        Some([rows, columns]) => Ok(Some([*rows, *columns])),
        _ => Err(("the size of blocks is not a pair of sizes".into(), UNQUANTIZED)),
    }
}

/// Every `STEM.weight` of FP8 that has a `STEM.ending` beside it.
pub(super) fn all_fp8(tensors: &mut Tensors<'_>, ending: &str, block: Option<[usize; 2]>) -> Result<(), Wrong> {
    for stem in tensors.stems(&format!(".{ending}")) {
        scaled(tensors, &stem, ending, (ByteKind::E4m3, block), 1.0)?;
    }
    Ok(())
}

/// Makes `STEM.weight` of it and `STEM.ending`, and the zeros beside them.
pub(super) fn scaled(
    tensors: &mut Tensors<'_>,
    stem: &str,
    ending: &str,
    (kind, block): (ByteKind, Option<[usize; 2]>),
    times: f32,
) -> Result<(), Wrong> {
    let (name, scale) = (format!("{stem}.weight"), format!("{stem}.{ending}"));
    let sparse = sparse::take(tensors, stem)?;
    let [n, k] = match &sparse {
        Some(sparse) => sparse.shape,
        None => tensors.matrix(&name)?,
    };
    let scaled = tensors.index.get(&scale).map(|e| e.info.shape.clone()).unwrap_or_default();
    let types: &[&str] = match kind {
        ByteKind::E4m3 => &["F8_E4M3"],
        ByteKind::Int8 => &["I8"],
    };
    let codes = match &sparse {
        Some(sparse) if types.contains(&sparse.values.dtype) => sparse.values,
        Some(sparse) => {
            return Err((
                format!("`{stem}`: sparse values are {}, which have no scale", sparse.values.dtype),
                UNQUANTIZED,
            ));
        }
        None => tensors.take(&name, types, &[n, k])?,
    };
    let scales = tensors.take(&scale, SCALES, &scaled)?;
    let zeros = format!("{stem}.weight_zero_point");
    let zeros = match kind == ByteKind::Int8 && tensors.index.contains_key(&zeros) {
        true => Some(tensors.take(&zeros, &["I8"], &scaled)?),
        false => None,
    };
    let source = Scaled { kind, codes, sparse, scales, scaled, block, zeros, times };
    let entry = matrix(tensors.shards, source, [n, k]).map_err(|what| (format!("`{stem}`: {what}"), UNQUANTIZED))?;
    tensors.index.insert(name, entry);
    Ok(())
}

/// The matrix of the tensors; else their fault.
fn matrix(shards: &[Shard], source: Scaled, [n, k]: [usize; 2]) -> Result<Entry, String> {
    if n == 0 || k == 0 {
        return Err(format!("{n} rows of {k} columns"));
    }
    let count: usize = source.scaled.iter().product();
    let [rows, columns] = match (&source.scaled[..], source.block) {
        _ if count == 1 => [n, k],
        ([a, b], Some([rows, columns]))
            if [*a, *b] == [n.div_ceil(rows), k.div_ceil(columns)] && cuts(n, rows) && cuts(k, columns) =>
        {
            [rows, columns]
        }
        ([a], _) | ([a, 1], _) if *a == n => [1, k],
        // ModelOpt: the rest of a block has one row and one column.
        ([a, 1, b, 1], None) if blocks_of(n, *a).zip(blocks_of(k, *b)).is_some() => [n / a, k / b],
        ([a, groups], _) if *a == n && *groups > 0 && k.is_multiple_of(*groups) => [1, k / groups],
        // Blocks of other sizes than the settings', as Transformers reads them.
        ([a, b], Some(_)) if blocks_of(n, *a).zip(blocks_of(k, *b)).is_some() => [n / a, k / b],
        (shape, block) => {
            let of = block.map_or_else(String::new, |b| format!(" in blocks of {b:?}"));
            return Err(format!("scales {shape:?} do not fit a matrix {:?}{of}", [n, k]));
        }
    };
    let whole = columns >= k;
    let unit = if whole { Some(GROUP) } else { unit(columns) };
    let small = || match source.times == 1.0 {
        true => source.scales.fits_f16(shards, count),
        false => (0..count).all(|i| is_f16(source.scales.float(shards, i) * source.times)),
    };
    let dtype = match (source.kind, unit) {
        (ByteKind::E4m3, _) if whole && small() => Some(&BY_ROW),
        (ByteKind::E4m3, Some(GROUP)) => Some(&IN_BLOCKS),
        (ByteKind::E4m3, _) => None,
        (ByteKind::Int8, Some(unit)) if source.zeros.is_none() && small() => grouped_type(Elem::W8, unit),
        (ByteKind::Int8, Some(unit)) => grouped_type(Elem::named("w8z"), unit),
        (ByteKind::Int8, None) => None,
    };
    let dtype = dtype.unwrap_or(&COMPUTED);
    let info = TensorInfo { dtype, shape: vec![n, k], bytes: source.codes.from..source.codes.to };
    let format = dtype.dtype.and_then(|t| t.coded());
    let minima = format.is_some_and(|f| f.encoding().has_minimum());
    let unit = format.and_then(|f| f.encoding().group()).unwrap_or(k);
    let shard = source.codes.shard;
    let layout = Bytes { source, k, rows, columns, across: k.div_ceil(columns), unit, minima };
    Ok(Entry { layout: Some(Arc::new(layout)), ..Entry::plain(shard, info) })
}

/// Whether blocks of a size cut so many elements: a remainder is accepted for powers of two only,
/// as 129 would give the same 2 blocks for 256 that 128 gives.
fn cuts(elements: usize, size: usize) -> bool {
    elements.is_multiple_of(size) || size.is_power_of_two()
}

/// Elements of a block, of so many that are all the same.
fn blocks_of(elements: usize, blocks: usize) -> Option<usize> {
    elements.checked_div(blocks).filter(|_| elements.is_multiple_of(blocks))
}

#[derive(Debug)]
struct Bytes {
    source: Scaled,
    k: usize,
    /// Rows of a block.
    rows: usize,
    columns: usize,
    /// Blocks beside each other.
    across: usize,
    /// Columns of a group as stored.
    unit: usize,
    /// The format has minima.
    minima: bool,
}

impl Layout for Bytes {
    fn parts(&self) -> Vec<(usize, Range<usize>)> {
        self.source.sparse.as_ref().map_or_else(|| vec![self.source.codes.place()], Sparse::places)
    }

    fn codes(&self, shards: &[Shard], row: usize, out: &mut CodedRow) {
        let s = &self.source;
        // Integers are stored as codes above zero.
        let flip = if s.kind == ByteKind::Int8 { 0x80 } else { 0 };
        let codes = s.codes.bytes(shards);
        if let Some(sparse) = &s.sparse {
            out.codes.fill(flip);
            sparse.each(shards, row, |column, place| {
                if let (Some(c), Some(u)) = (out.codes.get_mut(column), codes.get(place)) {
                    *c = *u ^ flip;
                }
            });
        } else {
            let codes = codes.get(row * self.k..).unwrap_or_default();
            out.codes.iter_mut().zip(codes).for_each(|(c, u)| *c = *u ^ flip);
        }
        for (g, f) in out.factors.iter_mut().enumerate() {
            let at = row / self.rows * self.across + g * self.unit / self.columns;
            let scale = s.scales.float(shards, at) * s.times;
            let zero = s.zeros.map_or(0, |z| z.bytes(shards).get(at).map_or(0, |u| *u as i8));
            let min = -scale * (128.0 + f32::from(zero));
            *f = (scale, if self.minima { min } else { 0.0 });
        }
    }

    fn values(&self, shards: &[Shard], row: usize, out: &mut [f32]) {
        let s = &self.source;
        out.fill(0.0);
        let mut put = |column: usize, place: usize| {
            let at = row / self.rows * self.across + column / self.columns;
            let zero = || s.zeros.map_or(0, |z| z.bytes(shards).get(at).map_or(0, |u| *u as i8));
            let byte = s.codes.bytes(shards).get(place).copied().unwrap_or(0);
            let number = match s.kind {
                ByteKind::E4m3 => e4m3_to_f32(byte),
                ByteKind::Int8 => f32::from(i16::from(byte as i8) - i16::from(zero())),
            };
            if let Some(out) = out.get_mut(column) {
                *out = s.scales.float(shards, at) * s.times * number;
            }
        };
        match &s.sparse {
            Some(sparse) => sparse.each(shards, row, put),
            None => (0..self.k).for_each(|column| put(column, row * self.k + column)),
        }
    }
}
