//! Checkpoints of safetensors that a method has quantized: the tensors that stand for one matrix
//! become that matrix, as codes with scales, or as the numbers that they stand for.
//!
//! [`METHODS`] is the table, by `quant_method` in `config.json`.

mod activations;
mod bitsandbytes;
mod bytes;
mod compressed;
mod hqq;
mod microscaling;
mod modelopt;
mod packed;
mod pairs;
mod quanto;
mod required;
mod schemes;
mod settings;
mod sparse;
mod stacks;
pub(super) mod ternary;
mod torchao;
mod turned;
mod words;

use super::safetensors::{StoredType, TensorInfo};
use super::shard::Shard;
use super::stored::Entry;
use crate::config::parts;
use llmcc_ir::quant::{Elem, Format, e4m3_to_f32, e8m0_to_f32};
use llmcc_ir::ty::DType;
use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// The fault, and the remedy.
pub(super) type Wrong = (String, &'static str);

pub(super) const UNQUANTIZED: &str = "use the unquantized checkpoint and compile with --w8 or --w4";

/// The tensors of a checkpoint, being replaced.
pub(super) struct Tensors<'a> {
    /// By name.
    pub index: &'a mut BTreeMap<String, Entry>,
    /// Files.
    pub shards: &'a [Shard],
    /// Notes for the user.
    pub notes: &'a mut Vec<String>,
}

/// Where a configuration gives the quantization of a whole model or of the text model in it.
const SETTINGS: &str = "quantization_config";

