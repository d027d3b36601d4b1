//! HQQ (Badri and Shaji, "Half-Quadratic Quantization of Large Machine Learning Models", 2023) as
//! Transformers and its own `save_to_safetensors` save it: `scale·(u − zero)` with a zero that is no
//! integer.
//!
//! The elements of a matrix, row by row, are reshaped: with `axis` 1 to rows of `group_size`, which
//! have a scale and a zero each; with `axis` 0 to `group_size` rows, whose columns have them.
//! Without a `group_size` they stay the matrix's; with `channel_wise` of 0 all have one scale and
//! one zero. `W_q` holds the codes of several equal parts of these rows, one below the other, in
//! the bits of one byte each (3 bits: ten parts in an i32), the first part highest. Tensors of one
//! number say which case applies.

use super::{COMPUTED, Part, Tensors, UNQUANTIZED, Wrong, grouped_type, required, unit};
use crate::checkpoint::safetensors::TensorInfo;
use crate::checkpoint::shard::Shard;
use crate::checkpoint::stored::{Entry, Layout};
use llmcc_ir::quant::{CodedRow, Elem};
use serde_json::{Map, Value, json};
use std::ops::Range;
use std::sync::Arc;

/// How codes are packed: its name, bits of a code, codes of an item, bytes of an item, and the format
/// that holds them.
const PACKINGS: &[(&str, u32, usize, usize, &str)] = &[
    ("8bit_u8", 8, 1, 1, "w8z"),
    ("4bit_u8", 4, 2, 1, "w4z"),
    ("3bit_32", 3, 10, 4, "w3z"),
    ("2bit_u8", 2, 4, 1, "w2z"),
    ("1bit_u8", 1, 8, 1, "w2z"),
];
/// Tensors of numbers that are not needed here.
const SPARE: &[&str] = &[
    "nbits",
    "group_size",
    "axis",
    "packing",
    "unpack_view_dtype",
    "view_as_float",
    "quant_scale",
    "quant_zero",
    "compute_dtype",
    "offload_meta",
    "encoded_state_dict",
    "stores_quant_config",
    "optimize",
    "round_zero",
];
/// Types of such tensors.
const NUMBERS: &[&str] = &["I32", "I64", "U8", "BOOL", "F32"];

pub(super) fn hqq(settings: &Map<String, Value>, tensors: &mut Tensors<'_>) -> Result<(), Wrong> {
    // Settings that matrices do not give themselves.
    let said = settings.get("quant_config").and_then(|of| of.get("weight_quant_params"));
    let number = |name: &str| said.and_then(|of| usize::try_from(of.get(name)?.as_u64()?).ok());
    let said = ["axis", "group_size"].map(number);
    for stem in tensors.stems(".W_q") {
        let entry = matrix(tensors, &stem, said)?;
        for name in SPARE {
            tensors.index.remove(&format!("{stem}.{name}"));
        }
        tensors.index.insert(format!("{stem}.weight"), entry);
    }
    Ok(())
}

/// Declares the method where a configuration does not: HQQ's own configurations have none.
pub(super) fn declare(config: &mut Value, tensors: &Tensors<'_>) {
    let matrix =
        |name: &str| name.strip_suffix(".W_q").is_some_and(|s| tensors.index.contains_key(&format!("{s}.packing")));
    let Some(all) = config.as_object_mut().filter(|all| all.get("quantization_config").is_none_or(Value::is_null))
    else {
        return;
    };
    if tensors.index.keys().any(|name| matrix(name)) {
        all.insert("quantization_config".into(), json!({ "quant_method": "hqq" }));
    }
}

/// A number of a matrix; `None` where it is not there.
fn number(tensors: &mut Tensors<'_>, stem: &str, name: &str) -> Result<Option<usize>, Wrong> {
    let name = format!("{stem}.{name}");
    let Some(shape) = tensors.index.get(&name).map(|e| e.info.shape.clone()) else { return Ok(None) };
    if shape.iter().any(|n| *n != 1) {
        return Err((format!("tensor `{name}` has shape {shape:?}; it must be a single number"), UNQUANTIZED));
    }
    let part = tensors.take(&name, NUMBERS, &shape)?;
    Ok(Some(match part.dtype {
        "U8" | "BOOL" => part.bytes(tensors.shards).first().map_or(0, |u| usize::from(*u)),
        "F32" => part.float(tensors.shards, 0) as usize,
        _ => part.integer(tensors.shards, 0),
    }))
}

/// The packing of a matrix, by its name.
fn packing(tensors: &mut Tensors<'_>, stem: &str) -> Result<usize, Wrong> {
    let name = format!("{stem}.packing");
    let length = tensors.index.get(&name).map_or(0, |e| e.info.bytes.len());
    let part = tensors.take(&name, &["U8"], &[length])?;
    let found = String::from_utf8_lossy(part.bytes(tensors.shards)).into_owned();
    let known: Vec<&str> = PACKINGS.iter().map(|p| p.0).collect();
    let what = || (format!("`{stem}`: `packing` is `{found}`; supported are {}", known.join(", ")), UNQUANTIZED);
    PACKINGS.iter().position(|p| p.0 == found).ok_or_else(what)
}

