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
mod nvfp4;
mod packed;
mod pairs;
mod quanto;
mod required;
mod schemes;
mod settings;
mod sparse;
mod stacks;
mod tensors;
pub(super) mod ternary;
mod torchao;
mod turned;
mod words;

use super::stored::Entry;
use crate::config::parts;
pub(super) use bytes::block_size;
pub(super) use schemes::is_class;
use serde_json::{Map, Value};
pub(super) use tensors::{COMPUTED, Tensors, UNQUANTIZED, Wrong, groups_of_int8};
use tensors::{Part, coded, grouped_type, unit};

/// Where a configuration gives the quantization of a whole model or of the text model in it.
pub(super) const SETTINGS: &str = "quantization_config";

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

/// The settings of a configuration, if it has any.
pub(super) fn settings_of(config: &Value) -> Option<&Map<String, Value>> {
    parts::whole_and_part(config).find_map(|of| of.get(SETTINGS)?.as_object())
}

/// The method that settings name.
fn named(settings: &Map<String, Value>) -> Option<&str> {
    settings.get("quant_method").and_then(Value::as_str).or_else(|| modelopt::unnamed(settings))
}

/// The method of settings, if it is in the table.
pub(super) fn method(settings: &Map<String, Value>) -> Option<&'static str> {
    let named = named(settings);
    METHODS.iter().map(|(name, _)| *name).find(|name| Some(*name) == named)
}

/// Makes matrices of the tensors of a quantized checkpoint, whose configuration then says nothing of
/// it any more. Methods that are not in the table stay there, to be refused.
pub(super) fn replace(config: &mut Value, tensors: &mut Tensors<'_>) -> Result<(), Wrong> {
    hqq::declare(config, tensors);
    quanto::declare(config, tensors);
    let said = settings_of(config).cloned();
    let Some(settings) = said.as_ref() else {
        stacks::unify(tensors);
        return Ok(());
    };
    let method = named(settings);
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
            if of.get(SETTINGS).and_then(Value::as_object) == said.as_ref() {
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

#[cfg(test)]
mod tests;
