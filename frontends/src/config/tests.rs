use super::*;
use crate::testing::{config, golden, shared, with};
use serde_json::json;

fn parse(json: &Value) -> String {
    Config::parse(json).map_or_else(|e| e.to_string(), |_| "ok".into())
}

#[test]
fn bad_configurations() {
    let size = |max: usize| format!("it must be a whole number from 1 to {max}");
    let supported = "is not supported; supported are llama, mistral, qwen2, qwen3";
    let cases = [
        (json!({ "model_type": "gemma2" }), format!("architecture `gemma2` {supported}")),
        (
            json!({ "architectures": ["LlamaForSequenceClassification"] }),
            format!("architecture `LlamaForSequenceClassification` of `llama` {supported}"),
        ),
        (
            json!({ "model_type": "absent", "architectures": ["MixtralForCausalLM"] }),
            format!("architecture `MixtralForCausalLM` {supported}"),
        ),
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
        (json!({ "head_dim": 5 }), "field `head_dim` is 5; it must be such that the rotated part (5) is even and not 0".into()),
        (
            json!({ "hidden_act": "quick_gelu" }),
            "field `hidden_act` is \"quick_gelu\", which is not supported; supported are silu, gelu, gelu_pytorch_tanh and relu".into(),
        ),
        (json!({ "rms_norm_eps": -1e-5 }), "field `rms_norm_eps` is -1e-5; it must be at least 0 and less than 1".into()),
        (json!({ "rms_norm_eps": 1e300 }), "field `rms_norm_eps` is 1e300; it must be at least 0 and less than 1".into()),
        (json!({ "rms_norm_eps": "NaN" }), "field `rms_norm_eps` is \"NaN\"; it must be a finite number".into()),
        (json!({ "rope_theta": 0 }), "field `rope_theta` is 0.0; it must be a finite number above 1".into()),
        (json!({ "rope_theta": 1e39 }), "field `rope_theta` is 1e39; it must be a finite number above 1".into()),
        (json!({ "partial_rotary_factor": 1.5 }), "field `partial_rotary_factor` is 1.5; it must be above 0 and at most 1".into()),
        (json!({ "tie_word_embeddings": 1 }), "field `tie_word_embeddings` is 1; it must be true or false".into()),
        (json!({ "eos_token_id": 32 }), "field `eos_token_id` is 32; it must be a token id below `vocab_size` (32)".into()),
        (json!({ "eos_token_id": [1, "x"] }), "field `eos_token_id` is \"x\"; it must be a token id below `vocab_size` (32)".into()),
        (
            json!({ "quantization_config": { "quant_method": "gptq", "bits": 4 } }),
            "field `quantization_config` is \"gptq\", which is not supported; use the unquantized checkpoint and compile with --w8 or --w4"
                .into(),
        ),
        (json!({ "rope_scaling": [] }), "field `rope_scaling` is []; it must be an object".into()),
        (
            json!({ "rope_scaling": { "type": "dynamic", "factor": 2.0 } }),
            "field `rope_scaling.rope_type` is \"dynamic\", which is not supported; supported are default, linear, llama3 and yarn".into(),
        ),
        (
            json!({ "rope_parameters": { "rope_type": "longrope" } }),
            "field `rope_parameters.rope_type` is \"longrope\", which is not supported; supported are default, linear, llama3 and yarn"
                .into(),
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
            json!({ "rope_scaling": { "rope_type": "llama3", "factor": 8, "low_freq_factor": 4, "high_freq_factor": 4 } }),
            "field `rope_scaling.high_freq_factor` is 4.0; it must be above `low_freq_factor` (4)".into(),
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
        (json!({}), "ok".into()),
    ];
    for (changes, expected) in cases {
        assert_eq!(parse(&with(config("llama"), changes.clone())), expected, "{changes}");
    }
    assert_eq!(parse(&json!([])), "config.json is not a JSON object; use the model's own file");
}

#[test]
fn absent_fields_mean_what_transformers_means() {
    let bare = |arch: &str| {
        let gone = ["num_key_value_heads", "head_dim", "rms_norm_eps", "rope_theta", "sliding_window", "max_position_embeddings"];
        let mut c = with(config(arch), json!({ "hidden_size": 64, "num_attention_heads": 32 }));
        gone.iter().for_each(|k| drop(c.as_object_mut().unwrap().remove(*k)));
        Config::parse(&c).unwrap()
    };
    let (llama, mistral, qwen2, qwen3) = (bare("llama"), bare("mistral"), bare("qwen2"), bare("qwen3"));
    let facts = |c: &Config| (c.kv_heads, c.head_dim, c.max_position, c.windows[0]);
    assert_eq!(facts(&llama), (32, 2, 2048, None));
    assert_eq!(facts(&mistral), (8, 2, 131_072, Some(4096)));
    assert_eq!(facts(&qwen2), (32, 2, 32_768, None));
    assert_eq!(facts(&qwen3), (32, 128, 32_768, None));
    assert_eq!((llama.eps, llama.rope.theta, llama.act, llama.tied), (1e-6, 10_000.0, UnaryOp::Silu, false));
}

#[test]
fn windows_of_the_layers() {
    let windows = |arch: &str, changes: Value| Config::parse(&with(config(arch), changes)).map(|c| c.windows).map_err(|e| e.to_string());
    let (s, f) = ("sliding_attention", "full_attention");
    assert_eq!(windows("llama", json!({ "sliding_window": 8 })), Ok(vec![None, None]));
    assert_eq!(windows("mistral", json!({ "sliding_window": 8 })), Ok(vec![Some(8), Some(8)]));
    assert_eq!(windows("mistral", json!({ "sliding_window": null })), Ok(vec![None, None]));
    let mixed = windows("mistral", json!({ "sliding_window": 8, "layer_types": [s, f] })).unwrap_err();
    assert_eq!(
        mixed,
        "field `layer_types` is a mixture of window and full attention, which is not supported; this architecture has the same attention in all layers"
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
    assert_eq!(off, "field `layer_types` is \"sliding_attention\"; it must be `full_attention` everywhere, as `use_sliding_window` is off");
}

#[test]
fn both_forms_of_rope_parameters() {
    let rope = |changes: Value| Config::parse(&with(config("llama"), changes)).unwrap().rope;
    let old = rope(json!({ "rope_theta": 5e5, "rope_scaling": { "type": "linear", "factor": 4 } }));
    let new = rope(json!({ "rope_theta": "absent", "rope_parameters": { "rope_type": "linear", "factor": 4, "rope_theta": 5e5 } }));
    assert_eq!(old, new);
    assert_eq!(old, RopeConfig { theta: 5e5, dim: 4, scaling: RopeScaling::Linear { factor: 4.0 } });
    assert_eq!(rope(json!({ "partial_rotary_factor": 0.5 })).dim, 2);
}

#[test]
fn token_ids() {
    let c = Config::parse(&with(config("llama"), json!({ "bos_token_id": 1, "eos_token_id": [2, 3] }))).unwrap();
    assert_eq!((c.bos, c.eos), (Some(1), vec![2, 3]));
    let c = Config::parse(&with(config("llama"), json!({ "bos_token_id": null, "eos_token_id": 2, "_name_or_path": "org/Model-1B/" })))
        .unwrap();
    assert_eq!((c.bos, c.eos, c.name.as_deref()), (None, vec![2], Some("Model-1B")));
}

#[test]
fn real_configurations() {
    let Some(dir) = shared("hf_configs") else { return };
    let supported = "is not supported; supported are llama, mistral, qwen2, qwen3";
    let expected = [
        ("Llama-3.2-1B-Instruct", "16 layers of 2048, 32/8 heads of 64, theta 500000, vocab 128256, tied".to_string()),
        ("Qwen2-1.5B-Instruct", "28 layers of 1536, 12/2 heads of 128, theta 1000000, vocab 151936, tied".into()),
        ("Qwen2.5-0.5B-Instruct", "24 layers of 896, 14/2 heads of 64, theta 1000000, vocab 151936, tied".into()),
        ("Qwen3-1.7B", "28 layers of 2048, 16/8 heads of 128, theta 1000000, vocab 151936, tied".into()),
        ("llama3-8B-instruct", "32 layers of 4096, 32/8 heads of 128, theta 500000, vocab 128256".into()),
        ("qwen2.5-14b-cogito", "48 layers of 5120, 40/8 heads of 128, theta 1000000, vocab 151665".into()),
        ("gemma2_2b_it", format!("architecture `gemma2` {supported}")),
        ("gemma3_1b_it", format!("architecture `gemma3` {supported}")),
        ("gpt-oss-20b", format!("architecture `gpt_oss` {supported}")),
        ("mixtral-8x22b-wizardlm2", format!("architecture `mixtral` {supported}")),
        ("phi3-mini", format!("architecture `phi3` {supported}")),
        ("phi3.5-mini-instruct", format!("architecture `phi3` {supported}")),
    ];
    for (name, expected) in expected {
        let json = serde_json::from_slice(&std::fs::read(dir.join(name).join("config.json")).unwrap()).unwrap();
        let found = match Config::parse(&json) {
            Ok(c) => format!(
                "{} layers of {}, {}/{} heads of {}, theta {}, vocab {}{}",
                c.layers,
                c.hidden,
                c.heads,
                c.kv_heads,
                c.head_dim,
                c.rope.theta,
                c.vocab,
                if c.tied { ", tied" } else { "" }
            ),
            Err(e) => e.to_string(),
        };
        assert_eq!(found, expected, "{name}");
    }
}

#[test]
fn goldens_parse() {
    for name in ["llama", "llama3", "llama_linear", "llama_yarn", "llama_bias", "mistral", "qwen2", "qwen3"] {
        let json = serde_json::from_slice(&std::fs::read(golden(name).join("config.json")).unwrap()).unwrap();
        assert_eq!(parse(&json), "ok", "{name}");
    }
}
