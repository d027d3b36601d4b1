//! Text models that are parts of larger models, as published files have them.

use crate::arch::Model;
use crate::arch::reading::nested;
use crate::checkpoint::Checkpoint;
use crate::fixtures::{Tensor, random_tensors, write_checkpoint};
use crate::testing::{Folder, config, golden, with};
use crate::{Options, lift};
use serde_json::{Value, json};

/// LLaVA 1.5: fields equal to the defaults of the text model's class are left out, and so are
/// sizes.
fn llava(text: Value) -> Value {
    json!({
        "architectures": ["LlavaForConditionalGeneration"], "model_type": "llava", "image_token_index": 32000,
        "ignore_index": -100, "pad_token_id": 32001, "projector_hidden_act": "gelu", "vocab_size": 32064,
        "vision_feature_layer": -2, "vision_feature_select_strategy": "default", "torch_dtype": "float16",
        "text_config": text, "tie_word_embeddings": false,
        "vision_config": { "hidden_size": 1024, "model_type": "clip_vision_model", "num_hidden_layers": 24 },
    })
}

#[test]
fn sizes_that_files_leave_out() {
    let llama = json!({
        "_name_or_path": "lmsys/vicuna-7b-v1.5", "architectures": ["LlamaForCausalLM"], "model_type": "llama",
        "max_position_embeddings": 4096, "rms_norm_eps": 1e-5, "torch_dtype": "float16", "vocab_size": 32064,
    });
    let model = Model::parse(&llava(llama.clone())).unwrap();
    let facts = model.facts();
    assert_eq!((facts.vocab, facts.hidden, facts.layers, facts.max_position), (32_064, 4096, 32, 4096));
    let mistral = json!({
        "model_type": "mistral", "intermediate_size": 14336, "max_position_embeddings": 32768, "rms_norm_eps": 1e-5,
        "num_key_value_heads": 8, "rope_theta": 1e6, "sliding_window": null, "vocab_size": 32064,
    });
    let model = Model::parse(&with(llava(mistral), json!({ "model_type": "llava_next" }))).unwrap();
    assert_eq!((model.facts().hidden, model.facts().layers), (4096, 32));
    // A model by itself says how large it is.
    let alone = Model::parse(&llama).unwrap_err().to_string();
    assert!(alone.contains("`hidden_size`"), "{alone}");
}

/// Where larger models have the fields of their text model, and their names of its tensors.
#[test]
fn fields_and_names_of_parts() {
    let text = with(config("qwen2"), json!({ "tie_word_embeddings": false }));
    let whole = |text: Value| with(json!({ "architectures": ["AForConditionalGeneration"], "model_type": "a" }), text);
    type Renamed<'a> = &'a dyn Fn(&str) -> String;
    let kinds: [(Value, Renamed); 5] = [
        (json!({ "text_config": text }), &|n| format!("language_model.{n}")),
        (json!({ "text_config": text }), &|n| match n.strip_prefix("model.") {
            Some(rest) => format!("model.language_model.{rest}"),
            None => n.to_string(),
        }),
        (json!({ "text_config": text }), &|n| match n.strip_prefix("model.") {
            Some(rest) => format!("model.text_model.{rest}"),
            None => n.to_string(),
        }),
        (json!({ "llm_config": text }), &|n| format!("language_model.{n}")),
        (json!({ "language_config": text }), &|n| format!("language_model.{n}")),
    ];
    for (part, renamed) in kinds {
        let config = whole(part);
        let mut tensors = random_tensors(&text, 1);
        for t in &mut tensors {
            t.name = renamed(&t.name);
            assert!(nested::of_text(&t.name), "{}", t.name);
        }
        let folder = Folder::new();
        write_checkpoint(&folder.0, &config, &tensors).unwrap();
        let module = lift(&Checkpoint::open(&folder.0).unwrap(), &Options::default()).unwrap();
        assert!(module.weights.len() > 20, "{config}");
    }
    assert!(!nested::of_text("visual.blocks.0.attn.qkv.weight") && !nested::of_text("model.visual.merger.ln_q.weight"));
}

