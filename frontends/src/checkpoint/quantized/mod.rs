//! Checkpoints of safetensors that a method has quantized: the tensors that stand for one matrix
//! become that matrix, as codes with scales, or as the numbers that they stand for.
//!
//! [`METHODS`] is the table, by `quant_method` in `config.json`.

mod bitsandbytes;
mod grouped;
mod microscaling;
mod packed;

use super::safetensors::{StoredType, TensorInfo};
use super::shard::Shard;
use super::stored::Entry;
use llmcc_ir::quant::{Elem, Format};
use llmcc_ir::ty::DType;
use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// What is wrong, and what to do.
pub(super) type Wrong = (String, &'static str);

pub(super) const UNQUANTIZED: &str = "use the unquantized checkpoint and compile with --w8 or --w4";

/// The tensors of a checkpoint, being replaced.
pub(super) struct Tensors<'a> {
    /// By name.
    pub index: &'a mut BTreeMap<String, Entry>,
    /// Files.
    pub shards: &'a [Shard],
    /// What the user should know.
    pub notes: &'a mut Vec<String>,
}

/// Replaces the tensors by `quantization_config`.
type Method = fn(&Map<String, Value>, &mut Tensors<'_>) -> Result<(), Wrong>;

const METHODS: &[(&str, Method)] = &[
    ("bitsandbytes", bitsandbytes::replace),
    ("gptq", packed::gptq),
    ("awq", packed::awq),
    ("fp8", grouped::blocks_of_fp8),
    ("mxfp4", microscaling::mxfp4),
];

/// Makes matrices of the tensors of a quantized checkpoint, whose configuration then says nothing of
/// it any more. Methods that are not in the table stay there, to be refused.
pub(super) fn replace(config: &mut Value, tensors: &mut Tensors<'_>) -> Result<(), Wrong> {
    let Some(all) = config.as_object_mut() else { return Ok(()) };
    let Some(settings) = all.get("quantization_config").and_then(Value::as_object) else { return Ok(()) };
    let method = settings.get("quant_method").and_then(Value::as_str);
    let Some((_, method)) = METHODS.iter().find(|(name, _)| Some(*name) == method) else { return Ok(()) };
    let settings = settings.clone();
    method(&settings, tensors)?;
    if tensors.index.values().any(|e| e.layout.is_some()) {
        all.remove("quantization_config");
    }
    Ok(())
}

impl Tensors<'_> {
    /// The names before `ending` of all tensors that end so.
    fn stems(&self, ending: &str) -> Vec<String> {
        self.index.keys().filter_map(|name| name.strip_suffix(ending)).map(String::from).collect()
    }

    /// Takes a tensor of this type and shape away.
    fn take(&mut self, name: &str, types: &[&str], shape: &[usize]) -> Result<Part, Wrong> {
        let entry = self.index.remove(name).ok_or_else(|| (format!("tensor `{name}` is missing"), UNQUANTIZED))?;
        let TensorInfo { dtype, shape: found, bytes } = &entry.info;
        if !types.contains(&dtype.name) || found != shape {
            let wanted = types.join(" or ");
            let what = format!("tensor `{name}` is {} {found:?}, where {wanted} {shape:?} is needed", dtype.name);
            return Err((what, UNQUANTIZED));
        }
        Ok(Part { shard: entry.shard, from: bytes.start, to: bytes.end, dtype: dtype.name })
    }

    /// The shape of a tensor of two dimensions.
    fn matrix(&self, name: &str) -> Result<[usize; 2], Wrong> {
        match self.index.get(name).map(|e| &e.info.shape[..]) {
            Some([n, k]) => Ok([*n, *k]),
            _ => Err((format!("tensor `{name}` is no matrix"), UNQUANTIZED)),
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

    /// Element `i` as a float; its type is one of F32, F16 and BF16. Places are checked when the
    /// tensor is taken.
    fn float(&self, shards: &[Shard], i: usize) -> f32 {
        let bytes = self.bytes(shards);
        let two = |i: usize| bytes.get(2 * i..2 * i + 2).map_or([0; 2], |b| [b[0], b[1]]);
        match self.dtype {
            "F16" => half::f16::from_le_bytes(two(i)).to_f32(),
            "BF16" => half::bf16::from_le_bytes(two(i)).to_f32(),
            _ => f32::from_bits(self.word(shards, i)),
        }
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
    "4-bit integers from zeros" Elem::named("w4z"), 4;
    "8-bit integers from zeros" Elem::named("w8z"), 8;
};

/// The description of a format with groups.
fn grouped_type(elem: Elem, group: usize) -> Option<&'static StoredType> {
    GROUPED.iter().find(|t| t.dtype == Some(DType::Coded(Format::new(elem, group as u16))))
}

/// A matrix of floats that are computed from the file.
static COMPUTED: StoredType = StoredType { name: "computed F32", bits: 32, dtype: Some(DType::F32) };

/// The largest group of a format that divides the checkpoint's.
fn unit(group: usize) -> Option<usize> {
    [128, 64, 32].into_iter().find(|unit| group.is_multiple_of(*unit))
}

#[cfg(test)]
mod tests;
