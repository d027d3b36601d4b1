//! From the metadata of a GGUF file to a `config.json` and tensors as Transformers has them.

use super::families::{FAMILIES, Family};
use super::names::hugging_face;
use super::{Header, Metadata, Value, blocks};
use crate::checkpoint::safetensors::TensorInfo;
use crate::checkpoint::stored::{Blocks, Entry, Order};
use serde_json::{Map, json};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Keys after the prefix of the architecture, and the fields that they are.
const KEYS: &[(&str, &str)] = &[
    ("context_length", "max_position_embeddings"),
    ("embedding_length", "hidden_size"),
    ("block_count", "num_hidden_layers"),
    ("feed_forward_length", "intermediate_size"),
    ("attention.head_count", "num_attention_heads"),
    ("attention.head_count_kv", "num_key_value_heads"),
    ("attention.key_length", "head_dim"),
    ("attention.layer_norm_rms_epsilon", "rms_norm_eps"),
    ("rope.freq_base", "rope_theta"),
];

/// Keys that are read in their own ways, or say nothing about what the model computes.
const OTHER_KEYS: &[&str] = &[
    "attention.value_length",
    "rope.dimension_count",
    "rope.scaling.type",
    "rope.scaling.factor",
    "rope.scaling.original_context_length",
    "rope.scaling.finetuned",
    "rope.scale_linear",
    "vocab_size",
    "tensor_data_layout",
    "expert_count",
    "expert_used_count",
    WINDOWS,
];

/// Which layers have a window.
const WINDOWS: &str = "attention.sliding_window_pattern";

/// The factors of Llama 3's rotary frequencies.
const ROPE_FACTORS: &str = "rope_freqs.weight";

/// A model in a GGUF file, as if it were in Transformers' layout.
pub(in crate::checkpoint) struct Model {
    /// `config.json`.
    pub config: serde_json::Value,
    /// Tensors by Transformers' names.
    pub tensors: BTreeMap<String, Entry>,
}

/// What is wrong, and what to do.
type Wrong = (String, &'static str);

const CONVERT_AGAIN: &str = "convert the model again with a current llama.cpp (`convert_hf_to_gguf.py`)";
const OTHER_MODEL: &str = "take the model's safetensors checkpoint, or another model";

/// Describes the model of a file; `tensors` are those of all its parts with the numbers of these,
/// `bytes` their contents.
pub(in crate::checkpoint) fn describe(
    header: &Metadata,
    tensors: BTreeMap<String, (usize, TensorInfo)>,
    bytes: &dyn Fn(usize, &TensorInfo) -> Vec<u8>,
) -> Result<Model, Wrong> {
    let family = family(header)?;
    let mut config = config(header, family)?;
    let mut tensors = tensors;
    if let Some((shard, info)) = tensors.remove(ROPE_FACTORS) {
        config.insert("rope_scaling".into(), llama3_scaling(&info, &bytes(shard, &info))?);
    }
    let has = |name: &str| tensors.contains_key(name);
    config.insert("tie_word_embeddings".into(), (!has("output.weight")).into());
    config.extend(family.found.iter().map(|(field, tensor)| ((*field).into(), has(tensor).into())));
    if let Some(long) = ["rope_factors_long.weight", "rope_factors_short.weight"].into_iter().find(|n| has(n)) {
        return Err((format!("tensor `{long}` makes rotary frequencies depend on the length"), OTHER_MODEL));
    }
    if let Some((_, table)) = tensors.get("token_embd.weight")
        && let Some(rows) = table.shape.first()
    {
        config.insert("vocab_size".into(), (*rows).into());
    }
    let head_dim = head_dim(&config);
    let mut out = BTreeMap::new();
    for (name, (shard, info)) in tensors {
        let called = hugging_face(&name, family.names);
        let info = if called.ends_with("shared_expert_gate.weight") { as_row(info) } else { info };
        for (called, info) in experts(called, info) {
            let entry = entry(family, &name, (shard, info), head_dim);
            if out.insert(called.clone(), entry).is_some() {
                return Err((format!("two tensors are `{called}`"), OTHER_MODEL));
            }
        }
    }
    Ok(Model { config: config.into(), tensors: out })
}

/// A vector as the matrix of one row that it was.
fn as_row(info: TensorInfo) -> TensorInfo {
    let shape = if let [n] = info.shape[..] { vec![1, n] } else { info.shape };
    TensorInfo { shape, ..info }
}

/// The matrix of each expert, where a tensor is those of all; else the tensor.
fn experts(called: String, info: TensorInfo) -> Vec<(String, TensorInfo)> {
    let [count @ 1..=MOST_EXPERTS, n, k] = info.shape[..] else { return vec![(called, info)] };
    if !called.contains("{e}") {
        return vec![(called, info)];
    }
    let size = info.bytes.len() / count;
    let one = |e: usize| {
        let from = info.bytes.start + e * size;
        let info = TensorInfo { dtype: info.dtype, shape: vec![n, k], bytes: from..from + size };
        (called.replace("{e}", &e.to_string()), info)
    };
    (0..count).map(one).collect()
}

/// Experts that a layer may have.
const MOST_EXPERTS: usize = 4096;

fn family(metadata: &Metadata) -> Result<&'static Family, Wrong> {
    let name = metadata.get("general.architecture").and_then(Value::text);
    let Some(name) = name else {
        return Err(("`general.architecture` is missing".into(), "this file holds no language model; name another"));
    };
    let experts = metadata.get(&format!("{name}.expert_count")).and_then(Value::unsigned).unwrap_or(0) > 0;
    let mut of_name = FAMILIES.iter().filter(|f| f.name == name).peekable();
    if of_name.peek().is_none() {
        let mut known: Vec<_> = FAMILIES.iter().map(|f| f.name).collect();
        known.dedup();
        let what = format!("`general.architecture` is `{name}`; read from GGUF are {}", known.join(", "));
        return Err((what, OTHER_MODEL));
    }
    of_name.find(|f| f.experts == experts).ok_or_else(|| {
        let has = if experts { "has" } else { "has no" };
        (format!("this `{name}` {has} experts by `{name}.expert_count`, which is not read"), OTHER_MODEL)
    })
}

