//! `config.json`, as the architectures read it.

use super::samples::{UPPER, field_samples};
use crate::arch::blocks::attention::Attention;
use crate::arch::blocks::decoder::Decoder;
use crate::arch::{ARCHS, Arch, Model, by_model_type, goldens};
use crate::config::ConfigError;
use crate::config::fields::{Field, Fields};
use crate::config::known::{MATHEMATICS, Neutral};
use crate::rope::{RopeConfig, RopeScaling};
use crate::testing::{config, config_of, golden, idle, shared, with};
use llmcc_ir::graph::UnaryOp;
use serde_json::{Map, Value, json};
use std::any::Any;
use std::cell::RefCell;
use std::collections::BTreeMap;

fn parse(json: &Value) -> String {
    Model::parse(json).map_or_else(|e| e.to_string(), |_| "ok".into())
}

/// The decoder that a configuration describes.
pub(super) fn decoder(json: &Value) -> Result<Decoder, ConfigError> {
    let shape: Box<dyn Any> = Model::parse(json)?.shape;
    Ok(shape.downcast_ref::<Decoder>().unwrap().clone())
}

fn attention(d: &Decoder) -> &Attention {
    &d.layers[0].attention
}

#[test]
fn bad_configurations() {
    let unread = |what: &str| {
        format!(
            "{what}, which changes a model's results, but LlamaForCausalLM does not read it: if the model was \
                trained with it, it has another architecture, which is not supported; if it is left over from \
                elsewhere, remove it from config.json"
        )
    };
    let size = |max: usize| format!("it must be a whole number from 1 to {max}");
    let unknown = |name: &str, nearest: &str| {
        let nearest =
            if nearest.is_empty() { String::new() } else { format!("; the nearest by its name is `{nearest}`") };
        let supported = ARCHS.iter().map(|a| a.model_type).collect::<Vec<_>>().join(", ");
        format!(
            "architecture {name} is not supported{nearest}; supported are {supported} (docs/adding-architecture.md says how to add one)"
        )
    };
    let cases = [
        (json!({ "model_type": "yoso" }), unknown("`yoso`", "")),
        (json!({ "model_type": "llama5_text" }), unknown("`llama5_text`", "llama")),
        (json!({ "model_type": "qwen3_audio" }), unknown("`qwen3_audio`", "qwen3")),
        (
            json!({ "architectures": ["LlamaForTokenClassification"] }),
            unknown("`LlamaForTokenClassification` of `llama`", "llama"),
        ),
        (json!({ "model_type": "absent", "architectures": ["MistralThinkForCausalLM"] }), unknown("`MistralThinkForCausalLM`", "mistral")),
        (
            json!({ "model_type": "absent", "architectures": "absent" }),
            "field `model_type` is missing; use the model's own config.json".into(),
        ),
        (json!({ "model_type": "absent" }), "ok".into()),
        (json!({ "model_type": 3 }), "field `model_type` is 3; it must be a string".into()),
        (json!({ "hidden_size": "absent" }), "field `hidden_size` is missing; use the model's own config.json".into()),
        (json!({ "hidden_size": 0 }), format!("field `hidden_size` is 0; {}", size(1 << 20))),
        (json!({ "hidden_size": -16 }), format!("field `hidden_size` is -16; {}", size(1 << 20))),
        (json!({ "hidden_size": 16.5 }), format!("field `hidden_size` is 16.5; {}", size(1 << 20))),
        (json!({ "hidden_size": 1u64 << 40 }), format!("field `hidden_size` is 1099511627776; {}", size(1 << 20))),
        (json!({ "num_hidden_layers": 100000 }), format!("field `num_hidden_layers` is 100000; {}", size(4096))),
        (json!({ "vocab_size": u64::MAX }), format!("field `vocab_size` is 18446744073709551615; {}", size(1 << 24))),
        (json!({ "intermediate_size": null }), "field `intermediate_size` is missing; use the model's own config.json".into()),
        (json!({ "num_key_value_heads": 3 }), "field `num_key_value_heads` is 3; it must be a divisor of `num_attention_heads` (4)".into()),
        (
            json!({ "num_attention_heads": 6, "head_dim": null }),
            "field `hidden_size` is 16; it must be a multiple of `num_attention_heads` (6)".into(),
        ),
        (json!({ "head_dim": 5 }), "field `head_dim` is 5; it must be even, as pairs of elements are rotated".into()),
        (
            json!({ "hidden_act": "quick_gelu" }),
            "field `hidden_act` is \"quick_gelu\", which is not supported; supported are silu, swish, gelu, gelu_python, gelu_new, gelu_pytorch_tanh, gelu_python_tanh, gelu_fast, gelu_accurate, relu and relu2"
                .into(),
        ),
        (json!({ "rms_norm_eps": -1e-5 }), "field `rms_norm_eps` is -1e-5; it must be at least 0 and less than 1".into()),
        (json!({ "rms_norm_eps": 1e300 }), "field `rms_norm_eps` is 1e300; it must be at least 0 and less than 1".into()),
        (json!({ "rms_norm_eps": "NaN" }), "field `rms_norm_eps` is \"NaN\"; it must be a finite number".into()),
        (json!({ "rope_theta": 0 }), "field `rope_theta` is 0.0; it must be a finite number above 1".into()),
        (json!({ "rope_theta": 1e39 }), "field `rope_theta` is 1e39; it must be a finite number above 1".into()),
        (json!({ "tie_word_embeddings": 1 }), "field `tie_word_embeddings` is 1; it must be true or false".into()),
        (json!({ "eos_token_id": [1, "x"] }), "field `eos_token_id` is \"x\"; it must be a token id".into()),
        (json!({ "eos_token_id": 1.5 }), "field `eos_token_id` is 1.5; it must be a token id, or a list of them".into()),
        (
            json!({ "quantization_config": { "quant_method": "gptq", "bits": 4 } }),
            "field `quantization_config` is \"gptq\", which is not supported; use the unquantized checkpoint and compile with --w8 or --w4"
                .into(),
        ),
        (json!({ "rope_scaling": [] }), "field `rope_scaling` is []; it must be an object".into()),
        (
            json!({ "rope_scaling": { "type": "ntk", "factor": 2.0 } }),
            "field `rope_scaling.rope_type` is \"ntk\", which is not supported; supported are default, linear, dynamic, llama3, yarn and longrope".into(),
        ),
        (
            json!({ "rope_parameters": { "rope_type": "proportional" } }),
            "field `rope_parameters.rope_type` is \"proportional\", which is not supported; supported are default, linear, dynamic, llama3, yarn and longrope"
                .into(),
        ),
        (
            json!({ "rope_scaling": { "type": "longrope", "short_factor": [1.0] } }),
            "field `rope_scaling.short_factor` is [1.0]; it must be 2 positive numbers, one for each pair of rotated elements".into(),
        ),
        (
            json!({ "rope_scaling": { "type": "longrope", "short_factor": [1, 1], "long_factor": [1.0, 0.0] } }),
            "field `rope_scaling.long_factor` is [1.0, 0.0]; it must be 2 positive numbers, one for each pair of rotated elements".into(),
        ),
        (
            json!({ "rope_parameters": { "full_attention": { "rope_type": "default" } } }),
            "field `rope_parameters.full_attention` is an object, which is not supported; one rotary embedding for all layers is supported"
                .into(),
        ),
        (json!({ "rope_scaling": { "type": "linear" } }), "field `rope_scaling.factor` is missing; use the model's own config.json".into()),
        (
            json!({ "rope_scaling": { "type": "linear", "factor": 0.5 } }),
            "field `rope_scaling.factor` is 0.5; it must be positive and at least 1".into(),
        ),
        (
            json!({ "rope_scaling": { "rope_type": "llama3", "factor": 8, "low_freq_factor": 4, "high_freq_factor": 2 } }),
            "field `rope_scaling.high_freq_factor` is 2.0; it must be at least `low_freq_factor` (4)".into(),
        ),
        (
            json!({ "rope_scaling": { "rope_type": "yarn", "factor": 4, "beta_fast": 1, "beta_slow": 2 } }),
            "field `rope_scaling.beta_fast` is 1.0; it must be at least `beta_slow` (2), both positive".into(),
        ),
        (
            json!({ "rope_scaling": { "rope_type": "yarn", "factor": 4, "attention_factor": -1 } }),
            "field `rope_scaling.attention_factor` is -1.0; it must be a positive number".into(),
        ),
        (
            json!({ "rope_scaling": { "rope_type": "yarn", "factor": 4, "original_max_position_embeddings": 0 } }),
            format!("field `rope_scaling.original_max_position_embeddings` is 0; {}", size(1 << 28)),
        ),
        (
            json!({ "rope_scaling": { "type": "linear", "rope_type": "yarn", "factor": 2 } }),
            "field `rope_scaling.type` is \"linear\"; it must be as `rope_type` (\"yarn\"), or absent".into(),
        ),
        (
            json!({ "rope_scaling": { "type": "linear", "factor": 2 }, "rope_parameters": { "rope_theta": 1e4 } }),
            "field `rope_scaling` is {\"factor\":2,\"type\":\"linear\"}, which is not supported; \
                `rope_parameters` has another value: remove the wrong one"
                .into(),
        ),
        (json!({ "rope_scaling": { "type": "linear", "factor": 2, "attn_factor": 0.5 } }), unread("`rope_scaling.attn_factor` is 0.5")),
        (json!({ "rope_parameters": { "partial_rotary_factor": 0.5 } }), unread("`rope_parameters.partial_rotary_factor` is 0.5")),
        (
            json!({ "rope_theta": 5e5, "rope_parameters": { "rope_theta": 1e6 } }),
            "field `rope_theta` is 500000.0; it must be as `rope_parameters.rope_theta` (1000000.0), or absent".into(),
        ),
        (json!({ "rope_theta": 1e6, "rope_parameters": { "rope_theta": 1e6, "factor": 8.0 } }), unread("`rope_parameters.factor` is 8.0")),
        // Transformers' class rotates whole heads, whatever this says; other engines follow it.
        (json!({ "partial_rotary_factor": 0.5 }), unread("`partial_rotary_factor` is 0.5")),
        (json!({ "sliding_window": 8 }), unread("`sliding_window` is 8")),
        (json!({ "norm_eps": 1e-6 }), unread("`norm_eps` is 1e-6")),
        (
            json!({ "num_experts": 8, "attn_logit_softcapping": 50.0 }),
            "`attn_logit_softcapping` is 50.0 and `num_experts` is 8, which changes a model's results, but \
                LlamaForCausalLM does not read them: if the model was trained with them, it has another \
                architecture, which is not supported; if they are left over from elsewhere, remove them from \
                config.json"
                .into(),
        ),
        (json!({}), "ok".into()),
    ];
    for (changes, expected) in cases {
        assert_eq!(parse(&with(config("llama"), changes.clone())), expected, "{changes}");
    }
    assert_eq!(
        parse(&json!([])),
        "it holds a list instead of an object with the fields of a model; use the model's own config.json"
    );
}

