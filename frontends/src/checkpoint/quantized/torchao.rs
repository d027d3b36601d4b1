//! torchao's tensors as safetensors have them (torchao 0.15 and later,
//! `torchao/prototype/safetensors`): the parts of a `weight` that is a Python object,
//! `_weight_qdata`, `_weight_scale` and `_weight_zero_point`; the header's metadata name its class.

use super::bytes::{ByteKind, scaled};
use super::{Tensors, UNQUANTIZED, Wrong, required};
use crate::checkpoint::shard::Shard;
use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// The codes of a matrix.
const CODES: &str = "._weight_qdata";
/// Its other parts, and their names in other methods.
const PARTS: &[(&str, &str)] = &[("scale", "weight_scale"), ("zero_point", "weight_zero_point")];
/// Classes whose codes are a byte each, with a scale for the matrix, each row or each group of columns.
const BYTES: &[&str] = &["Float8Tensor", "Int8Tensor", "IntxUnpackedToInt8Tensor"];

/// The one class that always has zeros.
const WITH_ZEROS: &str = "IntxUnpackedToInt8Tensor";

/// The metadata of a file.
type Metadata = Map<String, Value>;

pub(super) fn torchao(_: &Map<String, Value>, tensors: &mut Tensors<'_>) -> Result<(), Wrong> {
    let stems = tensors.stems(CODES);
    if stems.is_empty() {
        let what = "its tensors are objects of torchao, which are not supported".into();
        let help = "save it as safetensors with torchao 0.15 or later, or take the unquantized one";
        return Err((what, help));
    }
    let (mut files, mut dynamic) = (BTreeMap::new(), 0);
    for stem in stems {
        let shard = tensors.index.get(&format!("{stem}{CODES}")).map_or(0, |e| e.shard);
        let metadata =
            files.entry(shard).or_insert_with(|| tensors.shards.get(shard).map(metadata).unwrap_or_default());
        let said = said(metadata, &stem);
        dynamic += usize::from(rounds_inputs(&said));
        matrix(tensors, &stem, said["_type"].as_str())?;
    }
    if dynamic > 0 {
        let what = "inputs that are rounded token by token; here --act decides the rounding of activations";
        tensors.notes.push(format!("{dynamic} products were quantized for {what}"));
    }
    Ok(())
}

/// The metadata in the header of a file. It was read before, so it is one.
fn metadata(shard: &Shard) -> Metadata {
    let header = || {
        let length = u64::from_le_bytes(shard.map.get(..8)?.try_into().ok()?);
        let end = usize::try_from(length).ok()?.checked_add(8)?;
        let header: Value = serde_json::from_slice(shard.map.get(8..end)?).ok()?;
        header.get("__metadata__")?.as_object().cloned()
    };
    header().unwrap_or_default()
}

/// The metadata of a matrix: JSON in a text.
fn said(metadata: &Metadata, stem: &str) -> Value {
    let text = metadata.get(&format!("{stem}.weight")).and_then(Value::as_str);
    text.and_then(|text| serde_json::from_str(text).ok()).unwrap_or(Value::Null)
}

/// Whether the input of products with a matrix is rounded too, by scales of each token.
fn rounds_inputs(said: &Value) -> bool {
    ["activation_quantization", "act_quant_kwargs"].iter().any(|name| !said["_data"][name].is_null())
}

fn matrix(tensors: &mut Tensors<'_>, stem: &str, class: Option<&str>) -> Result<(), Wrong> {
    if let Some(class) = class.filter(|class| !BYTES.contains(class)) {
        let what = format!("`{stem}.weight` is torchao's `{class}`; supported are {}", BYTES.join(", "));
        return Err((what, UNQUANTIZED));
    }
    let codes = format!("{stem}{CODES}");
    let (kind, whole) = match tensors.index.get(&codes).map(|e| e.info.dtype.name) {
        Some("F8_E4M3") => (ByteKind::E4m3, false),
        Some("I8") => (ByteKind::Int8, true),
        other => {
            let what = format!("tensor `{codes}` is {}; it must be I8 or F8_E4M3", other.unwrap_or("missing"));
            return Err((what, UNQUANTIZED));
        }
    };
    if class == Some(WITH_ZEROS) && !tensors.index.contains_key(&format!("{stem}._weight_zero_point")) {
        return Err(required::missing(&format!("{stem}._weight_zero_point"), "which this class always has"));
    }
    // No zeros are zeros in the middle of the codes, and need no format that has them.
    let zeros = format!("{stem}._weight_zero_point");
    let zero = |u: &u8| *u == 0;
    if let Some(e) = tensors.index.get(&zeros).filter(|e| !whole || e.info.dtype.name == "I8") {
        let bytes = tensors.shards.get(e.shard).and_then(|s| s.map.get(e.info.bytes.clone())).unwrap_or_default();
        if bytes.iter().all(zero) {
            tensors.index.remove(&zeros);
        }
    }
    let mut rename = |from: String, to: String| {
        if let Some(entry) = tensors.index.remove(&from) {
            tensors.index.insert(to, entry);
        }
    };
    rename(codes, format!("{stem}.weight"));
    PARTS.iter().for_each(|(part, name)| rename(format!("{stem}._weight_{part}"), format!("{stem}.{name}")));
    let others = format!("{stem}._weight_");
    if let Some(other) = tensors.index.keys().find(|name| name.starts_with(&others)) {
        return Err((
            format!("tensor `{other}`, which changes the input of the product, is not supported"),
            UNQUANTIZED,
        ));
    }
    scaled(tensors, stem, "weight_scale", (kind, None), 1.0)
}
