//! Published files' fields beside the fields of Transformers' classes, or with other names.

use crate::arch::Model;
use crate::arch::blocks::outputs::Top;
use crate::testing::{golden, shared, with};
use serde_json::{Value, json};

fn file(name: &str) -> Value {
    serde_json::from_slice(&std::fs::read(golden(name).join("config.json")).unwrap()).unwrap()
}

/// All that is read of a configuration, as text.
fn shape(config: &Value) -> String {
    format!("{:?}", Model::parse(config).unwrap().shape)
}

#[test]
fn leftovers_change_nothing() {
    for (name, leftovers) in [
        ("starcoder2", json!({ "activation_function": "gelu", "layer_norm_epsilon": 1e-5 })),
        ("gemma2", json!({ "sliding_window_size": 4096 })),
        ("cohere2", json!({ "position_embedding_type": "rope_gptj" })),
        ("modernbert", json!({ "position_embedding_type": "sans_pos" })),
        ("gemma3n", json!({ "query_pre_attn_scalar": 256 })),
        ("falcon", json!({ "multi_query": false })),
        ("hunyuan_v1_moe", json!({ "routed_scaling_factor": 1.0 })),
        ("qwen3_5", json!({ "output_gate_type": "swish" })),
    ] {
        let config = file(name);
        assert_eq!(shape(&with(config.clone(), leftovers)), shape(&config), "{name}");
    }
    // The class overwrites `head_dim`, which files of GLM-5.2 have with another meaning.
    let parts = with(file("glm_moe_dsa"), json!({ "qk_nope_head_dim": 12, "head_dim": "absent" }));
    for dim in [8, 12, 20] {
        assert_eq!(shape(&with(parts.clone(), json!({ "head_dim": dim }))), shape(&parts), "{dim}");
    }
    assert!(Model::parse(&with(parts, json!({ "head_dim": 16 }))).is_err());
}

/// The authors' files, whose class is derived from that of GPT-2.
#[test]
fn nomic_bert_in_its_authors_words() {
    let native = json!({
        "model_type": "nomic_bert", "architectures": ["NomicBertModel"], "vocab_size": 128, "hidden_size": 48,
        "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 80, "max_position_embeddings": 8192,
        "layer_norm_eps": 1e-6, "type_vocab_size": 2, "hidden_act": "silu",
        "rope_parameters": { "rope_type": "default", "rope_theta": 500.0 },
    });
    let theirs = json!({
        "model_type": "nomic_bert", "architectures": ["NomicBertModel"], "vocab_size": 128, "n_embd": 48, "n_layer": 2,
        "n_head": 4, "n_inner": 80, "n_positions": 8192, "layer_norm_epsilon": 1e-6, "type_vocab_size": 2,
        "activation_function": "swiglu", "rotary_emb_base": 500, "rotary_emb_fraction": 1.0, "causal": false,
        "rotary_emb_interleaved": false, "rotary_emb_scale_base": null, "rotary_scaling_factor": null,
        "max_trained_positions": 2048, "prenorm": false, "parallel_block": false, "qkv_proj_bias": false,
        "mlp_fc1_bias": false, "mlp_fc2_bias": false, "use_rms_norm": false, "pad_vocab_size_multiple": 64,
    });
    assert_eq!(shape(&theirs), shape(&native));
    let most = |changes: Value| Model::parse(&with(theirs.clone(), changes)).unwrap().facts().max_position;
    assert_eq!((most(json!({})), most(json!({ "rotary_scaling_factor": 2 }))), (8192, 2048));
    for (field, value) in [
        ("causal", json!(true)),
        ("use_rms_norm", json!(true)),
        ("qkv_proj_bias", json!(true)),
        ("rotary_emb_fraction", json!(0.5)),
        ("rotary_emb_interleaved", json!(true)),
        ("num_experts", json!(8)),
    ] {
        let error = Model::parse(&with(theirs.clone(), json!({ field: value }))).unwrap_err().to_string();
        assert!(error.contains(&format!("`{field}`")), "{error}");
    }
}

/// The authors' files, with a scaling of the base that is written out here.
#[test]
fn gte_in_its_authors_words() {
    let config = file("gte");
    let gone = json!({ "model_type": "new", "architectures": ["NewModel"], "rope_parameters": "absent" });
    let theirs = |scaling: Value| {
        with(with(config.clone(), gone.clone()), json!({ "rope_theta": 20000, "rope_scaling": scaling }))
    };
    let plain = json!({ "rope_parameters": { "rope_theta": 20000.0, "rope_type": "default" } });
    assert_eq!(shape(&theirs(json!(null))), shape(&with(config.clone(), plain)));
    let (factor, dim) = (8.0, 8.0);
    let divided =
        json!({ "rope_theta": 20000.0 * factor, "rope_type": "linear", "factor": libm::pow(factor, 2.0 / dim) });
    let scaled = theirs(json!({ "type": "ntk", "factor": factor }));
    assert_eq!(shape(&scaled), shape(&with(config.clone(), json!({ "rope_parameters": divided }))));
    let mixed = theirs(json!({ "type": "ntk", "factor": factor, "mixed_b": 0.6 }));
    assert!(Model::parse(&mixed).unwrap_err().to_string().contains("`rope_scaling.mixed_b` is 0.6"));
}