fn matrix(tensors: &mut Tensors<'_>, stem: &str, said: [Option<usize>; 2]) -> Result<Entry, Wrong> {
    let wrong = |what: String| (format!("`{stem}`: {what}"), UNQUANTIZED);
    for name in ["quant_scale", "quant_zero"] {
        if number(tensors, stem, name)?.is_some_and(|n| n != 0) {
            return Err(wrong(format!("`{name}`: quantized scales are not supported")));
        }
    }
    let (_, bits, per, bytes, format) = PACKINGS[packing(tensors, stem)?];
    let axis = number(tensors, stem, "axis")?.or(said[0]);
    let axis =
        axis.ok_or_else(|| required::missing(&format!("{stem}.axis"), "and the settings have no `axis` either"))?;
    let shape = tensors.take(&format!("{stem}.shape"), &["I64", "I32"], &[2])?;
    let [n, k] = [0, 1].map(|i| shape.integer(tensors.shards, i));
    let elements =
        n.checked_mul(k).filter(|e| *e > 0).ok_or_else(|| wrong(format!("it is {n} rows of {k} columns")))?;
    let whole = if axis == 1 { k } else { n };
    let group = number(tensors, stem, "group_size")?.or(said[1]).unwrap_or(whole);
    if group == 0 || !elements.is_multiple_of(group) || axis > 1 {
        return Err(wrong(format!("its {n}·{k} elements are not whole groups")));
    }
    let one = number(tensors, stem, "channel_wise")? == Some(0);
    // Such matrices are not reshaped.
    let group = if one { whole } else { group };
    let groups = if one { 1 } else { elements / group };
    let [rows, columns] = if axis == 1 { [elements / group, group] } else { [group, elements / group] };
    let codes = tensors.take_any(&format!("{stem}.W_q"))?;
    let [zeros, scales] = if tensors.index.contains_key(&format!("{stem}.zero_scale")) {
        // Where they were kept apart from the codes, one after the other.
        let both = tensors.take_any(&format!("{stem}.zero_scale"))?;
        let middle = both.from + (both.to - both.from) / 2;
        [Part { to: middle, ..both }, Part { from: middle, ..both }]
    } else {
        [tensors.take_any(&format!("{stem}.zero"))?, tensors.take_any(&format!("{stem}.scale"))?]
    };
    let stored = rows.div_ceil(per).checked_mul(columns).and_then(|items| items.checked_mul(bytes));
    if stored != Some(codes.to - codes.from) {
        return Err(wrong(format!(
            "its codes have {} bytes, which do not fit {n}·{k} elements",
            codes.to - codes.from
        )));
    }
    for (name, part) in [("scale", &scales), ("zero", &zeros)] {
        let size = if part.dtype == "F32" { 4 } else { 2 };
        let floats = ["F32", "F16", "BF16"].contains(&part.dtype);
        if !floats || Some(part.to - part.from) != groups.checked_mul(size) {
            return Err(wrong(format!("its `{name}` are not floats for {groups} groups")));
        }
    }
    let layout = Reshaped { codes, scales, zeros, bits, step: rows.div_ceil(per), columns, per, axis, one, k, unit: 0 };
    Ok(entry(layout, [n, k], group, format))
}

/// The matrix; decoded where no format has its groups.
fn entry(layout: Reshaped, [n, k]: [usize; 2], group: usize, format: &str) -> Entry {
    let unit = unit(group).filter(|_| layout.axis == 1 && k.is_multiple_of(group));
    let dtype = unit.and_then(|unit| grouped_type(Elem::named(format), unit)).unwrap_or(&COMPUTED);
    let info = TensorInfo { dtype, shape: vec![n, k], bytes: layout.codes.from..layout.codes.to };
    let shard = layout.codes.shard;
    let layout = Reshaped { unit: unit.unwrap_or(1), ..layout };
    Entry { layout: Some(Arc::new(layout)), ..Entry::plain(shard, info) }
}

#[derive(Debug)]
struct Reshaped {
    codes: Part,
    scales: Part,
    zeros: Part,
    bits: u32,
    /// Rows of a part, of all rows as they are reshaped.
    step: usize,
    /// Columns of these.
    columns: usize,
    /// Parts.
    per: usize,
    axis: usize,
    /// There is one scale and one zero.
    one: bool,
    /// Columns of the matrix.
    k: usize,
    /// Elements of a group as stored.
    unit: usize,
}

impl Reshaped {
    /// The code of an element of the flattened matrix.
    fn code(&self, shards: &[Shard], at: usize) -> u8 {
        let (row, column) = (at / self.columns, at % self.columns);
        let (part, item) = (row / self.step, row % self.step * self.columns + column);
        let shift = self.bits * (self.per - 1 - part) as u32;
        let item = match self.bits {
            3 => self.codes.word(shards, item),
            _ => self.codes.bytes(shards).get(item).map_or(0, |u| u32::from(*u)),
        };
        (item >> shift & ((1 << self.bits) - 1)) as u8
    }

    /// Scale and zero of an element.
    fn factors(&self, shards: &[Shard], at: usize) -> [f32; 2] {
        let group = match self.axis {
            _ if self.one => 0,
            1 => at / self.columns,
            _ => at % self.columns,
        };
        [self.scales.float(shards, group), self.zeros.float(shards, group)]
    }
}

impl Layout for Reshaped {
    fn parts(&self) -> Vec<(usize, Range<usize>)> {
        vec![self.codes.place()]
    }

    fn codes(&self, shards: &[Shard], row: usize, out: &mut CodedRow) {
        let first = row * self.k;
        out.codes.iter_mut().enumerate().for_each(|(col, c)| *c = self.code(shards, first + col));
        for (g, f) in out.factors.iter_mut().enumerate() {
            let [scale, zero] = self.factors(shards, first + g * self.unit);
            // Exact where both are of 16 bits.
            *f = (scale, -scale * zero);
        }
    }

    fn values(&self, shards: &[Shard], row: usize, out: &mut [f32]) {
        for (col, v) in out.iter_mut().enumerate().take(self.k) {
            let at = row * self.k + col;
            let [scale, zero] = self.factors(shards, at);
            *v = (f64::from(scale) * (f64::from(self.code(shards, at)) - f64::from(zero))) as f32;
        }
    }
}
