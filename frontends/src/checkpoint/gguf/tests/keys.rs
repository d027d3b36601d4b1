//! Keys of architectures: the ones that a family does not read, and the defaults of missing ones.

use super::super::{Metadata, Value, blocks, families, keys, model};
use crate::checkpoint::safetensors::TensorInfo;
use crate::testing::golden;
use std::collections::BTreeMap;

/// The configuration of a file of this architecture with a table of embeddings and these settings;
/// or the error.
fn config(arch: &str, settings: &[(&str, Value)]) -> Result<serde_json::Value, String> {
    let sizes = [
        ("context_length", 64),
        ("embedding_length", 64),
        ("block_count", 4),
        ("feed_forward_length", 96),
        ("attention.head_count", 2),
    ];
    let mut metadata = Metadata::from([("general.architecture".into(), Value::Text(arch.into()))]);
    metadata.extend(sizes.map(|(key, n)| (format!("{arch}.{key}"), Value::Unsigned(n))));
    for key in ["attention.layer_norm_epsilon", "attention.layer_norm_rms_epsilon"] {
        metadata.insert(format!("{arch}.{key}"), Value::Float(1e-5));
    }
    for (key, value) in settings {
        match value {
            Value::Text(text) if text == "absent" => drop(metadata.remove(&format!("{arch}.{key}"))),
            value => drop(metadata.insert(format!("{arch}.{key}"), value.clone())),
        }
    }
    let ty = blocks::named("F32").unwrap();
    let tensor = |shape: &[usize]| (0, TensorInfo { dtype: &ty.stored, shape: shape.to_vec(), bytes: 0..4096 });
    let mut tensors = BTreeMap::from([("token_embd.weight".to_string(), tensor(&[8, 64]))]);
    if arch == "bert" {
        tensors.insert("token_types.weight".into(), tensor(&[2, 64]));
    }
    model::describe(&metadata, tensors, &|_, _| vec![], crate::opening::declares)
        .map(|model| model.config)
        .map_err(|(what, _)| what)
}

/// Every key of llama.cpp is read, or has a known meaning; keys that llama.cpp reads for an
/// architecture too.
#[test]
fn every_key_is_known() {
    let table: BTreeMap<String, String> =
        serde_json::from_slice(&std::fs::read(golden("gguf/keys.json")).unwrap()).unwrap();
    let all = table["all"].split_whitespace();
    let unknown: Vec<&str> = all.filter(|key| !model::reads_always(key) && !keys::knows(key)).collect();
    assert_eq!(unknown, Vec::<&str>::new());
    for family in families::all() {
        let read = table.get(family.name).map(String::as_str).unwrap_or_default().split_whitespace();
        let lost: Vec<&str> =
            read.filter(|key| !model::reads(family, key) && key != &"attention.causal" && !keys::knows(key)).collect();
        assert_eq!(lost, Vec::<&str>::new(), "{} as {}", family.name, family.model_type.0);
    }
}