#[test]
fn absent_fields_mean_what_transformers_means() {
    let bare = |arch: &str| {
        let gone = [
            "num_key_value_heads",
            "head_dim",
            "rms_norm_eps",
            "rope_theta",
            "sliding_window",
            "max_position_embeddings",
            "hidden_act",
        ];
        let mut c = with(config(arch), json!({ "hidden_size": 64, "num_attention_heads": 32 }));
        gone.iter().for_each(|k| drop(c.as_object_mut().unwrap().remove(*k)));
        decoder(&c).unwrap()
    };
    let (llama, mistral, qwen2, qwen3) = (bare("llama"), bare("mistral"), bare("qwen2"), bare("qwen3"));
    let facts =
        |d: &Decoder| (attention(d).heads.kv, attention(d).heads.dim, d.facts.max_position, attention(d).window);
    assert_eq!(facts(&llama), (32, 2, 2048, None));
    assert_eq!(facts(&mistral), (8, 2, 131_072, Some(4096)));
    assert_eq!(facts(&qwen2), (32, 2, 32_768, None));
    assert_eq!(facts(&qwen3), (32, 128, 32_768, None));
    assert_eq!(
        (llama.norm.eps, llama.ropes[0].theta, llama.layers[0].mlp.act, llama.facts.tied),
        (1e-6, 10_000.0, UnaryOp::Silu, false)
    );
}