/// Their text model is known, but not the whole around it.
#[test]
fn wholes_that_compute_something_else_are_refused() {
    let config = with(llava(config("gemma")), json!({ "model_type": "paligemma" }));
    let error = Model::parse(&config).unwrap_err().to_string();
    assert!(error.contains("`paligemma`") && error.contains("tokens of a prompt also see later ones"), "{error}");
}

/// Qwen2.5-Omni: the text model of its thinker, beside the parts for hearing, seeing and speaking.
#[test]
fn text_models_of_thinkers() {
    let text = with(config("qwen2_5_omni_text"), json!({ "architectures": "absent", "tie_word_embeddings": "absent" }));
    let thinker = json!({
        "architectures": ["Qwen2OmniNaViTThinkerForConditionalGeneration"], "model_type": "qwen2_5_omni_thinker",
        "audio_config": { "d_model": 8 }, "text_config": text, "vision_config": { "depth": 1 }, "audio_token_index": 9,
    });
    let whole = json!({
        "architectures": ["Qwen2_5OmniModel"], "model_type": "qwen2_5_omni", "enable_audio_output": true,
        "eos_token_id": 5, "talker_config": { "hidden_size": 8 }, "thinker_config": thinker,
    });
    let mut tensors = random_tensors(&text, 1);
    for t in &mut tensors {
        t.name = format!("thinker.{}", t.name);
        assert!(nested::of_text(&t.name), "{}", t.name);
    }
    for other in ["thinker.audio_tower.proj.weight", "thinker.visual.merger.ln_q.weight", "talker.model.norm.weight"] {
        assert!(!nested::of_text(other), "{other}");
    }
    let folder = Folder::new();
    write_checkpoint(&folder.0, &whole, &tensors).unwrap();
    let ckpt = Checkpoint::open(&folder.0).unwrap();
    assert!(lift(&ckpt, &Options::default()).unwrap().weights.len() > 20);
    let model = Model::parse(&whole).unwrap();
    assert_eq!((model.arch.model_type, &model.facts().eos[..]), ("qwen2_5_omni_text", &[2][..]));
    let left = ["audio_config", "talker_config", "vision_config"];
    assert!(model.unread.len() == 3 && left.iter().all(|name| model.unread.iter().any(|u| u.contains(name))));
}

/// PaddleOCR-VL and HunyuanOCR: fields of the text model beside the other parts'.
#[test]
fn text_models_beside_others() {
    let paddle = json!({
        "architectures": ["PaddleOCRVLForConditionalGeneration"], "model_type": "paddleocr_vl",
        "attention_probs_dropout_prob": 0.0, "auto_map": { "AutoConfig": "configuration_paddleocr_vl.AConfig" },
        "head_dim": 128, "hidden_act": "silu", "hidden_dropout_prob": 0.0, "hidden_size": 1024,
        "image_token_id": 100295,
        "intermediate_size": 3072, "max_position_embeddings": 131072, "max_sequence_length": null,
        "num_attention_heads": 16, "num_hidden_layers": 18, "num_key_value_heads": 2, "pad_token_id": 0,
        "rms_norm_eps": 1e-5, "rope_is_neox_style": true, "rope_theta": 500000, "sliding_window": null,
        "rope_scaling": { "mrope_section": [16, 24, 24], "rope_type": "default", "type": "default" },
        "tie_word_embeddings": false, "use_bias": false, "use_cache": false, "video_token_id": 100296,
        "vision_config": { "hidden_size": 1152, "model_type": "paddleocr_vl" }, "vocab_size": 103424,
    });
    let hunyuan = json!({
        "architectures": ["HunYuanVLForConditionalGeneration"], "model_type": "hunyuan_vl", "attention_bias": false,
        "attention_dropout": 0.0, "attention_head_dim": 128, "bos_token_id": 120000, "eod_token_id": 120020,
        "eos_token_id": 120020, "head_dim": 128, "hidden_act": "silu", "hidden_size": 1024,
        "image_end_token_id": 120119, "image_token_id": 120120, "intermediate_size": 3584,
        "max_position_embeddings": 32768, "mlp_bias": false,
        "norm_type": "rms", "num_attention_heads": 16, "num_hidden_layers": 24, "num_key_value_heads": 8,
        "org_vocab_size": 120818, "pad_token_id": -1, "pretraining_tp": 1, "rms_norm_eps": 1e-5,
        "rope_scaling": {
            "alpha": 1000.0, "beta_fast": 32, "beta_slow": 1, "factor": 1.0, "mscale": 1.0, "mscale_all_dim": 1.0,
            "type": "xdrope", "xdrope_section": [16, 16, 16, 16],
        },
        "rope_theta": 10000.0, "routed_scaling_factor": false, "tie_word_embeddings": true, "use_cla": false,
        "use_qk_norm": true, "vision_config": { "hidden_size": 1152 }, "vocab_size": 120818,
    });
    for (whole, layers) in [(paddle, 18), (hunyuan, 24)] {
        let model = Model::parse(&whole).unwrap();
        assert_eq!((model.facts().layers, model.nested), (layers, true));
        assert!(model.unread.iter().any(|u| u.contains("vision_config")), "{:?}", model.unread);
    }
    // The base is made of it.
    let other = with(config("hunyuan_vl_text"), json!({ "rope_scaling": { "type": "xdrope" } }));
    assert!(Model::parse(&other).unwrap_err().to_string().contains("alpha"));
}

