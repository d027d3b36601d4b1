//! Checkpoints as Meta and Mistral write them: `params.json` beside `consolidated.00.pth`, or
//! several such files where a model was cut for several GPUs.
//!
//! Rows of queries and keys are in the order for rotating neighbours. See
//! <https://github.com/meta-llama/llama-models> and, for the ways to cut,
//! <https://github.com/facebookresearch/fairscale> (column and row parallel layers).

use super::quantized::Wrong;
use super::safetensors::TensorInfo;
use super::stored::{Entry, Order};
use super::views::{Join, Slices, View};
use crate::config::known::Neutral;
use crate::config::show;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The file with the sizes.
pub(super) const PARAMS: &str = "params.json";

const OTHER: &str = "take the model in Transformers' layout";

/// How a tensor is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cut {
    /// Every slice has all of it.
    Not,
    Along(Join),
    /// Rows of heads that are rotated as neighbours.
    Heads,
    /// Rows, or columns in older models.
    Table,
}

impl Cut {
    /// The order of the rows of a tensor.
    pub fn order(self, head_dim: usize) -> Order {
        match self {
            Cut::Heads => Order::Neighbours { head_dim },
            Cut::Not | Cut::Along(_) | Cut::Table => Order::Stored,
        }
    }
}

const ROWS: Cut = Cut::Along(Join::Rows);
const COLUMNS: Cut = Cut::Along(Join::Columns);

/// Names without their endings, here and in Transformers. `{}` is the number of the layer, `{e}` of
/// the expert.
const NAMES: &[(&str, &str, Cut)] = &[
    ("tok_embeddings", "model.embed_tokens", Cut::Table),
    ("norm", "model.norm", Cut::Not),
    ("output", "lm_head", ROWS),
    ("layers.{}.attention_norm", "model.layers.{}.input_layernorm", Cut::Not),
    ("layers.{}.attention.wq", "model.layers.{}.self_attn.q_proj", Cut::Heads),
    ("layers.{}.attention.wk", "model.layers.{}.self_attn.k_proj", Cut::Heads),
    ("layers.{}.attention.wv", "model.layers.{}.self_attn.v_proj", ROWS),
    ("layers.{}.attention.wo", "model.layers.{}.self_attn.o_proj", COLUMNS),
    ("layers.{}.ffn_norm", "model.layers.{}.post_attention_layernorm", Cut::Not),
    ("layers.{}.feed_forward.w1", "model.layers.{}.mlp.gate_proj", ROWS),
    ("layers.{}.feed_forward.w3", "model.layers.{}.mlp.up_proj", ROWS),
    ("layers.{}.feed_forward.w2", "model.layers.{}.mlp.down_proj", COLUMNS),
    ("layers.{}.feed_forward.gate", "model.layers.{}.block_sparse_moe.gate", Cut::Not),
    ("layers.{}.feed_forward.experts.{e}.w1", "model.layers.{}.block_sparse_moe.experts.{e}.w1", ROWS),
    ("layers.{}.feed_forward.experts.{e}.w3", "model.layers.{}.block_sparse_moe.experts.{e}.w3", ROWS),
    ("layers.{}.feed_forward.experts.{e}.w2", "model.layers.{}.block_sparse_moe.experts.{e}.w2", COLUMNS),
];

/// Members of `params.json`, and fields.
const KEYS: &[(&str, &str)] = &[
    ("dim", "hidden_size"),
    ("n_layers", "num_hidden_layers"),
    ("n_heads", "num_attention_heads"),
    ("n_kv_heads", "num_key_value_heads"),
    ("head_dim", "head_dim"),
    ("hidden_dim", "intermediate_size"),
    ("norm_eps", "rms_norm_eps"),
    ("rope_theta", "rope_theta"),
    ("sliding_window", "sliding_window"),
    ("max_seq_len", "max_position_embeddings"),
    ("tied_embeddings", "tie_word_embeddings"),
    ("bos_id", "bos_token_id"),
    ("eos_id", "eos_token_id"),
];

/// Members that a model cannot do without, so that `null` is none of their values.
const NEEDED: &[&str] = &["dim", "n_layers", "n_heads", "norm_eps"];

/// Members that are read in their own ways, follow from tensors, or are of training and of programs.
const OTHER_KEYS: &[&str] = &[
    "multiple_of",
    "ffn_dim_multiplier",
    "vocab_size",
    "use_scaled_rope",
    "rope_scaling_factor",
    "moe",
    "max_batch_size",
    "dropout",
];

/// A model of such files, as if it were in Transformers' layout.
pub(super) struct Described {
    pub config: Value,
    pub index: BTreeMap<String, Entry>,
    pub notes: Vec<String>,
}

