//! `config.json` of Mamba and Mamba-2 as their authors publish them (github.com/state-spaces/mamba):
//! no `model_type`, sizes of the mixers in `ssm_cfg`. The tensors are called as in Transformers, but
//! for the table.

use crate::config::ConfigError;
use crate::config::show;
use serde_json::{Map, Value, json};
use std::borrow::Cow;

const MIXERS: &str = "ssm_cfg";

/// Fields of the model and Transformers' fields with the same meaning.
const MODEL: &[(&str, &str)] =
    &[("d_model", "hidden_size"), ("n_layer", "num_hidden_layers"), ("tie_embeddings", "tie_word_embeddings")];

/// Fields in [`MIXERS`] of both, with Transformers' names and defaults.
const BOTH: &[(&str, &str, Otherwise)] = &[
    ("d_conv", "conv_kernel", Otherwise::Size(4)),
    ("expand", "expand", Otherwise::Size(2)),
    ("bias", "use_bias", Otherwise::Flag(false)),
    ("conv_bias", "use_conv_bias", Otherwise::Flag(true)),
];

/// Fields of Mamba only.
const FIRST: &[(&str, &str, Otherwise)] =
    &[("d_state", "state_size", Otherwise::Size(16)), ("dt_rank", "time_step_rank", Otherwise::Auto)];

/// Fields of Mamba-2 only.
const SECOND: &[(&str, &str, Otherwise)] = &[
    ("d_state", "state_size", Otherwise::Size(128)),
    ("headdim", "head_dim", Otherwise::Size(64)),
    ("ngroups", "n_groups", Otherwise::Size(1)),
];

/// Fields of a mixer that must have one value, if present, since Transformers' class has no other;
/// and fields about training, or details of computation.
const FIXED: &[(&str, Option<bool>)] = &[
    ("rmsnorm", Some(true)),
    ("norm_before_gate", Some(false)),
    ("D_has_hdim", Some(false)),
    ("chunk_size", None),
    ("use_fast_path", None),
    ("use_mem_eff_path", None),
    ("dt_min", None),
    ("dt_max", None),
    ("dt_init", None),
    ("dt_scale", None),
    ("dt_init_floor", None),
    ("A_init_range", None),
    ("conv_init", None),
];

/// The meaning of an absent field.
#[derive(Clone, Copy)]
enum Otherwise {
    Size(u64),
    Flag(bool),
    /// A part of the width.
    Auto,
}

/// The fields as Transformers has them, of such a file; of any other those that are there.
///
/// # Errors
/// When it describes a model that Transformers has no class for.
pub(crate) fn translated(config: &Map<String, Value>) -> Result<Cow<'_, Map<String, Value>>, ConfigError> {
    let named = ["model_type", "architectures"].iter().any(|name| config.contains_key(*name));
    let (Some(Value::Object(mixers)), false) = (config.get(MIXERS), named) else { return Ok(Cow::Borrowed(config)) };
    let second = match mixers.get("layer") {
        None => false,
        Some(v) if v == "Mamba1" => false,
        Some(v) if v == "Mamba2" => true,
        Some(v) => return Err(unsupported("layer", v, "\"Mamba1\" or \"Mamba2\"")),
    };
    let mut fields = config.clone();
    fields.remove(MIXERS);
    for (theirs, ours) in MODEL {
        if let Some(v) = fields.remove(*theirs) {
            fields.insert((*ours).into(), v);
        }
    }
    let (class, own) = if second { ("Mamba2ForCausalLM", SECOND) } else { ("MambaForCausalLM", FIRST) };
    fields.insert("architectures".into(), json!([class]));
    fields.entry("tie_word_embeddings").or_insert(true.into());
    let of_mixer = || BOTH.iter().chain(own);
    for (theirs, ours, absent) in of_mixer() {
        let v = mixers.get(*theirs).cloned().unwrap_or(match absent {
            Otherwise::Size(n) => (*n).into(),
            Otherwise::Flag(on) => (*on).into(),
            Otherwise::Auto => "auto".into(),
        });
        fields.insert((*ours).into(), v);
    }
    if second {
        if let Some(n) = mixers.get("ngroups").filter(|n| n.as_u64() != Some(1)) {
            return Err(unsupported("ngroups", n, "1: norms of several groups are in no class of Transformers"));
        }
        heads(&mut fields);
        if let Some(limits) = mixers.get("dt_limit") {
            fields.insert("time_step_limit".into(), limits.clone());
        }
    }
    for (name, v) in mixers {
        let known = of_mixer().any(|(theirs, ..)| theirs == name) || name == "layer" || second && name == "dt_limit";
        match FIXED.iter().find(|(fixed, _)| fixed == name) {
            Some((_, None)) => {}
            Some((_, Some(value))) if v == value => {}
            Some((_, Some(value))) => return Err(unsupported(name, v, &value.to_string())),
            None if known => {}
            None => return Err(unsupported(name, v, "nothing of this name")),
        }
    }
    pad(&mut fields);
    for (name, expected) in [("rms_norm", json!(true)), ("attn_layer_idx", json!([])), ("d_intermediate", json!(0))] {
        if let Some(v) = fields.remove(name).filter(|v| *v != expected) {
            let help = format!("supported are the authors' models with {expected}");
            return Err(ConfigError::Unsupported { field: name.into(), found: show(&v), help });
        }
    }
    fields.remove("attn_cfg");
    Ok(Cow::Owned(fields))
}