#[test]
fn windows_of_the_layers() {
    let windows = |arch: &str, changes: Value| {
        let read = decoder(&with(config(arch), changes)).map_err(|e| e.to_string());
        read.map(|d| d.layers.iter().map(|l| l.attention.window).collect::<Vec<_>>())
    };
    let (s, f) = ("sliding_attention", "full_attention");
    assert!(windows("llama", json!({ "sliding_window": 8 })).is_err());
    assert_eq!(
        windows("llama", json!({ "sliding_window": 8, "use_sliding_window": false, "max_window_layers": 1 })),
        Ok(vec![None, None])
    );
    assert_eq!(windows("llama", json!({ "sliding_window": 64, "layer_types": [f, f] })), Ok(vec![None, None]));
    assert!(windows("llama", json!({ "layer_types": [f, s] })).is_err());
    // Its class has a window in all layers, whatever these say.
    assert!(windows("mistral", json!({ "sliding_window": 8, "use_sliding_window": false })).is_err());
    assert!(windows("mistral", json!({ "sliding_window": 8, "max_window_layers": 1 })).is_err());
    assert_eq!(
        windows("mistral", json!({ "sliding_window": null, "use_sliding_window": false })),
        Ok(vec![None, None])
    );
    assert_eq!(windows("mistral", json!({ "sliding_window": 8 })), Ok(vec![Some(8), Some(8)]));
    assert_eq!(windows("mistral", json!({ "sliding_window": null })), Ok(vec![None, None]));
    let mixed = windows("mistral", json!({ "sliding_window": 8, "layer_types": [s, f] })).unwrap_err();
    assert_eq!(
        mixed,
        "field `layer_types` is a mixture of window and full attention, which is not supported; this architecture expects the same attention in all layers"
    );
    assert_eq!(windows("qwen2", json!({ "sliding_window": 8 })), Ok(vec![None, None]));
    let on = json!({ "use_sliding_window": true, "sliding_window": 8, "max_window_layers": 1 });
    assert_eq!(windows("qwen2", on.clone()), Ok(vec![None, Some(8)]));
    assert_eq!(windows("qwen3", with(on.clone(), json!({ "layer_types": [s, f] }))), Ok(vec![Some(8), None]));
    assert_eq!(windows("qwen3", with(on.clone(), json!({ "max_window_layers": "absent" }))), Ok(vec![None, None]));
    let few = windows("qwen3", with(on.clone(), json!({ "layer_types": [s] }))).unwrap_err();
    assert_eq!(few, "field `layer_types` is [\"sliding_attention\"]; it must be a list of 2 names");
    let strange = windows("qwen3", with(on, json!({ "layer_types": [f, "linear_attention"] }))).unwrap_err();
    assert_eq!(
        strange,
        "field `layer_types` is \"linear_attention\", which is not supported; supported are full_attention and sliding_attention"
    );
    let off = windows("qwen3", json!({ "layer_types": [s, f] })).unwrap_err();
    assert_eq!(
        off,
        "field `layer_types` is \"sliding_attention\"; it must be `full_attention` everywhere, as `use_sliding_window` is off"
    );
}