/// Replaces the tensors by `quantization_config`.
type Method = fn(&Map<String, Value>, &mut Tensors<'_>) -> Result<(), Wrong>;

const METHODS: &[(&str, Method)] = &[
    ("bitsandbytes", bitsandbytes::replace),
    ("gptq", packed::gptq),
    ("awq", packed::awq),
    ("auto-round", packed::auto_round),
    ("intel/auto-round", packed::auto_round),
    ("fp8", bytes::fp8),
    ("mxfp8", bytes::fp8),
    ("fbgemm_fp8", bytes::fbgemm),
    ("compressed-tensors", compressed::replace),
    ("modelopt", modelopt::modelopt),
    ("quark", modelopt::quark),
    ("quanto", quanto::quanto),
    ("bitnet", ternary::bitnet),
    ("torchao", torchao::torchao),
    ("mxfp4", microscaling::mxfp4),
    ("hqq", hqq::hqq),
];

/// ModelOpt's settings; its newer versions have them in `config.json`, too.
pub(super) const MODELOPT: &str = "hf_quant_config.json";

/// Adds that file's settings to a configuration without any.
pub(super) fn declare(config: &mut Value, said: &Value) {
    let Some(all) = config.as_object_mut().filter(|all| !all.contains_key("quantization_config")) else { return };
    if let Some(mut settings) = said.get("quantization").and_then(Value::as_object).cloned() {
        settings.insert("quant_method".into(), "modelopt".into());
        all.insert("quantization_config".into(), settings.into());
    }
}

/// Makes matrices of the tensors of a quantized checkpoint, whose configuration then says nothing of
/// it any more. Methods that are not in the table stay there, to be refused.
pub(super) fn replace(config: &mut Value, tensors: &mut Tensors<'_>) -> Result<(), Wrong> {
    hqq::declare(config, tensors);
    quanto::declare(config, tensors);
    let mut said: Option<Value> = None;
    parts::quantized(config, |of| said = said.take().or_else(|| of.get(SETTINGS).filter(|v| v.is_object()).cloned()));
    let Some(settings) = said.as_ref().and_then(Value::as_object) else {
        stacks::unify(tensors);
        return Ok(());
    };
    let method = settings.get("quant_method").and_then(Value::as_str).or_else(|| modelopt::unnamed(settings));
    let Some((method, read)) = METHODS.iter().find(|(name, _)| Some(*name) == method) else { return Ok(()) };
    required::no_changes(settings)?;
    settings::unknown(method, settings, tensors.notes);
    // Layers may differ where there are several schemes: compressed-tensors lists each scheme's
    // matrices.
    let several = settings.get("config_groups").and_then(Value::as_object).is_some_and(|groups| groups.len() > 1);
    let mixed = settings.get("quant_algo").and_then(Value::as_str) == Some("MIXED_PRECISION");
    if !several && !mixed {
        required::alike(tensors)?;
    }
    read(settings, tensors)?;
    stacks::unify(tensors);
    note_experts(tensors);
    note_decoded(tensors);
    if decoded_before(method, tensors) || tensors.index.values().any(|e| e.layout.is_some()) {
        // Newer versions of Transformers write it twice.
        parts::quantized(config, |of| {
            if of.get(SETTINGS) == said.as_ref() {
                of.remove(SETTINGS);
            }
        });
    } else if !tensors.index.is_empty() {
        return Err(no_codes(method, tensors));
    }
    Ok(())
}

/// No matrix matches the settings.
fn no_codes(method: &str, tensors: &Tensors<'_>) -> Wrong {
    let odd =
        tensors.index.iter().find(|(_, e)| e.info.shape.len() > 1 && !e.info.dtype.dtype.is_some_and(|t| t.is_float()));
    let other = odd.map_or_else(String::new, |(name, e)| format!(" (tensor `{name}` is {})", e.info.dtype.name));
    let what = format!("`quantization_config` says `{method}`, but no matrix has this method's form{other}");
    (what, "download the whole checkpoint again, or remove `quantization_config` if the matrices were decoded")
}

/// Methods whose matrices tensors of no float type stand for.
const NOT_FLOATS: [&str; 6] = ["fp8", "mxfp8", "mxfp4", "modelopt", "quark", "compressed-tensors"];

/// Whether all tensors are floats as they are, though the settings are of a method: someone has decoded them,
/// and left the settings.
fn decoded_before(method: &str, tensors: &mut Tensors<'_>) -> bool {
    let float = |e: &Entry| e.layout.is_none() && ["F32", "F16", "BF16"].contains(&e.info.dtype.name);
    let vector = |e: &Entry| e.info.shape.len() < 2;
    let all = NOT_FLOATS.contains(&method) && tensors.index.values().all(|e| float(e) || vector(e));
    if all && !tensors.index.is_empty() {
        tensors.notes.push(format!(
            "`quantization_config` says `{method}`, but no matrix is quantized: they are read as floats"
        ));
    }
    all
}

/// The matrices of all experts are one stack, whose columns have one order; in files each may have its
/// own.
fn note_experts(tensors: &mut Tensors<'_>) {
    let sorted = |(name, e): &(&String, &Entry)| e.order.is_some() && name.contains(".experts.");
    let count = tensors.index.iter().filter(sorted).count();
    if count > 0 {
        tensors.notes.push(format!(
            "{count} matrices of experts have groups of columns that are not adjacent (act-order), each in an \
                order of its own: they are decoded, and stored like float matrices"
        ));
    }
}

/// Matrices whose groups no format has.
fn note_decoded(tensors: &mut Tensors<'_>) {
    let count = tensors.index.values().filter(|e| std::ptr::eq(e.info.dtype, &COMPUTED)).count();
    if count > 0 {
        tensors.notes.push(format!(
            "{count} quantized matrices have groups that no format supports (different sizes, not a multiple of \
                32 columns, FP8 groups below 128, groups along the outputs or across rows, mixed experts): they \
                are decoded, and stored like float matrices"
        ));
    }
}

impl Tensors<'_> {
    /// The names before `ending` of all tensors that end so.
    fn stems(&self, ending: &str) -> Vec<String> {
        self.index.keys().filter_map(|name| name.strip_suffix(ending)).map(String::from).collect()
    }

    /// Takes a tensor of this type and shape away.
    fn take(&mut self, name: &str, types: &[&str], shape: &[usize]) -> Result<Part, Wrong> {
        let entry = self.index.remove(name).ok_or_else(|| (format!("tensor `{name}` is missing"), UNQUANTIZED))?;
        if entry.layout.is_some() {
            return Err((format!("tensor `{name}` is not contiguous in the file"), UNQUANTIZED));
        }
        let TensorInfo { dtype, shape: found, bytes } = &entry.info;
        if !types.contains(&dtype.name) || found != shape {
            let wanted = types.join(" or ");
            let what = format!("tensor `{name}` is {} {found:?}, where {wanted} {shape:?} is needed", dtype.name);
            return Err((what, UNQUANTIZED));
        }
        Ok(Part { shard: entry.shard, from: bytes.start, to: bytes.end, dtype: dtype.name })
    }

    /// Takes a tensor of any type and shape away.
    fn take_any(&mut self, name: &str) -> Result<Part, Wrong> {
        let info = self.index.get(name).map(|e| (e.info.dtype.name, e.info.shape.clone()));
        let (dtype, shape) = info.ok_or_else(|| (format!("tensor `{name}` is missing"), UNQUANTIZED))?;
        self.take(name, &[dtype], &shape)
    }

    /// The shape of a tensor of two dimensions.
    fn matrix(&self, name: &str) -> Result<[usize; 2], Wrong> {
        match self.index.get(name).map(|e| &e.info.shape[..]) {
            Some([n, k]) => Ok([*n, *k]),
            Some(shape) => Err((format!("tensor `{name}` has shape {shape:?}; it must be a matrix"), UNQUANTIZED)),
            None => Err((format!("tensor `{name}` is missing"), UNQUANTIZED)),
        }
    }
}