/// The number of heads; files give their width.
fn heads(fields: &mut Map<String, Value>) {
    let size = |name: &str| fields.get(name).and_then(Value::as_u64);
    if let (Some(hidden), Some(expand), Some(dim @ 1..)) = (size("hidden_size"), size("expand"), size("head_dim")) {
        fields.insert("num_heads".into(), (hidden.saturating_mul(expand) / dim).into());
    }
}

/// Rows of the table, which is filled up to a multiple.
fn pad(fields: &mut Map<String, Value>) {
    let multiple = fields.remove("pad_vocab_size_multiple").map_or(Some(8), |v| v.as_u64());
    if let (Some(vocab), Some(multiple @ 1..)) = (fields.get("vocab_size").and_then(Value::as_u64), multiple)
        && let Some(rows) = vocab.checked_next_multiple_of(multiple)
    {
        fields.insert("vocab_size".into(), rows.into());
    }
}

fn unsupported(name: &str, found: &Value, help: &str) -> ConfigError {
    let help = format!("supported are the authors' mixers with {help}");
    ConfigError::Unsupported { field: format!("{MIXERS}.{name}"), found: show(found), help }
}

#[cfg(test)]
mod tests {
    use crate::arch::Model;
    use crate::testing::config;
    use llmcc_ir::text::print_module;
    use serde_json::{Map, Value, json};

    fn original(mixers: Value) -> Value {
        json!({
            "d_model": 32, "n_layer": 2, "vocab_size": 61, "ssm_cfg": mixers, "rms_norm": true, "d_intermediate": 0,
            "residual_in_fp32": true, "fused_add_norm": true, "pad_vocab_size_multiple": 8, "tie_embeddings": true,
            "attn_layer_idx": [], "attn_cfg": {}
        })
    }

    /// The same graphs as of files of Transformers.
    #[test]
    fn as_in_transformers() {
        let same = |original: &Value, ours: Value| {
            let lifted = |json: &Value| print_module(&Model::parse(json).unwrap().imagined().unwrap().0);
            assert_eq!(lifted(original), lifted(&ours));
        };
        let sizes = json!({ "hidden_size": 32, "num_hidden_layers": 2, "vocab_size": 64, "tie_word_embeddings": true });
        let with = |more: Value| {
            let all: Map<String, Value> =
                [&sizes, &more].into_iter().flat_map(|m| m.as_object().unwrap().clone()).collect();
            Value::from(all)
        };
        same(&original(json!({})), with(json!({ "model_type": "mamba" })));
        let mixers =
            json!({ "layer": "Mamba1", "d_state": 8, "expand": 1, "dt_rank": 3, "conv_bias": false, "d_conv": 3 });
        let ours = json!({
            "model_type": "mamba", "state_size": 8, "expand": 1, "intermediate_size": 32, "time_step_rank": 3,
            "use_conv_bias": false, "conv_kernel": 3
        });
        same(&original(mixers), with(ours));
        let mixers =
            json!({ "layer": "Mamba2", "headdim": 16, "d_state": 8, "chunk_size": 64, "dt_limit": [0.01, 0.5] });
        let ours = json!({
            "model_type": "mamba2", "num_heads": 4, "head_dim": 16, "state_size": 8, "n_groups": 1,
            "time_step_limit": [0.01, 0.5]
        });
        same(&original(mixers), with(ours));
    }

    #[test]
    fn what_transformers_lacks() {
        let error = |change: &dyn Fn(&mut Value)| {
            let mut json = original(json!({ "layer": "Mamba2", "headdim": 16 }));
            change(&mut json);
            Model::parse(&json).unwrap_err().to_string()
        };
        let cases: [(&str, Value, &str); 6] = [
            ("/ssm_cfg/layer", json!("Mamba3"), "field `ssm_cfg.layer` is \"Mamba3\""),
            ("/ssm_cfg/ngroups", json!(2), "field `ssm_cfg.ngroups` is 2"),
            ("/ssm_cfg/rmsnorm", json!(false), "field `ssm_cfg.rmsnorm` is false"),
            ("/ssm_cfg/other", json!(1), "field `ssm_cfg.other` is 1"),
            ("/rms_norm", json!(false), "field `rms_norm` is false"),
            ("/attn_layer_idx", json!([1]), "field `attn_layer_idx` is [1]"),
        ];
        for (at, value, expected) in cases {
            let text = error(&|json| {
                let (of, name) = at.rsplit_once('/').unwrap();
                json.pointer_mut(of).unwrap()[name] = value.clone();
            });
            assert!(text.starts_with(expected), "{text}");
        }
        // With a type it is read as any other file.
        assert!(Model::parse(&config("mamba")).is_ok());
    }
}