#[test]
fn both_forms_of_rope_parameters() {
    let rope = |changes: Value| decoder(&with(config("llama"), changes)).unwrap().ropes.remove(0);
    let old = rope(json!({ "rope_theta": 5e5, "rope_scaling": { "type": "linear", "factor": 4 } }));
    let new = rope(
        json!({ "rope_theta": "absent", "rope_parameters": { "rope_type": "linear", "factor": 4, "rope_theta": 5e5 } }),
    );
    assert_eq!(old, new);
    assert_eq!(old, RopeConfig { theta: 5e5, dim: 4, scaling: RopeScaling::Linear { factor: 4.0 } });
    assert_eq!(rope(json!({ "partial_rotary_factor": 1.0 })).dim, 4);
    // Beyond the longest sequence only.
    let dynamic = rope(json!({ "rope_scaling": { "type": "dynamic", "factor": 4 } }));
    assert_eq!(dynamic.scaling, RopeScaling::Default);
}

fn fields_of(arch: &Arch) -> impl Iterator<Item = &'static Field> {
    arch.fields.iter().copied().flatten()
}

/// Values that change nothing (in the configurations below: 16 wide, 4 heads of 4, 2 layers, ...), and some that do.
fn samples(rule: Neutral) -> (Vec<Value>, Vec<Value>) {
    let (neutral, other) = match rule {
        Neutral::Off => (json!([false, 0, "", [], {}]), json!([true, 2, 0.5, "x", [1], { "a": 1 }])),
        Neutral::On => (json!([true]), json!([false, { "a": 1 }])),
        Neutral::One => (json!([1, 1.0]), json!([0, 0.25, 2, "x"])),
        Neutral::Words(words) => (json!(words), json!(["another", 3, true])),
        Neutral::All(word) => {
            let v: Value = serde_json::from_str(word).unwrap_or(json!(word));
            (json!([[v, v], []]), json!([["x", v], [0], "x", 2]))
        }
        Neutral::AllOf(words) => (words.iter().map(|word| json!([word, word])).collect(), json!([words, [0], "x", 2])),
        Neutral::Same("n_routed_experts") => (json!([]), json!([3])),
        Neutral::Same("num_hidden_layers") => (json!([2]), json!([3])),
        Neutral::Same("vocab_size") => (json!([32]), json!([30])),
        Neutral::Same("hidden_size") => (json!([16, 16.0]), json!([32])),
        Neutral::Same("num_attention_heads") => (json!([4]), json!([8])),
        Neutral::Same("num_key_value_heads") => (json!([2]), json!([4])),
        Neutral::Same("max_position_embeddings") => (json!([64]), json!([32])),
        Neutral::Same("intermediate_size") => (json!([32]), json!([48])),
        Neutral::Same("rms_norm_eps") => (json!([1e-5]), json!([1e-6])),
        Neutral::Same("rope_theta") => (json!([10000]), json!([1e6])),
        Neutral::Same("hidden_act") => (json!([]), json!(["gelu"])),
        Neutral::Same("tie_word_embeddings") => (json!([false]), json!([true])),
        Neutral::Same("head_dim") => (json!([4]), json!([8])),
        Neutral::Same("partial_rotary_factor") => (json!([]), json!([0.75])),
        Neutral::Same("v_head_dim") => (json!([16]), json!([8])),
        Neutral::Same(other) => panic!("no samples for {other}"),
        Neutral::HeadDim => (json!([4, 0]), json!([2, 8, "x"])),
        Neutral::AttentionScale => (json!([0.5]), json!([0.25, 1, "x"])),
        Neutral::NoExperts => (json!([0, false, []]), json!([2, true, "x"])),
        Neutral::ExpertScale => (json!([0, 1, 1.0, false]), json!([2.5, true, "x"])),
        Neutral::NoWindow => (json!([64, 100]), json!([8])),
        // The configurations have no window, so that nothing here changes one: see
        // `windows_of_the_layers`.
        Neutral::WindowsOff | Neutral::WindowsOn => (json!([false, true]), json!([])),
        Neutral::Any => (json!([1, 0.5, true, "x"]), json!([])),
    };
    let list = |v: Value| v.as_array().unwrap().clone();
    (list(neutral), list(other))
}