/// Describes the model of the slices, and of tensors that are not cut.
pub(super) fn describe(
    params: &Value,
    slices: Vec<BTreeMap<String, View>>,
    whole: BTreeMap<String, Entry>,
) -> Result<Described, Wrong> {
    let mut config = config(params)?;
    let mut views: BTreeMap<String, Vec<View>> = BTreeMap::new();
    let count = slices.len();
    for (name, view) in slices.into_iter().flatten().filter(|(name, view)| !follows(name, view)) {
        views.entry(name).or_default().push(view);
    }
    let head_dim = head_dim(&config).ok_or_else(|| (format!("{PARAMS} lacks `dim` or `n_heads`"), OTHER))?;
    let hidden = config.get("hidden_size").and_then(Value::as_u64).and_then(|n| usize::try_from(n).ok());
    let mut index = whole;
    for (name, views) in views {
        if views.len() != count {
            let what = format!("tensor `{name}` is in {} of {count} files consolidated.*", views.len());
            return Err((what, "download all files of the model again"));
        }
        let (called, cut) = transformers(&name);
        let cut = match cut {
            Cut::Table if views[0].columns() == hidden.unwrap_or(0) => ROWS,
            Cut::Table => COLUMNS,
            cut => cut,
        };
        let entry = joined(&name, views, cut, head_dim)?;
        if index.insert(called.clone(), entry).is_some() {
            return Err((format!("two tensors have the name `{called}`"), OTHER));
        }
    }
    let shape = |name: &str| index.get(name).map(|e: &Entry| e.info.shape.clone());
    config.entry("tie_word_embeddings").or_insert_with(|| (!index.contains_key("lm_head.weight")).into());
    let gate = ["mlp.gate_proj", "block_sparse_moe.experts.0.w1"];
    let gate = gate.into_iter().find_map(|name| shape(&format!("model.layers.0.{name}.weight")));
    for (key, field, shape) in
        [("vocab_size", "vocab_size", shape("model.embed_tokens.weight")), ("hidden_dim", "intermediate_size", gate)]
    {
        let Some(rows) = shape.and_then(|s| s.first().copied()) else { continue };
        // Llama's first files have -1 for the vocabulary.
        let other = params[key].as_u64().filter(|said| *said != rows as u64);
        if let Some(said) = other {
            return Err((format!("`{key}` is {said} in {PARAMS}, and {rows} by the tensors"), OTHER));
        }
        config.insert(field.into(), rows.into());
    }
    let notes = guessed(params, &mut config)?;
    Ok(Described { config: config.into(), index, notes })
}

/// Tensors that follow from sizes: rotary tables, masks.
fn follows(name: &str, view: &View) -> bool {
    let mask = name.ends_with(".attention.mask") && matches!(view.info.shape[..], [1, 1, n, m] if n == m);
    mask || ["rope.freqs", "freqs_cos", "freqs_sin", "freqs_cis"].iter().any(|end| name.ends_with(end))
}

/// Transformers' name of a tensor, and how it is cut; its own name if it has none there.
pub(super) fn transformers(tensor: &str) -> (String, Cut) {
    let (stem, ending) = tensor.rsplit_once('.').unwrap_or((tensor, ""));
    let (mut pattern, mut numbers) = (vec![], vec![]);
    for part in stem.split('.') {
        match part.bytes().all(|b| b.is_ascii_digit()) && !part.is_empty() {
            true => {
                pattern.push(if numbers.is_empty() { "{}" } else { "{e}" });
                numbers.push(part);
            }
            false => pattern.push(part),
        }
    }
    let pattern = pattern.join(".");
    let Some((_, called, cut)) = NAMES.iter().find(|(name, ..)| *name == pattern) else {
        return (tensor.to_string(), Cut::Not);
    };
    let mut numbers = numbers.into_iter();
    let called = called.replace("{}", numbers.next().unwrap_or("")).replace("{e}", numbers.next().unwrap_or(""));
    (format!("{called}.{ending}"), *cut)
}