/// Attention in chunks is ordinary within the first one: the context ends there.
#[test]
fn chunks_of_a_million_tokens() {
    let of = |chunks: Value| {
        let more = json!({ "max_position_embeddings": 1_010_000, "dual_chunk_attention_config": chunks });
        Model::parse(&with(file("qwen2"), more)).map(|m| (m.facts().max_position, m.unread.len()))
    };
    let chunks = |original: usize| {
        let original = json!({ "original_max_position_embeddings": original });
        with(json!({ "chunk_size": 262_144, "local_size": 8192 }), original)
    };
    assert_eq!(of(json!(null)).unwrap(), (1_010_000, 0));
    assert_eq!(of(chunks(262_144)).unwrap(), (253_952, 1));
    assert_eq!(of(chunks(32_768)).unwrap(), (32_768, 1));
    let error = of(json!({ "chunk_size": 4, "local_size": 8 })).unwrap_err().to_string();
    assert!(error.contains("`dual_chunk_attention_config.local_size` is 8"), "{error}");
}

/// Stanford's models divide scores by the number of the layer, from 1.
#[test]
fn scales_of_gpt2() {
    let scales = |changes: Value| -> Vec<f32> {
        let d = super::config::decoder(&with(file("gpt2"), changes)).unwrap();
        d.layers.iter().map(|l| l.attention.scale).take(2).collect()
    };
    let root = (1.0 / 15f64.sqrt()) as f32;
    assert_eq!(scales(json!({})), [root, root]);
    assert_eq!(scales(json!({ "scale_attn_by_inverse_layer_idx": true })), [root, root / 2.0]);
    assert_eq!(scales(json!({ "scale_attn_weights": false })), [1.0, 1.0]);
}

#[test]
fn classes_of_other_names() {
    for (name, class, top) in [
        ("internlm3", "LlamaForCausalLM", Top::Own),
        ("iquestcoder", "LlamaModel", Top::Nothing),
        ("internlm3", "LlamaForSequenceClassification", Top::Classes),
        ("electra", "ElectraForPreTraining", Top::MaskedToken),
        ("bert", "BertForNextSentencePrediction", Top::MaskedToken),
        ("gte", "NewModel", Top::Own),
    ] {
        let config = with(file(name), json!({ "architectures": [class] }));
        assert_eq!(Model::parse(&config).unwrap().top, top, "{class}");
    }
    assert!(Model::parse(&with(file("qwen2"), json!({ "architectures": ["LlamaForCausalLM"] }))).is_err());
}

/// Rows of OPT 350M are as narrow as its table, for text and for all else.
#[test]
fn narrow_rows() {
    let config = file("opt_350m");
    assert_eq!(Model::parse(&config).unwrap().shape.columns() as u64, config["word_embed_proj_dim"].as_u64().unwrap());
}

/// Configurations of models that people use, as published: each makes a graph, but for architectures that are not
/// supported.
#[test]
fn published_configurations() {
    let Some(folder) = shared("data/real_configs") else { return };
    let mut folders: Vec<_> = std::fs::read_dir(folder).unwrap().map(|e| e.unwrap().path()).collect();
    folders.sort();
    let mut refused = vec![];
    for path in folders.iter().filter(|path| path.is_dir()) {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        let mut config: Value = serde_json::from_slice(&std::fs::read(path.join("config.json")).unwrap()).unwrap();
        // Its settings are applied before the architecture reads it.
        crate::config::parts::quantized(&mut config, |of| drop(of.remove("quantization_config")));
        match Model::parse(&config) {
            Ok(model) => drop(model.imagined().unwrap_or_else(|e| panic!("{name}: {e}"))),
            Err(e) if e.to_string().starts_with("architecture `") => refused.push(name),
            Err(e) => panic!("{name}: {e}"),
        }
    }
    let unknown = [
        "DeepSeek-V4-Flash-FP8",
        "DeepSeek-V4-Pro-FP8",
        "Llama-3_3-Nemotron-Super-49B-v1",
        "MiniMax-M1-80k",
        "MiniMax-M3",
        "Step-3.7-Flash",
        "Step-3.7-Flash-FP8",
    ];
    assert_eq!(refused, unknown);
}

/// Token ids that no text has are left aside, and reported.
#[test]
fn token_ids_beyond_the_vocabulary() {
    let m = Model::parse(&with(file("llama"), json!({ "bos_token_id": -1, "eos_token_id": [2, 1 << 20] }))).unwrap();
    assert_eq!((m.facts().bos, &m.facts().eos[..]), (None, &[2][..]));
    let said = [("bos_token_id", -1), ("eos_token_id", 1 << 20)]
        .map(|(field, id)| format!("`{field}` {id}, not a token below `vocab_size` ({})", m.facts().vocab));
    assert_eq!(m.unread, said);
}