/// For every architecture, every field that changes the mathematics of any is read, or refused by
/// name with each value that would change something.
#[test]
fn fields_that_change_the_mathematics() {
    let listed = MATHEMATICS.iter().flat_map(|(rule, names)| names.split_whitespace().map(|n| (n, *rule)));
    let of_others = ARCHS.iter().flat_map(|a| fields_of(a)).map(|f| (f.name, f.neutral));
    let mut rules: BTreeMap<&str, Neutral> = BTreeMap::new();
    // The first that says something counts.
    for (name, rule) in listed.chain(of_others) {
        rules.entry(name).or_insert(rule);
    }
    for arch in ARCHS {
        let base = config_of(arch);
        let parsed = |field: &str, v: &Value| Model::parse(&with(base.clone(), json!({ field: v })));
        for (name, rule) in rules.iter().map(|(name, rule)| (*name, *rule)) {
            // A rule that compares with a field of the file says nothing where there is no such field.
            let beside = match rule {
                Neutral::Same(other) => other,
                Neutral::HeadDim | Neutral::AttentionScale => "head_dim",
                Neutral::NoWindow => "max_position_embeddings",
                _ => "model_type",
            };
            // With latent attention the widths of heads follow from their parts, not from the
            // samples.
            let of_parts = ["head_dim", "num_key_value_heads"].contains(&beside);
            let absent = match beside {
                "rope_theta" => base.get(beside).is_none(),
                // A class whose heads follow from others has another number in the samples.
                "num_attention_heads" => base.get(beside) != Some(&json!(4)),
                // Neither has one that describes each layer.
                "num_hidden_layers" => base.get("block_configs").is_some(),
                _ => false,
            };
            if absent || of_parts && arch.field("qk_rope_head_dim").is_some() {
                continue;
            }
            if arch.field(name).is_none() && arch.field(beside).is_some() {
                let fixed = arch.fixed.iter().find(|(n, _)| *n == name);
                let rule = fixed.map_or(rule, |(_, rule)| *rule);
                let (neutral, other) = samples(rule);
                for v in neutral.iter().chain([&Value::Null]) {
                    let found = parsed(name, v).unwrap_or_else(|e| panic!("{arch:?}, {name} {v}: {e}"));
                    assert_eq!(found.unread, [] as [&str; 0], "{arch:?}, {name} {v}");
                }
                for v in &other {
                    match parsed(name, v) {
                        Err(ConfigError::Unread { fields, .. }) => {
                            assert_eq!(fields, [format!("`{name}` is {v}")], "{arch:?}")
                        }
                        other => panic!("{arch:?}, {name} {v}: {other:?}"),
                    }
                }
            }
        }
    }
}