/// A tensor that is part of a matrix.
#[derive(Clone, Copy, Debug)]
pub(super) struct Part {
    shard: usize,
    from: usize,
    to: usize,
    dtype: &'static str,
}

impl Part {
    fn bytes<'a>(&self, shards: &'a [Shard]) -> &'a [u8] {
        shards.get(self.shard).and_then(|s| s.map.get(self.from..self.to)).unwrap_or_default()
    }

    /// Where it is.
    fn place(&self) -> (usize, std::ops::Range<usize>) {
        (self.shard, self.from..self.to)
    }

    /// Element `i` as a float; its type is one of F32, F16, BF16, F8_E4M3 and F8_E8M0, or U8 for this.
    /// Places are checked when the tensor is taken.
    fn float(&self, shards: &[Shard], i: usize) -> f32 {
        let bytes = self.bytes(shards);
        let two = |i: usize| bytes.get(2 * i..2 * i + 2).map_or([0; 2], |b| [b[0], b[1]]);
        match self.dtype {
            "F16" => half::f16::from_le_bytes(two(i)).to_f32(),
            "BF16" => half::bf16::from_le_bytes(two(i)).to_f32(),
            "F8_E4M3" => bytes.get(i).map_or(0.0, |u| e4m3_to_f32(*u)),
            "F8_E8M0" | "U8" => bytes.get(i).map_or(0.0, |u| e8m0_to_f32(*u)),
            _ => f32::from_bits(self.word(shards, i)),
        }
    }

    /// Element `i` of integers of 32 or 64 bits as a size; 0 where it is none.
    fn integer(&self, shards: &[Shard], i: usize) -> usize {
        let eight = || self.bytes(shards).get(8 * i..8 * i + 8)?.try_into().ok();
        let number = match self.dtype {
            "I64" => i64::from_le_bytes(eight().unwrap_or_default()),
            _ => i64::from(self.word(shards, i) as i32),
        };
        usize::try_from(number).unwrap_or(0)
    }

    /// Element `i` of 32-bit numbers.
    fn word(&self, shards: &[Shard], i: usize) -> u32 {
        let four = self.bytes(shards).get(4 * i..4 * i + 4);
        four.map_or(0, |b| u32::from_le_bytes([b[0], b[1], b[2], b[3]]))
    }
}

/// A matrix as codes: how readers describe it.
const fn coded(name: &'static str, format: Format, bits: u64) -> StoredType {
    StoredType { name, bits, dtype: Some(DType::Coded(format)) }
}

macro_rules! groups {
    ($($name:literal $elem:expr, $bits:literal;)*) => {
        &[$(
            coded($name, Format::new($elem, 32), $bits),
            coded($name, Format::new($elem, 64), $bits),
            coded($name, Format::new($elem, 128), $bits),
        )*]
    };
}

/// Formats with groups that matrices may become.
static GROUPED: &[StoredType] = groups! {
    "4-bit integers" Elem::W4, 4;
    "8-bit integers" Elem::W8, 8;
    "4-bit integers with minima" Elem::W4A, 4;
    "4-bit integers from zeros" Elem::named("w4z"), 4;
    "8-bit integers from zeros" Elem::named("w8z"), 8;
    "2-bit integers from zeros" Elem::named("w2z"), 2;
    "3-bit integers from zeros" Elem::named("w3z"), 3;
};

/// The description of a format with groups.
fn grouped_type(elem: Elem, group: usize) -> Option<&'static StoredType> {
    GROUPED.iter().find(|t| t.dtype == Some(DType::Coded(Format::new(elem, group as u16))))
}

/// Columns of a group as int8 codes of such groups are stored in, and how readers describe that; `half`:
/// f16 holds all scales. `None` where no format has these groups.
pub(super) fn groups_of_int8(group: usize, half: bool) -> Option<(&'static StoredType, usize)> {
    let unit = unit(group)?;
    Some((grouped_type(if half { Elem::W8 } else { Elem::named("w8z") }, unit)?, unit))
}

/// A matrix of floats that are computed from the file.
pub(super) static COMPUTED: StoredType = StoredType { name: "computed F32", bits: 32, dtype: Some(DType::F32) };

/// The largest group of a format that divides the checkpoint's.
fn unit(group: usize) -> Option<usize> {
    [128, 64, 32].into_iter().find(|unit| group.is_multiple_of(*unit))
}

#[cfg(test)]
mod tests;