/// The tensor of the slices.
fn joined(name: &str, views: Vec<View>, cut: Cut, head_dim: usize) -> Result<Entry, Wrong> {
    let order = cut.order(head_dim);
    let join = match cut {
        Cut::Not => None,
        Cut::Along(join) => Some(join),
        Cut::Heads | Cut::Table => Some(Join::Rows),
    };
    let mut views = views;
    let Some(first) = views.first().cloned() else { return Err((format!("tensor `{name}` is missing"), OTHER)) };
    let Some(join) = join.filter(|_| views.len() > 1 || order != Order::Stored) else { return Ok(first.entry()) };
    // A vector has no columns to cut.
    if first.info.shape.len() != 2 || views.len() == 1 {
        views.truncate(1);
    }
    let across = |v: &View| if join == Join::Rows { v.columns() } else { v.rows() };
    if views.iter().any(|v| across(v) != across(&first) || v.info.dtype != first.info.dtype) {
        let shapes: Vec<_> = views.iter().map(|v| format!("{} {:?}", v.info.dtype.name, v.info.shape)).collect();
        let what = format!("the slices of tensor `{name}` do not fit together: {}", shapes.join(", "));
        return Err((what, "download all files of the model again"));
    }
    let mut shape = first.info.shape.clone();
    if let [rows, columns] = &mut shape[..] {
        match join {
            Join::Rows => *rows = views.iter().map(View::rows).sum(),
            Join::Columns => *columns = views.iter().map(View::columns).sum(),
        }
    }
    let info = TensorInfo { shape, ..first.info.clone() };
    let layout = Slices { views, join, order };
    Ok(Entry { layout: Some(Arc::new(layout)), ..Entry::plain(first.shard, info) })
}

fn config(params: &Value) -> Result<Map<String, Value>, Wrong> {
    let Some(members) = params.as_object() else { return Err((format!("{PARAMS} is not a JSON object"), OTHER)) };
    known(members)?;
    let get = |key: &str| members.get(key).filter(|v| !v.is_null());
    let (model_type, class) = match (get("moe"), get("sliding_window")) {
        (Some(_), _) => ("mixtral", "MixtralForCausalLM"),
        (None, Some(_)) => ("mistral", "MistralForCausalLM"),
        (None, None) => ("llama", "LlamaForCausalLM"),
    };
    let mut config = Map::new();
    config.insert("model_type".into(), model_type.into());
    config.insert("architectures".into(), json!([class]));
    for (key, field) in KEYS {
        if let Some(value) = get(key) {
            config.insert((*field).into(), value.clone());
        }
    }
    for (key, field) in [("num_experts", "num_local_experts"), ("num_experts_per_tok", "num_experts_per_tok")] {
        if let Some(n) = get("moe").and_then(|moe| moe.get(key)) {
            config.insert(field.into(), n.clone());
        }
    }
    if get("n_kv_heads").is_none() {
        config.extend(get("n_heads").map(|n| ("num_key_value_heads".to_string(), n.clone())));
    }
    // Their code takes these where nothing is said.
    for (field, number) in [("rms_norm_eps", 1e-5), ("rope_theta", 1e4)] {
        config.entry(field).or_insert_with(|| number.into());
    }
    Ok(config)
}

/// Refuses members that nobody reads, unless they are switched off, and `null` where something must stand.
fn known(members: &Map<String, Value>) -> Result<(), Wrong> {
    let off = |v: &Value| Neutral::Off.accepts(v, members);
    for (key, value) in members {
        let read = OTHER_KEYS.contains(&key.as_str()) || KEYS.iter().any(|(known, _)| known == key);
        if !read && !off(value) {
            let what = format!(
                "`{key}` is {} in {PARAMS}, which is not supported and may change the model's results",
                show(value)
            );
            return Err((what, OTHER));
        }
        if value.is_null() && NEEDED.contains(&key.as_str()) {
            return Err((format!("`{key}` is null in {PARAMS}"), "use the model's own file"));
        }
    }
    let of_experts = members.get("moe").and_then(Value::as_object).into_iter().flatten();
    for (key, value) in of_experts {
        if !["num_experts", "num_experts_per_tok"].contains(&key.as_str()) && !off(value) {
            let what = format!("`moe.{key}` is {} in {PARAMS}, which is not supported", show(value));
            return Err((what, OTHER));
        }
    }
    // Mistral's code takes another base than Meta's where nothing is said.
    let silent = |key: &str| members.get(key).is_none_or(Value::is_null);
    if !silent("hidden_dim") && silent("rope_theta") && silent("sliding_window") {
        let what = format!("{PARAMS} has neither `rope_theta` nor `sliding_window`");
        return Err((what, "programs for such files use different bases of rotary positions: add `rope_theta`"));
    }
    Ok(())
}