/// The same for fields with rules of their own.
#[test]
fn fields_that_depend_on_others() {
    let refused = |arch: &str, changes: Value| match Model::parse(&with(config(arch), changes)) {
        Ok(c) => c.unread,
        Err(ConfigError::Unread { fields, .. }) => [vec!["refused".to_string()], fields].concat(),
        Err(e) => panic!("{e}"),
    };
    let fine: Vec<String> = vec![];
    assert_eq!(refused("qwen2", json!({ "attention_bias": true, "qkv_bias": true })), fine);
    assert_eq!(refused("qwen2", json!({ "attention_bias": false })), ["refused", "`attention_bias` is false"]);
    assert_eq!(refused("mistral", json!({ "attention_bias": true })), ["refused", "`attention_bias` is true"]);
    assert_eq!(refused("qwen3", json!({ "mlp_bias": true })), ["refused", "`mlp_bias` is true"]);
    assert_eq!(refused("qwen3", json!({ "use_qk_norm": true })), fine);
    assert_eq!(refused("qwen3", json!({ "use_qk_norm": false })), ["refused", "`use_qk_norm` is false"]);
    assert_eq!(
        refused("qwen3", json!({ "num_experts": 0, "num_experts_per_tok": 8, "moe_intermediate_size": 768 })),
        fine
    );
    assert_eq!(refused("qwen3", json!({ "num_experts_per_tok": 8 })), ["refused", "`num_experts_per_tok` is 8"]);
    assert_eq!(refused("llama", json!({ "use_sliding_window": true })), fine);
    let window = json!({ "use_sliding_window": true, "sliding_window": 8 });
    assert_eq!(refused("llama", window), ["refused", "`sliding_window` is 8", "`use_sliding_window` is true"]);
    assert_eq!(
        refused("llama", json!({ "mask_value": -10000, "transformers_version": "5", "novelty": null })),
        ["`mask_value` is -10000"]
    );
    assert_eq!(
        refused("llama", json!({ "rope_scaling": { "type": "yarn", "factor": 2, "finetuned": true, "x": 1 } })),
        ["`rope_scaling.x` is 1"]
    );
}