/// Kimi K3 as it is published: its text model has the type of another, says itself how it is quantized, and
/// the names of its tensors stand behind a prefix. Only matrices of experts are codes, though the settings
/// are for more.
#[test]
fn kimi_k3_quantized_inside() {
    let whole = || -> Value {
        let text = std::fs::read(golden("kimi_k3_mlx").join("config.json")).unwrap();
        serde_json::from_slice(&text).unwrap()
    };
    let sizes = json!({ "routed_expert_hidden_size": 32, "moe_intermediate_size": 32 });
    let settings = json!({ "quantization_config": {
        "quant_method": "compressed-tensors", "format": "mxfp4-pack-quantized",
        "config_groups": { "group_0": { "targets": ["Linear"], "weights": { "num_bits": 4, "group_size": 32 } } },
        "ignore": ["re:.*self_attn.*", "re:.*mlp\\.(gate|up|gate_up|down)_proj.*"],
    } });
    let plain = with(whole(), json!({ "text_config": with(whole()["text_config"].clone(), sizes.clone()) }));
    let coded = |of_whole: &Value| {
        let text = with(with(whole()["text_config"].clone(), sizes.clone()), settings.clone());
        with(with(whole(), json!({ "text_config": text })), of_whole.clone())
    };
    let mut tensors = vec![];
    for t in random_tensors(&plain, 1) {
        let name = format!("language_model.{}", t.name);
        let Some(stem) = name.strip_suffix(".weight").filter(|n| n.contains(".experts.")) else {
            tensors.push(Tensor { name, ..t });
            continue;
        };
        let (rows, columns) = (t.shape[0], t.shape[1]);
        let bytes = |ending: &str, columns: usize, of: u8| Tensor {
            name: format!("{stem}.{ending}"),
            dtype: "U8",
            shape: vec![rows, columns],
            data: vec![of; rows * columns],
        };
        tensors.extend([bytes("weight_packed", columns / 2, 0x53), bytes("weight_scale", columns / 32, 125)]);
    }
    // Newer versions of Transformers write the settings twice.
    for config in [coded(&json!({})), coded(&settings)] {
        let folder = Folder::new();
        write_checkpoint(&folder.0, &config, &tensors).unwrap();
        let ckpt = Checkpoint::open(&folder.0).unwrap();
        let module = lift(&ckpt, &Options::default()).unwrap();
        let of_experts = module.weights.iter().filter(|w| w.name.contains(".experts."));
        assert_eq!(of_experts.clone().count(), 4 * 12 * 3);
        assert!(of_experts.clone().all(|w| ckpt.info(&w.name).is_some_and(|i| i.dtype.is_coded())));
        assert_eq!(crate::unused::find(&ckpt, &module).unwrap(), None);
    }
    let other = with(config("kimi_k3_text"), json!({ "hidden_act": "silu" }));
    let error = Model::parse(&other).unwrap_err().to_string();
    assert!(error.contains("`hidden_act` is \"silu\""), "{error}");
}

