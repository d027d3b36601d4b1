//! Tensors that settings call for beside a matrix. Where one is missing, the matrix would be another one, or its
//! product would round its input otherwise, without a word.

use super::{Tensors, UNQUANTIZED, Wrong};
use serde_json::{Map, Value};
use std::collections::BTreeSet;

/// Tensors beside codes: either all layers have one or none has.
const BESIDE: [&str; 9] = [
    "g_idx",
    "weight_g_idx",
    "weight_zero_point",
    "weight_scale_2",
    "input_scale",
    "activation_scale",
    "qscale_act",
    "input_zero_point",
    "pre_quant_scale",
];
/// Names of codes.
const CODES: [&str; 3] = ["qweight", "weight_packed", "weight"];
/// Names of the scale of a product's input.
const INPUTS: [&str; 3] = ["input_scale", "activation_scale", "qscale_act"];
/// Parts of the names of settings that change products while the model runs, whatever the method: matrices that
/// rotate rows, and products of low rank that are added.
const CHANGES: [&str; 5] = ["rotat", "hadamard", "adapter", "lora", "svd"];

/// The name of a module with all numbers of layers and experts made alike.
fn kind(stem: &str) -> String {
    let alike = |part: &str| if part.bytes().all(|b| b.is_ascii_digit()) { "*" } else { part }.to_string();
    stem.split('.').map(alike).collect::<Vec<_>>().join(".")
}

/// The error for a missing tensor, with the reason why it is needed.
pub(super) fn missing(name: &str, why: &str) -> Wrong {
    (format!("tensor `{name}` is missing, {why}"), "download the checkpoint again, all files of one revision")
}

/// Checks that matrices of one kind (of one name, whatever the layer, and one type of codes) all
/// have the same further tensors.
pub(super) fn alike(tensors: &Tensors<'_>) -> Result<(), Wrong> {
    let codes = |stem: &str| {
        let of = |ending: &&str| tensors.index.get(&format!("{stem}.{ending}")).map(|e| e.info.dtype.name);
        CODES.iter().find_map(of).filter(|name| !["F32", "F16", "BF16"].contains(name))
    };
    let stems: BTreeSet<String> = CODES.iter().flat_map(|ending| tensors.stems(&format!(".{ending}"))).collect();
    for ending in BESIDE {
        let has = tensors.stems(&format!(".{ending}"));
        let kinds: BTreeSet<(String, &str)> = has.iter().filter_map(|s| Some((kind(s), codes(s)?))).collect();
        // Some experts may have no measured input; the error names the stack.
        let measured = ["input_scale", "activation_scale", "qscale_act", "input_zero_point"].contains(&ending);
        let lacks = |stem: &&String| {
            if measured && stem.contains("experts.") {
                return false;
            }
            let found = codes(stem).is_some_and(|codes| kinds.contains(&(kind(stem), codes)));
            found && !tensors.index.contains_key(&format!("{stem}.{ending}"))
        };
        if let Some(stem) = stems.iter().find(lacks).filter(|_| !kinds.is_empty()) {
            return Err(missing(&format!("{stem}.{ending}"), "which such matrices of other layers have"));
        }
    }
    Ok(())
}

/// Checks that where a matrix has a scale, all of its kind have, also float matrices.
pub(super) fn alike_floats(tensors: &Tensors<'_>, scaled: &[String]) -> Result<(), Wrong> {
    let kinds: BTreeSet<String> = scaled.iter().map(|stem| kind(stem)).collect();
    let name = |stem: &str| format!("{stem}.weight_scale");
    let lacks = |stem: &String| kinds.contains(&kind(stem)) && !tensors.index.contains_key(&name(stem));
    match tensors.stems(".weight").into_iter().find(lacks) {
        Some(stem) => Err(missing(&name(&stem), "which such matrices of other layers have")),
        None => Ok(()),
    }
}

/// Checks that the input of products with a matrix has a scale that was fixed.
pub(super) fn input_scale(tensors: &Tensors<'_>, stem: &str, why: &str) -> Result<(), Wrong> {
    let has = INPUTS.iter().any(|name| tensors.index.contains_key(&format!("{stem}.{name}")));
    if has { Ok(()) } else { Err(missing(&format!("{stem}.{}", INPUTS[0]), why)) }
}

/// A setting that is true or false.
pub(super) fn flag(settings: &Map<String, Value>, name: &str) -> Result<Option<bool>, Wrong> {
    match settings.get(name) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::Bool(on)) => Ok(Some(*on)),
        Some(v) => Err((format!("`{name}` is {v}, neither true nor false"), UNQUANTIZED)),
    }
}

/// Whether a setting says nothing.
pub(super) fn is_off(v: &Value) -> bool {
    match v {
        Value::Null | Value::Bool(false) => true,
        Value::Object(members) => members.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::String(text) => text.is_empty() || text == "none",
        Value::Bool(true) | Value::Number(_) => false,
    }
}

/// Refuses settings that change products while the model runs.
pub(super) fn no_changes(settings: &Map<String, Value>) -> Result<(), Wrong> {
    let changes = |key: &str| CHANGES.iter().any(|part| key.to_lowercase().contains(part));
    if let Some((key, v)) = settings.iter().find(|(key, v)| changes(key) && !is_off(v)) {
        let what = format!("`quantization_config` has `{key}` ({}), which is not supported", short(v));
        return Err((format!("{what} and changes the results of products"), UNQUANTIZED));
    }
    // Quark's list of algorithms: rotations may be done while the model runs.
    let algorithms = settings.get("algo_config").and_then(Value::as_array).into_iter().flatten();
    let online = |of: &Map<String, Value>| of.iter().find(|(key, v)| key.contains("online") && !is_off(v)).is_some();
    if let Some(of) = algorithms.filter_map(Value::as_object).find(|of| online(of)) {
        let name = of.get("name").and_then(Value::as_str).unwrap_or("?");
        let what = format!("`algo_config` has `{name}`, which rotates rows while the model runs and is not supported");
        return Err((what, UNQUANTIZED));
    }
    Ok(())
}

/// A setting in a message.
pub(super) fn short(v: &Value) -> String {
    let text = v.to_string();
    match text.char_indices().nth(60) {
        Some((cut, _)) => format!("{}...", &text[..cut]),
        None => text,
    }
}