/// An architecture reads every field it declares: a value of a wrong type is an error, another good
/// one makes another configuration.
#[test]
fn declared_fields_are_read() {
    for arch in ARCHS {
        // Windows in upper layers, so that all about windows matters.
        let windowed = match arch.field("use_sliding_window") {
            Some(_) => json!({ "use_sliding_window": true, "sliding_window": 8, "max_window_layers": 1 }),
            None if arch.field("max_window_layers").is_some() => json!({ "sliding_window": 8, "max_window_layers": 1 }),
            None if arch.field("sliding_window").is_some() => json!({ "sliding_window": 8 }),
            None => json!({}),
        };
        let base = with(config_of(arch), windowed);
        let scaled = json!({ "rope_scaling": { "rope_type": "llama3", "factor": 8, "low_freq_factor": 1, "high_freq_factor": 4 } });
        let base = Some(with(base.clone(), scaled)).filter(|c| Model::parse(c).is_ok()).unwrap_or(base);
        let read = |changes: Value| Model::parse(&with(base.clone(), changes));
        let plain = format!("{:?}", read(json!({})).unwrap());
        // The second of two layers has a window by default.
        let upper = arch.field("max_window_layers").is_some() || UPPER.contains(&arch.model_type);
        for Field { name, accepts, .. } in fields_of(arch) {
            // Gives these two layers the kinds of the pattern.
            if *name == "layer_types" && arch.field("global_attn_every_n_layers").is_some() {
                continue;
            }
            if idle(arch, name) {
                continue;
            }
            // A description for each layer: `nemotron_nas.rs` tests it.
            if arch.field("block_configs").is_some() && ["num_hidden_layers", "block_configs"].contains(name) {
                continue;
            }
            // With latent attention, numbers that contradict the parts of heads are refused.
            let heads = ["head_dim", "num_key_value_heads", "num_attention_heads"];
            if heads.contains(name) && arch.field("qk_rope_head_dim").is_some() {
                continue;
            }
            let (wrong, good) = field_samples(arch, (*name, *accepts), &base, upper);
            if *name != "architectures" {
                let error = read(json!({ *name: wrong })).unwrap_err().to_string();
                assert!(error.contains(name), "{arch:?}: {error}");
            }
            // These two say which architecture it is; the other rope object is refused beside one.
            if ["model_type", "architectures", "quantization_config", "rope_parameters", "attn_config", "ffn_config"]
                .contains(name)
                || *name == "rope_scaling" && base.get("rope_parameters").is_some()
            {
                continue;
            }
            // In GLM's sample the second of two layers shares the first's indexer, in others each has one.
            let shares = arch.model_type == "glm_moe_dsa";
            let good = match *name {
                "index_topk_freq" => json!(1),
                "index_topk_pattern" => json!(if shares { "FF" } else { "FS" }),
                "indexer_types" => json!(["full", if shares { "full" } else { "shared" }]),
                _ => good,
            };
            // Without the field that counts in its place.
            let instead = if *name == "expand" { "intermediate_size" } else { *name };
            let changed = with(base.clone(), json!({ instead: "absent", *name: good }));
            match Model::parse(&changed) {
                Ok(found) => assert_ne!(format!("{found:?}"), plain, "{arch:?} declares {name}, but does not read it"),
                // Read, and refused for its value, as declared. Or refused beside another field
                // with the same meaning.
                Err(e) => {
                    let left = RefCell::default();
                    let declared = Fields::new(changed.as_object().unwrap(), "", arch.fields, &left).is_ok();
                    let said = e.to_string();
                    let about = ["`", "."].iter().any(|end| said.contains(&format!("`{name}{end}")));
                    let read = !said.contains("does not read") && (declared || said.contains(", or absent"));
                    assert!(about && read, "{arch:?}, {name}: {said}");
                }
            }
        }
    }
}

/// Numbers that no model has end in a message, whatever the field.
#[test]
fn absurd_numbers() {
    let numbers =
        json!([0, -1, 1.5, 1e300, -1e300, 18446744073709551615u64, i64::MIN, 5e-324, "NaN", "12", true, [], {}, [[]]]);
    for arch in ARCHS {
        let base = config_of(arch);
        for field in fields_of(arch) {
            for v in numbers.as_array().unwrap() {
                let json = with(base.clone(), json!({ field.name: v }));
                match Model::parse(&json) {
                    Err(e) => assert!(e.to_string().contains('`'), "{e}"),
                    // Constants as large as the file says are not built here.
                    Ok(m) if m.facts().layers <= 8 => drop(m.imagined()),
                    Ok(_) => {}
                }
            }
        }
    }
}

#[test]
fn token_ids() {
    let facts = |changes: Value| Model::parse(&with(config("llama"), changes)).unwrap().facts().clone();
    let c = facts(json!({ "bos_token_id": 1, "eos_token_id": [2, 3] }));
    assert_eq!((c.bos, c.eos), (Some(1), vec![2, 3]));
    let c = facts(json!({ "bos_token_id": null, "eos_token_id": 2, "_name_or_path": "org/Model-1B/" }));
    assert_eq!((c.bos, c.eos, c.name.as_deref()), (None, vec![2], Some("Model-1B")));
}