/// Values that [`PARAMS`] leaves to the reading program: the longest context and the factor of
/// rotary frequencies, as in Meta's releases.
fn guessed(params: &Value, config: &mut Map<String, Value>) -> Result<Vec<String>, Wrong> {
    let mut notes = vec![];
    let (theta, eps) = (params["rope_theta"].as_f64().unwrap_or(1e4), params["norm_eps"].as_f64().unwrap_or(1e-5));
    let scaled = match &params["use_scaled_rope"] {
        Value::Null | Value::Bool(false) => false,
        Value::Bool(true) => true,
        v if v == 0 => false,
        v if v == 1 => true,
        v => return Err((format!("`use_scaled_rope` is {} in {PARAMS}, not true or false", show(v)), OTHER)),
    };
    if scaled {
        // Llama 3.2's text models are narrower than all of 3.1.
        let small = params["dim"].as_u64().is_some_and(|dim| dim <= 3072);
        let given = &params["rope_scaling_factor"];
        if !given.is_null() && !given.as_f64().is_some_and(|x| x >= 1.0) {
            return Err((
                format!("`rope_scaling_factor` is {} in {PARAMS}; it must be a number of at least 1", show(given)),
                OTHER,
            ));
        }
        let factor = given.as_f64().unwrap_or(if small { 32.0 } else { 8.0 });
        if given.is_null() {
            let what = format!("{PARAMS} has `use_scaled_rope` without `rope_scaling_factor`: {factor} is assumed");
            notes.push(format!("{what}, as in Llama 3.{}", if small { 2 } else { 1 }));
        }
        let scaling = json!({
            "rope_type": "llama3", "factor": factor, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
            "original_max_position_embeddings": 8192,
        });
        config.insert("rope_scaling".into(), scaling);
    }
    if !config.contains_key("max_position_embeddings") {
        let context = match (scaled, theta) {
            (true, _) => 131_072,
            (false, 5e5) => 8192,
            (false, 1e6) => 16_384,
            (false, _) if eps < 5e-6 => 2048,
            (false, _) => 4096,
        };
        config.insert("max_position_embeddings".into(), context.into());
        notes.push(format!(
            "{PARAMS} does not give the longest context: {context} is assumed; set `max_seq_len` to change it"
        ));
    }
    Ok(notes)
}

fn head_dim(config: &Map<String, Value>) -> Option<usize> {
    let size = |name: &str| config.get(name)?.as_u64();
    let dim = size("head_dim").or_else(|| size("hidden_size")?.checked_div(size("num_attention_heads")?))?;
    usize::try_from(dim).ok().filter(|n| *n > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn described(changes: Value) -> Result<Value, String> {
        let mut params = json!({ "dim": 32, "n_layers": 2, "n_heads": 4, "norm_eps": 1e-5, "vocab_size": -1 });
        params.as_object_mut().unwrap().extend(changes.as_object().unwrap().clone());
        match describe(&params, vec![], BTreeMap::new()) {
            Ok(model) => Ok(model.config),
            Err((what, help)) => Err(format!("{what}; {help}")),
        }
    }

    /// Members that nobody reads may change the model's results.
    #[test]
    fn members_that_are_not_read_are_refused() {
        for (changes, expected) in [
            (json!({ "yarn": { "beta": 32, "alpha": 1, "factor": 16 } }), "`yarn` is {"),
            (json!({ "llama_4_scaling": { "beta": 0.1 } }), "`llama_4_scaling`"),
            (json!({ "use_qk_norm": true }), "`use_qk_norm` is true"),
            (json!({ "attention_chunk_size": 8192 }), "`attention_chunk_size` is 8192"),
            (json!({ "something": "else" }), "`something` is \"else\""),
            (
                json!({ "moe": { "num_experts": 8, "num_experts_per_tok": 2, "capacity": 1.5 } }),
                "`moe.capacity` is 1.5",
            ),
            (json!({ "norm_eps": null }), "`norm_eps` is null"),
            (json!({ "use_scaled_rope": "yes" }), "`use_scaled_rope` is \"yes\""),
            (json!({ "use_scaled_rope": true, "rope_scaling_factor": "8" }), "`rope_scaling_factor` is \"8\""),
            (json!({ "hidden_dim": 64 }), "neither `rope_theta` nor `sliding_window`"),
        ] {
            let said = described(changes).unwrap_err();
            assert!(said.contains(expected) && said.contains(PARAMS), "{said}");
        }
        // These are switched off.
        let off =
            json!({ "use_qk_norm": false, "yarn": null, "attention_chunk_size": 0, "moe": null, "quantization": {} });
        assert!(described(off).is_ok());
    }

    #[test]
    fn members_are_read_as_by_their_programs() {
        for on in [json!(true), json!(1)] {
            let config = described(json!({ "use_scaled_rope": on })).unwrap();
            assert_eq!(config["rope_scaling"]["rope_type"], "llama3", "{on}");
        }
        let config = described(json!({ "use_scaled_rope": 0 })).unwrap();
        assert_eq!((&config["rope_scaling"], &config["rope_theta"]), (&Value::Null, &json!(1e4)));
        assert_eq!(config["rms_norm_eps"], 1e-5);
    }
}