/// Kimi K3's fields of delta attention.
#[test]
fn kimi_k3_says_which_layers() {
    let read = |changes: Value| {
        let of = with(config("kimi_k3_text")["linear_attn_config"].clone(), changes);
        Model::parse(&with(config("kimi_k3_text"), json!({ "linear_attn_config": of }))).map_err(|e| e.to_string())
    };
    assert!(read(json!({ "full_attn_layers": "absent" })).is_ok());
    for (changes, wanted) in [
        (json!({ "full_attn_layers": [1, 3, 5] }), "of layer 1 both say the same"),
        (json!({ "full_attn_layers": [], "kda_layers": [1] }), "of layer 2 both say the same"),
        (json!({ "kda_layers": "absent" }), "`kda_layers` and `short_conv_kernel_size`"),
        (json!({ "short_conv_kernel_size": 1 }), "`short_conv_kernel_size` (at least 2)"),
        (json!({ "use_conv_bias": true }), "use_conv_bias"),
    ] {
        let found = read(changes).map_or_else(|e| e, |m| m.unread.join(" "));
        assert!(found.contains(wanted), "{found}");
    }
}

/// Parts that do not say the same of head and table: the file does.
#[test]
fn heads_of_parts_by_the_file() {
    let text = with(config("qwen2"), json!({ "tie_word_embeddings": "absent" }));
    let own = |tied: Option<bool>| tied.map_or(json!({}), |tied| json!({ "tie_word_embeddings": tied }));
    let lifted = |outer: Option<bool>, inner: Option<bool>, head: bool| {
        let whole = json!({ "architectures": ["AForConditionalGeneration"], "model_type": "a" });
        let whole = with(with(whole, own(outer)), json!({ "text_config": with(text.clone(), own(inner)) }));
        let mut tensors = random_tensors(&text, 1);
        tensors.retain(|t| head || !t.name.starts_with("lm_head"));
        let folder = Folder::new();
        write_checkpoint(&folder.0, &whole, &tensors).unwrap();
        let ckpt = Checkpoint::open(&folder.0).unwrap();
        let module = lift(&ckpt, &Options::default()).map_err(|e| e.to_string())?;
        let unused = crate::unused::find(&ckpt, &module).unwrap().map_or(String::new(), |u| u.reasons.join(" "));
        Ok::<_, String>((module.weights.iter().any(|w| w.name == "lm_head.weight"), unused))
    };
    let (yes, no) = (Some(true), Some(false));
    let fine = |head| Ok((head, String::new()));
    for (outer, inner) in [(yes, no), (no, yes), (None, yes), (yes, None)] {
        assert_eq!(lifted(outer, inner, false), fine(false), "{outer:?} {inner:?}");
        assert_eq!(lifted(outer, inner, true), fine(true), "{outer:?} {inner:?}");
    }
    for (outer, inner) in [(no, no), (None, no), (no, None), (None, None)] {
        let error = lifted(outer, inner, false).unwrap_err();
        assert!(error.contains("set `tie_word_embeddings` to true"), "{error}");
        assert_eq!(lifted(outer, inner, true), fine(true), "{outer:?} {inner:?}");
    }
    // Who says it everywhere is asked.
    assert_eq!(lifted(yes, yes, false), fine(false));
    let (head, why) = lifted(yes, yes, true).unwrap();
    assert!(!head && why.contains("set `tie_word_embeddings` to false"), "{why}");
}