fn config(metadata: &Metadata, family: &Family) -> Result<Map<String, serde_json::Value>, Wrong> {
    let get = |key: &str| metadata.get(&format!("{}.{key}", family.name));
    let (model_type, class) = family.model_type;
    let mut config = Map::new();
    config.insert("model_type".into(), model_type.into());
    config.insert("architectures".into(), json!([class]));
    if let Some(name) = metadata.get("general.name").and_then(Value::text) {
        config.insert("_name_or_path".into(), name.into());
    }
    let fields = || KEYS.iter().chain(family.keys);
    for (key, field) in fields() {
        let Some(value) = get(key) else { continue };
        if value.number().is_some_and(|x| !x.is_finite()) {
            return Err((format!("`{}.{key}` is no finite number", family.name), super::AGAIN));
        }
        config.insert((*field).into(), value.to_json());
    }
    config.extend(family.fixed.iter().map(|(field, on)| ((*field).into(), (*on).into())));
    for (id, field) in [("bos", "bos_token_id"), ("eos", "eos_token_id")] {
        if let Some(id) = metadata.get(&format!("tokenizer.ggml.{id}_token_id")) {
            config.insert(field.into(), id.to_json());
        }
    }
    let numbers = |key: &str| get(key).and_then(Value::unsigned);
    if let (Some(k), Some(v)) = (numbers("attention.key_length"), numbers("attention.value_length"))
        && k != v
    {
        return Err((format!("keys of {k} columns and values of {v} are of different sizes"), OTHER_MODEL));
    }
    scales(metadata, family, &mut config)?;
    if let Some(types) = get(WINDOWS).and_then(Value::list).and_then(layer_types) {
        config.insert("layer_types".into(), types);
    }
    if let (Some(rotated), Some(dim)) = (numbers("rope.dimension_count"), head_dim(&config))
        && rotated != dim as u64
    {
        config.insert("partial_rotary_factor".into(), (rotated as f64 / dim.max(1) as f64).into());
    }
    if let Some(scaling) = scaling(&get)? {
        config.insert("rope_scaling".into(), scaling);
    }
    // What nobody knows is judged as fields of config.json that are not read.
    let prefix = format!("{}.", family.name);
    for (key, value) in metadata {
        let Some(rest) = key.strip_prefix(&prefix) else { continue };
        if !OTHER_KEYS.contains(&rest) && fields().all(|(key, _)| *key != rest) {
            config.insert(key.clone(), value.to_json());
        }
    }
    Ok(config)
}

/// What scores and residuals are multiplied by, where files leave it to llama.cpp.
fn scales(metadata: &Metadata, family: &Family, config: &mut Map<String, serde_json::Value>) -> Result<(), Wrong> {
    let get = |key: &str| metadata.get(&format!("{}.{key}", family.name));
    let numbers = |key: &str| get(key).and_then(Value::unsigned);
    if let Some(layers) = family.unscaled {
        // As llama.cpp: the largest model is the only one whose scores are not scaled by heads.
        let width = || numbers("embedding_length")?.checked_div(numbers("attention.head_count")?);
        let heads = if numbers("block_count") == Some(layers) { width() } else { head_dim(config).map(|n| n as u64) };
        config.extend(heads.map(|n| ("query_pre_attn_scalar".to_string(), n.into())));
    }
    if family.name == "minicpm" {
        if let Some(key) = ["embedding_scale", "residual_scale", "logit_scale"].into_iter().find(|k| get(k).is_none()) {
            return Err((format!("`minicpm.{key}` is missing, as old versions of llama.cpp left it"), CONVERT_AGAIN));
        }
        config.extend(head_dim(config).map(|n| ("attention_multiplier".to_string(), (1.0 / (n as f64).sqrt()).into())));
    }
    Ok(())
}