/// A key that changes a model's results is refused where nobody reads it, unless its value is
/// neutral.
#[test]
fn keys_that_change_the_mathematics() {
    let float = Value::Float;
    let number = Value::Unsigned;
    let list = |all: &[Value]| Value::List(all.to_vec());
    for (arch, key, bad, good) in [
        ("llama", "attention.causal", Value::Bool(false), Value::Bool(true)),
        ("bert", "attention.causal", Value::Bool(true), Value::Bool(false)),
        ("llama", "attention.clamp_kqv", float(8.0), float(0.0)),
        ("qwen2", "attn_logit_softcapping", float(50.0), float(0.0)),
        ("qwen3", "final_logit_softcapping", float(1.0), float(-1.0)),
        ("llama", "logit_scale", float(0.5), float(1.0)),
        ("llama", "residual_scale", float(0.5), float(0.0)),
        ("llama", "embedding_scale", float(12.0), float(1.0)),
        ("llama", "attention.scale", float(0.5), float(1.0 / 32f64.sqrt())),
        ("llama", "attention.sliding_window", number(16), number(64)),
        ("llama", "rope.scaling.yarn_log_multiplier", float(0.1), float(0.0)),
        ("llama", "rope.scaling.yarn_ext_factor", float(2.0), float(1.0)),
        ("llama", "rope.scaling.alpha", float(1000.0), float(1.0)),
        ("llama", "swin_norm", Value::Bool(true), Value::Bool(false)),
        ("llama", "swiglu_clamp_exp", list(&[float(0.0), float(7.0)]), list(&[float(0.0), float(0.0)])),
        ("llama", "embedding_length_out", number(32), number(64)),
        ("llama", "interleave_moe_layer_step", number(2), number(1)),
        ("gemma2", "rope.freq_base_swa", float(1e6), float(1e4)),
        ("llama", "attention.rope_pattern", list(&[Value::Bool(false)]), list(&[Value::Bool(true)])),
    ] {
        let with = |value: Value| {
            let window = ("attention.sliding_window", number(16));
            let all = [("rope.freq_base", float(1e4)), (key, value), window];
            config(arch, &all[..if key == "rope.freq_base_swa" { 3 } else { 2 }])
        };
        let said = with(bad).unwrap_err();
        assert!(said.starts_with(&format!("`{arch}.{key}` is ")), "{said}");
        assert!(said.contains("changes a model's results"), "{said}");
        let read = with(good).unwrap_or_else(|e| panic!("{arch}: {key}: {e}"));
        assert!(read.get(format!("{arch}.{key}")).is_none(), "{key}");
    }
    // A model with experts.
    let experts = [("expert_count", number(4)), ("expert_used_count", number(2))];
    let with = |key, value| config("llama", &[&experts[..], &[(key, value)]].concat());
    for (key, bad, good) in [
        ("expert_weights_scale", float(2.5), float(1.0)),
        ("expert_weights_norm", Value::Bool(false), Value::Bool(true)),
        ("expert_gating_func", number(2), number(0)),
        ("expert_group_count", number(8), number(0)),
        ("expert_shared_count", number(1), number(0)),
    ] {
        assert!(with(key, bad).unwrap_err().contains("expert"), "{key}");
        assert!(with(key, good).is_ok(), "{key}");
    }
    // Keys without an effect are ignored; unknown ones are reported.
    let config =
        config("llama", &[("vocab_size", number(8)), ("rope.dimension_sections", number(9)), ("zebra", number(1))]);
    let config = config.unwrap();
    assert_eq!(config.get("llama.rope.dimension_sections"), None);
    assert_eq!(config["llama.zebra"], 1);
}

/// Where a file has no key, llama.cpp's default counts, not the class's.
#[test]
fn what_files_do_not_say() {
    let absent = || Value::Text("absent".into());
    let none = [("attention.layer_norm_epsilon", absent()), ("attention.layer_norm_rms_epsilon", absent())];
    assert_eq!(config("llama", &none).unwrap_err(), "`llama.attention.layer_norm_rms_epsilon` is missing");
    assert_eq!(config("bert", &none).unwrap_err(), "`bert.attention.layer_norm_epsilon` is missing");
    let plain = config("qwen3", &[]).unwrap();
    assert_eq!((plain["rope_theta"].as_f64(), plain["num_key_value_heads"].as_u64()), (Some(1e4), Some(2)));
    let dots = config("dots1", &[("expert_count", Value::Unsigned(4)), ("expert_used_count", Value::Unsigned(2))]);
    let dots = dots.unwrap();
    assert_eq!((dots["norm_topk_prob"].as_bool(), dots["routed_scaling_factor"].as_f64()), (Some(false), Some(1.0)));
    // A period of windows says which layer has none.
    let kinds = |arch: &str, period: Value| {
        let window = ("attention.sliding_window", Value::Unsigned(16));
        let config = config(arch, &[window, ("attention.sliding_window_pattern", period)]).unwrap();
        let kinds = config["layer_types"].as_array().unwrap().clone();
        kinds.iter().map(|kind| kind.as_str().unwrap()[..1].to_string()).collect::<String>()
    };
    assert_eq!(kinds("exaone4", Value::Unsigned(2)), "sfsf");
    assert_eq!(kinds("exaone4", Value::Unsigned(0)), "ssss");
    assert_eq!(kinds("exaone4", Value::List([true, false, false, true].map(Value::Bool).to_vec())), "sffs");
}