#[test]
fn real_configurations() {
    let Some(dir) = shared("hf_configs") else { return };
    let expected = [
        ("Llama-3.2-1B-Instruct", "16 layers of 2048, 32/8 heads of 64, theta 500000, vocab 128256, tied".to_string()),
        ("Qwen2-1.5B-Instruct", "28 layers of 1536, 12/2 heads of 128, theta 1000000, vocab 151936, tied".into()),
        ("Qwen2.5-0.5B-Instruct", "24 layers of 896, 14/2 heads of 64, theta 1000000, vocab 151936, tied".into()),
        ("Qwen3-1.7B", "28 layers of 2048, 16/8 heads of 128, theta 1000000, vocab 151936, tied".into()),
        ("llama3-8B-instruct", "32 layers of 4096, 32/8 heads of 128, theta 500000, vocab 128256".into()),
        ("qwen2.5-14b-cogito", "48 layers of 5120, 40/8 heads of 128, theta 1000000, vocab 151665".into()),
        ("gpt-oss-20b", "field `quantization_config` is \"mxfp4\", which is not supported".into()),
        ("mixtral-8x22b-wizardlm2", "56 layers of 6144, 48/8 heads of 128, theta 1000000, vocab".into()),
    ];
    for (name, expected) in expected {
        let json = serde_json::from_slice(&std::fs::read(dir.join(name).join("config.json")).unwrap()).unwrap();
        let found = match (Model::parse(&json), decoder(&json)) {
            // The vendor of these two added a field of its own.
            (Ok(c), _) if c.unread != [] as [&str; 0] && c.unread != ["`mask_value` is -10000"] => {
                format!("unread: {}", c.unread.join(", "))
            }
            (_, Ok(d)) => format!(
                "{} layers of {}, {}/{} heads of {}, theta {}, vocab {}{}",
                d.facts.layers,
                d.facts.hidden,
                attention(&d).heads.queries,
                attention(&d).heads.kv,
                attention(&d).heads.dim,
                d.ropes[0].theta,
                d.facts.vocab,
                if d.facts.tied { ", tied" } else { "" }
            ),
            (_, Err(e)) => e.to_string(),
        };
        assert!(found.starts_with(&expected), "{name}: {found}");
    }
    // Configurations of another compiler's presets: the supported architectures' parse, except one
    // with a field of that compiler's own.
    let presets: Map<String, Value> =
        serde_json::from_slice(&std::fs::read(dir.join("mlc_llm_presets.json")).unwrap()).unwrap();
    let ours = |c: &Value| c["model_type"].as_str().is_some_and(|t| by_model_type(t).is_some());
    let refused = presets
        .iter()
        .filter(|(_, c)| ours(c))
        .filter_map(|(name, c)| Some(format!("{name}: {}", Model::parse(c).err()?)));
    let refused: Vec<String> = refused.collect();
    let known = [
        "gpt_j: `rope_scaling` is {\"rope_type\":\"gptj\"}",
        "minicpm-moe-8x2b: `num_experts` is 8 and `num_experts_per_tok` is 2",
        "ministral3_3b_2512: architecture `Mistral3ForConditionalGeneration`",
        "mistral_7b: `attention_sink_size` is 4 and `sliding_window_size` is 4096",
    ];
    assert!(refused.len() == known.len() && refused.iter().zip(known).all(|(r, k)| r.starts_with(k)), "{refused:?}");
}

/// Both forms of two rotary tables mean the same.
#[test]
fn rotary_tables_of_two_kinds_of_layers() {
    let ropes = |changes: Value| decoder(&with(config("gemma3_text"), changes)).unwrap().ropes;
    let scaled = json!({ "rope_type": "linear", "factor": 8.0 });
    let old = ropes(json!({ "rope_theta": 1e6, "rope_local_base_freq": 1e4, "rope_scaling": scaled }));
    let new = json!({ "full_attention": with(scaled, json!({ "rope_theta": 1e6 })), "sliding_attention": { "rope_type": "default", "rope_theta": 1e4 } });
    let gone = json!({ "rope_theta": "absent", "rope_local_base_freq": "absent", "rope_parameters": new });
    assert_eq!(old, ropes(gone));
    assert_eq!(old[0], RopeConfig { theta: 1e6, dim: 4, scaling: RopeScaling::Linear { factor: 8.0 } });
    assert_eq!(old[1], RopeConfig { theta: 1e4, dim: 4, scaling: RopeScaling::Default });
    let wrong = json!({ "rope_parameters": { "full_attention": { "rope_type": "ntk" } } });
    let error = parse(&with(config("gemma3_text"), wrong));
    assert!(
        error.starts_with("field `rope_parameters.full_attention.rope_type` is \"ntk\", which is not supported"),
        "{error}"
    );
}

#[test]
fn goldens_parse() {
    for name in goldens() {
        let json = serde_json::from_slice(&std::fs::read(golden(name).join("config.json")).unwrap()).unwrap();
        assert!(Model::parse(&json).unwrap().unread.iter().all(|u| u.contains("_config` is")), "{name}");
    }
}