/// What kind each layer is, by whether it has a window.
fn layer_types(windows: &[Value]) -> Option<serde_json::Value> {
    let kind = |v: &Value| Some(if v.flag()? { "sliding_attention" } else { "full_attention" });
    windows.iter().map(kind).collect::<Option<Vec<_>>>().map(|kinds| json!(kinds))
}

/// `rope_scaling` by the keys about it.
fn scaling<'a>(get: &impl Fn(&str) -> Option<&'a Value>) -> Result<Option<serde_json::Value>, Wrong> {
    let factor = get("rope.scaling.factor").or(get("rope.scale_linear")).and_then(Value::number);
    let kind = get("rope.scaling.type").and_then(Value::text);
    let original = get("rope.scaling.original_context_length").and_then(Value::unsigned);
    match (kind, factor) {
        (None | Some("none"), None) | (Some("none"), _) => Ok(None),
        (None | Some("linear"), Some(factor)) => Ok(Some(json!({ "rope_type": "linear", "factor": factor }))),
        (Some("yarn"), Some(factor)) => {
            Ok(Some(json!({ "rope_type": "yarn", "factor": factor, "original_max_position_embeddings": original })))
        }
        (Some(other), _) => Err((format!("`rope.scaling.type` is `{other}`, which is not read"), OTHER_MODEL)),
    }
}

/// The settings of Llama 3 that make these factors of frequencies.
fn llama3_scaling(info: &TensorInfo, bytes: &[u8]) -> Result<serde_json::Value, Wrong> {
    const ORIGINAL: f64 = 8192.0;
    const THETA: f64 = 500_000.0;
    let wrong = || (format!("tensor `{ROPE_FACTORS}` has factors that are not those of Llama 3"), OTHER_MODEL);
    if info.dtype.name != "F32" {
        return Err(wrong());
    }
    let stored: Vec<f64> = bytes.as_chunks::<4>().0.iter().map(|b| f32::from_le_bytes(*b).into()).collect();
    let factor = stored.iter().copied().fold(1.0, f64::max);
    let n = stored.len() as f64;
    let made = |i: usize| {
        let wavelength = std::f64::consts::TAU * THETA.powf(i as f64 / n);
        let smooth = ((ORIGINAL / wavelength - 1.0) / 3.0).clamp(0.0, 1.0);
        1.0 / ((1.0 - smooth) / factor + smooth)
    };
    if stored.iter().enumerate().any(|(i, x)| (x / made(i) - 1.0).abs() > 1e-4) {
        return Err(wrong());
    }
    Ok(json!({
        "rope_type": "llama3",
        "factor": factor,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": ORIGINAL as u64,
    }))
}

fn head_dim(config: &Map<String, serde_json::Value>) -> Option<usize> {
    let size = |name: &str| config.get(name)?.as_u64();
    let dim = size("head_dim").or_else(|| size("hidden_size")?.checked_div(size("num_attention_heads")?))?;
    usize::try_from(dim).ok()
}

/// How the rows of a tensor are read.
fn entry(family: &Family, name: &str, (shard, info): (usize, TensorInfo), head_dim: Option<usize>) -> Entry {
    let of_heads = ["attn_q.weight", "attn_k.weight", "attn_q.bias", "attn_k.bias"];
    let rotated = family.neighbours && name.starts_with("blk.") && of_heads.iter().any(|end| name.ends_with(end));
    let order = match head_dim.filter(|_| rotated) {
        Some(head_dim) => Order::Neighbours { head_dim },
        None => Order::Stored,
    };
    let gain = family.gains && name.ends_with("_norm.weight");
    let Some(ty) = blocks::of(info.dtype) else { return Entry::plain(shard, info) };
    if ty.read.is_none() && order == Order::Stored && !gain {
        return Entry::plain(shard, info);
    }
    let columns = if info.shape.len() > 1 { info.shape.last().copied().unwrap_or(1) } else { 1 };
    let layout = Blocks { shard, bytes: info.bytes.clone(), ty, columns, order, gain };
    Entry { layout: Some(Arc::new(layout)), ..Entry::plain(shard, info) }
}

/// The metadata of all parts of a file, whose names the first gives.
pub(in crate::checkpoint) fn parts(header: &Header, name: &str) -> Result<Vec<String>, Wrong> {
    let number = |key: &str| header.metadata.get(key).and_then(Value::unsigned);
    let count = number("split.count").unwrap_or(1);
    if count <= 1 {
        return Ok(vec![name.to_string()]);
    }
    let ending = format!("-00001-of-{count:05}.gguf");
    match name.strip_suffix(&ending) {
        Some(stem) if count < 1000 => Ok((1..=count).map(|i| format!("{stem}-{i:05}-of-{count:05}.gguf")).collect()),
        _ => Err((
            format!("it is one of {count} parts of a model and its name does not end in `{ending}`"),
            "name the first part, under the name that it had",
        )),
    }
}