/// The factor of rotated queries and keys counts with all kinds of scaling.
#[test]
fn magnitudes_of_positions() {
    let scaling = |settings: &[(&str, Value)]| {
        let settings = [settings, &[("rope.scaling.attn_factor", Value::Float(1.25))]].concat();
        config("llama", &settings).unwrap()["rope_scaling"].clone()
    };
    let kind = |kind: &str| ("rope.scaling.type", Value::Text(kind.into()));
    let factor = |x: f64| ("rope.scaling.factor", Value::Float(x));
    let original = ("rope.scaling.original_context_length", Value::Unsigned(16));
    for (settings, kind, factors) in [
        (vec![], "longrope", Some(1.0)),
        (vec![kind("linear")], "longrope", Some(1.0)),
        (vec![kind("linear"), factor(4.0)], "longrope", Some(4.0)),
        (vec![kind("yarn"), factor(4.0), original], "yarn", None),
    ] {
        let scaling = scaling(&settings);
        assert_eq!(scaling["rope_type"], kind);
        let first = scaling["long_factor"].as_array().map(|all| (all.len(), all[0].as_f64()));
        assert_eq!(first, factors.map(|x| (16, Some(x))));
        let wanted = if kind == "yarn" { 1.25 * (0.1 * 4f64.ln() + 1.0) } else { 1.25 };
        assert_eq!(scaling["attention_factor"].as_f64(), Some(wanted), "{kind}");
    }
    for bad in [Value::Float(0.0), Value::Float(-1.0)] {
        assert!(config("llama", &[("rope.scaling.attn_factor", bad)]).unwrap_err().contains("not a positive number"));
    }
    // Factors that say nothing.
    for settings in [vec![kind("linear")], vec![kind("yarn")], vec![kind("linear"), factor(0.0)], vec![kind("none")]] {
        assert_eq!(config("llama", &settings).unwrap().get("rope_scaling"), None);
    }
}

/// Dimensions of 1 after the others are none, and those that a file leaves out are there.
#[test]
fn dimensions_of_one() {
    let shape = |name: &str, shape: &[usize]| {
        let settings = ["context_length", "embedding_length", "block_count", "attention.head_count"];
        let mut metadata = Metadata::from([("general.architecture".into(), Value::Text("llama".into()))]);
        metadata.extend(settings.map(|key| (format!("llama.{key}"), Value::Unsigned(1))));
        metadata.insert("llama.attention.layer_norm_rms_epsilon".into(), Value::Float(1e-5));
        let ty = blocks::named("F32").unwrap();
        let info = TensorInfo { dtype: &ty.stored, shape: shape.to_vec(), bytes: 0..4096 };
        let model = model::describe(
            &metadata,
            BTreeMap::from([(name.into(), (0, info))]),
            &|_, _| vec![],
            crate::opening::declares,
        );
        let tensors = model.unwrap_or_else(|(what, _)| panic!("{what}")).tensors;
        tensors.into_values().next().map(|entry| entry.info.shape)
    };
    assert_eq!(shape("blk.0.attn_norm.weight", &[1, 64]), Some(vec![64]));
    assert_eq!(shape("blk.0.attn_q.bias", &[1, 1, 1, 64]), Some(vec![64]));
    assert_eq!(shape("blk.0.ffn_up.weight", &[1, 1, 32, 64]), Some(vec![32, 64]));
    assert_eq!(shape("blk.0.ffn_up.weight", &[1, 64]), Some(vec![1, 64]));
    assert_eq!(shape("blk.0.ffn_up_exps.weight", &[1, 32, 64]), Some(vec![1, 32, 64]));
    assert_eq!(shape("blk.0.attn_rot_embd.weight", &[64]), None);
    assert_eq!(shape("blk.0.attn_rot_embd", &[64]), None);
}
