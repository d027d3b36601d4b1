//! Text models that are parts of larger ones, under all the names that files have for their tensors.

use super::renamed::{Renamings, means_the_same, renamed};
use crate::arch::Model;
use crate::checkpoint::Checkpoint;
use crate::fixtures::{Tensor, write_checkpoint};
use crate::testing::{Folder, config, golden, with};
use crate::{Options, lift};
use serde_json::{Value, json};

fn file(name: &str) -> Value {
    Checkpoint::open(&golden(name)).unwrap().config().clone()
}

/// Llama 3.2 Vision as its authors published it, and as Transformers has it in memory.
#[test]
fn llama_vision_by_either_names() {
    const IN_MEMORY: Renamings =
        &[("language_model.lm_head", "lm_head"), ("language_model.model.", "model.language_model.")];
    means_the_same("mllama", &file("mllama"), &renamed("mllama", IN_MEMORY, &[]));
}

/// Emu3 by itself, in the whole as Transformers saves it, and as it did before 4.52.
#[test]
fn emu3_by_any_names() {
    const NOW: Renamings = &[("model.", "model.text_model.")];
    const BEFORE: Renamings = &[("model.", "text_model.MODEL."), ("lm_head", "text_model.lm_head"), ("MODEL", "model")];
    let whole =
        json!({ "model_type": "emu3", "architectures": ["Emu3ForConditionalGeneration"], "text_config": file("emu3") });
    for names in [NOW, BEFORE] {
        means_the_same("emu3", &whole, &renamed("emu3", names, &["model.vqmodel.quantize.embedding.weight"]));
    }
}

/// A model around one of several parts (ShieldGemma 2), and names that Transformers 5 makes of layers when it
/// saves Qianfan-OCR and Kimi K2.5.
#[test]
fn names_between() {
    const AROUND: Renamings = &[("model.", "model.language_model.model.")];
    const ENCODER: Renamings = &[
        ("model.layers.", "language_model.MODEL.encoder.layers."),
        ("model.embed", "language_model.MODEL.embed"),
        ("model.norm", "language_model.MODEL.norm"),
        ("lm_head", "language_model.lm_head"),
        ("MODEL", "model"),
    ];
    const BLOCKS: Renamings = &[
        ("model.layers.", "language_model.MODEL.blocks."),
        ("model.embed", "language_model.MODEL.embed"),
        ("model.norm", "language_model.MODEL.norm"),
        ("lm_head", "language_model.lm_head"),
        ("MODEL", "model"),
    ];
    let whole =
        json!({ "model_type": "a", "architectures": ["AForConditionalGeneration"], "text_config": file("qwen3") });
    for names in [AROUND, ENCODER, BLOCKS] {
        means_the_same("qwen3", &whole, &renamed("qwen3", names, &["mlp1.0.weight"]));
    }
}

/// Phi-4-multimodal as Microsoft published it: with adapters beside the matrices.
#[test]
fn phi4_with_adapters_for_images_and_sound() {
    const PUBLISHED: Renamings = &[
        ("qkv_proj.", "qkv_proj.base_layer."),
        ("o_proj.", "o_proj.base_layer."),
        ("gate_up_proj.", "gate_up_proj.base_layer."),
        ("down_proj.", "down_proj.base_layer."),
    ];
    let adapters = ["A.speech", "B.speech", "A.vision", "B.vision"]
        .map(|of| format!("model.layers.1.self_attn.o_proj.lora_{of}.weight"));
    let more: Vec<&str> = adapters.iter().map(String::as_str).collect();
    let own = json!({
        "model_type": "phi4mm", "architectures": ["Phi4MMForCausalLM"], "vision_config": "absent",
        "audio_config": "absent", "audio_processor": { "name": "cascades" },
        "embd_layer": { "embedding_cls": "image_audio" }, "img_processor": null,
        "speech_lora": { "r": 320 }, "vision_lora": { "r": 256 }, "attention_bias": false, "mlp_bias": false,
        "lm_head_bias": false, "interpolate_factor": 1, "full_attn_mod": 1,
    });
    let config = with(file("phi4_multimodal"), own);
    means_the_same("phi4_multimodal", &config, &renamed("phi4_multimodal", PUBLISHED, &more));
}

/// DeepSeek-OCR says that it is a DeepSeek-V2 without latent attention, and 0 for all that this has.
#[test]
fn deepseek_ocr_in_its_authors_words() {
    let text = with(
        file("deepseek_ocr2")["text_config"].clone(),
        json!({
            "model_type": "deepseek_v2", "architectures": ["DeepseekOCRForCausalLM"], "use_mla": false,
            "q_lora_rank": null, "kv_lora_rank": null, "qk_nope_head_dim": 0, "qk_rope_head_dim": 0, "v_head_dim": 0,
            "mlp_layer_types": "absent", "first_k_dense_replace": 1, "rm_head": false, "lm_head": true,
        }),
    );
    let whole = json!({
        "model_type": "deepseek_vl_v2", "architectures": ["DeepseekOCRForCausalLM"], "language_config": text,
        "vision_config": { "model_type": "vision" }, "projector_config": { "n_embed": 32 }, "vocab_size": 61,
    });
    means_the_same("deepseek_ocr2", &whole, &renamed("deepseek_ocr2", &[], &[]));
}

/// Molmo 2 as Ai2 published it: the second table has the rows after the vocabulary's. Transformers saves half of
/// all rows in each.
#[test]
fn molmo_2_with_tables_cut_anywhere() {
    let mut tensors = renamed("molmo2", &[], &[]);
    let at = |tensors: &[Tensor], end: &str| tensors.iter().position(|t| t.name.ends_with(end)).unwrap();
    let (first, second) = (at(&tensors, ".wte.embedding"), at(&tensors, ".wte.new_embedding"));
    let (width, all) = (32, [tensors[first].data.clone(), tensors[second].data.clone()].concat());
    let cut = 61 * width * 2;
    (tensors[first].shape, tensors[first].data) = (vec![61, width], all[..cut].to_vec());
    (tensors[second].shape, tensors[second].data) = (vec![4, width], all[cut..].to_vec());
    means_the_same("molmo2", &file("molmo2"), &tensors);
}

/// Cosmos 3, in whose published files a model for images and sound is in the same layers, and as Transformers has
/// it in memory.
#[test]
fn cosmos_3_by_either_names() {
    const PUBLISHED: Renamings = &[
        ("model.language_model.", ""),
        ("q_proj.", "to_q."),
        ("k_proj.", "to_k."),
        ("v_proj.", "to_v."),
        ("o_proj.", "to_out."),
        ("q_norm.", "norm_q."),
        ("k_norm.", "norm_k."),
    ];
    const OTHERS: &[&str] = &[
        "layers.0.mlp_moe_gen.up_proj.weight",
        "layers.1.input_layernorm_moe_gen.weight",
        "layers.1.self_attn.add_q_proj.weight",
        "layers.1.self_attn.to_add_out.weight",
        "layers.1.self_attn.k_norm_und_for_gen.weight",
        "norm_moe_gen.weight",
        "time_embedder.linear_1.weight",
    ];
    let whole = with(
        file("qwen3_vl"),
        json!({ "model_type": "cosmos3_omni", "architectures": ["Cosmos3OmniForConditionalGeneration"] }),
    );
    means_the_same("qwen3_vl", &whole, &renamed("qwen3_vl", PUBLISHED, OTHERS));
    const IN_MEMORY: Renamings = &[
        ("model.visual", "VISUAL"),
        ("embed_tokens.", "model.language_model.embed_tokens."),
        ("layers.", "model.language_model.layers."),
        ("layernorm.", "LAYERNORM."),
        ("norm.", "model.language_model.norm."),
        ("LAYERNORM", "layernorm"),
        ("to_q.", "q_proj."),
        ("to_k.", "k_proj."),
        ("to_v.", "v_proj."),
        ("to_out.", "o_proj."),
        ("up_proj.", "fc1."),
        ("down_proj.", "fc2."),
        ("VISUAL", "model.visual"),
    ];
    means_the_same("cosmos3_edge", &file("cosmos3_edge"), &renamed("cosmos3_edge", IN_MEMORY, OTHERS));
}

/// The text model of EmbeddingGemma 2 by itself.
#[test]
fn embedding_gemma_2_alone() {
    let text =
        with(file("embedding_gemma2")["text_config"].clone(), json!({ "architectures": ["EmbeddingGemma2TextModel"] }));
    means_the_same("embedding_gemma2", &text, &renamed("embedding_gemma2", &[("language_model.", "")], &[]));
}

/// Unsupported models, refused with messages that name them.
#[test]
fn what_no_text_computes() {
    for (arch, changes, words) in [
        ("mllama_text_model", json!({ "tie_word_embeddings": true }), "a head of fewer rows than its table"),
        ("molmo2_text", json!({ "tie_word_embeddings": true }), "a head of fewer rows than its tables"),
        ("molmo2_text", json!({ "rope_scaling_layers": [0.5] }), "a list of numbers of layers"),
        ("mllama_text_model", json!({ "cross_attention_layers": [0, 1] }), "without images nothing is left"),
        ("mllama_text_model", json!({ "cross_attention_layers": [-1] }), "a list of numbers of layers"),
        ("bert-generation", json!({ "is_decoder": false }), "tokens that see no later ones"),
        ("longformer", json!({ "architectures": ["LongformerForSequenceClassification"] }), "its first token sees all"),
        ("longformer", json!({ "attention_window": [4, 5] }), "an even number from 2 on"),
        ("longformer", json!({ "attention_window": [4] }), "a layer for each number of `attention_window`"),
        ("deepseek_ocr2_text", json!({ "norm_topk_prob": true }), "does not normalize the weights"),
        ("xlm", json!({ "causal": true }), "`causal` is true"),
        ("granite_docling_text", json!({ "residual_multiplier": "absent" }), "`residual_multiplier` is missing"),
        ("beam", json!({ "rope_parameters": { "full_attention": null } }), "`sliding_attention` in it"),
        ("beam", json!({ "final_logit_softcapping": 0 }), "`final_logit_softcapping` is 0"),
        ("embedding_gemma2_text", json!({ "global_head_dim": 7 }), "`head_dim` is 7"),
    ] {
        let error = Model::parse(&with(config(arch), changes)).unwrap_err().to_string();
        assert!(error.contains(words), "{arch}: {error}");
    }
}

/// Names that Transformers has for the configurations of others.
#[test]
fn other_names_of_the_same() {
    let model = Model::parse(&with(config("gpt2"), json!({ "model_type": "gpt-sw3" }))).unwrap();
    assert_eq!(model.arch.model_type, "gpt2");
}

/// Which layers have windows, said otherwise.
#[test]
fn windows_in_other_words() {
    let shape = |config: &Value| format!("{:?}", Model::parse(config).unwrap().shape);
    let classes = file("ultrabert_classes");
    assert_eq!(shape(&with(classes.clone(), json!({ "attention_windows": [6, null, 6] }))), shape(&classes));
    for wrong in [json!([6, 0]), json!([6, "0", 6]), json!([6, 0, 7]), json!([6, 0, -1]), json!(6)] {
        let error =
            Model::parse(&with(classes.clone(), json!({ "attention_windows": wrong }))).unwrap_err().to_string();
        assert!(error.contains("`attention_windows`") && error.contains("for each of 3 layers"), "{error}");
    }
    let text =
        with(file("embedding_gemma2")["text_config"].clone(), json!({ "architectures": ["EmbeddingGemma2TextModel"] }));
    let every = with(text.clone(), json!({ "layer_types": "absent", "sliding_window_pattern": 2 }));
    assert_eq!(shape(&every), shape(&text));
    // The class's defaults for heads differ from Gemma 4's.
    let heads = with(text.clone(), json!({ "num_attention_heads": "absent", "num_key_value_heads": "absent" }));
    assert_eq!(shape(&heads), shape(&text));
}

/// Dots 3 Note gives layers with a window in its authors' words and in Transformers'; some
/// combinations are no such model.
#[test]
fn dots_3_note_in_other_words() {
    let refused = |changes: Value, words: &[&str]| {
        let text = with(file("dots3_note_text"), changes.clone());
        let error = Model::parse(&text).unwrap_err().to_string();
        assert!(words.iter().all(|w| error.contains(w)), "{changes}: {error}");
    };
    let sizes = file("dots3_note_text")["per_layer_config"]["1"].clone();
    let other = with(sizes.clone(), json!({ "v_head_dim": 8 }));
    refused(json!({ "per_layer_config": { "1": sizes } }), &["`per_layer_config`", "a window (1, 2)"]);
    refused(json!({ "per_layer_config": { "1": sizes, "2": other } }), &["`per_layer_config`", "the same"]);
    for (name, v, words) in [
        ("qk_rope_head_dim", json!("absent"), "the rotated part of a head (6) plus the rest (10)"),
        ("head_dim", json!(20), "the rotated part of a head (8) plus the rest (10)"),
        ("num_key_value_heads", json!(1), "as many heads of keys and values as of queries (3)"),
        ("v_head_dim", json!(0), "`v_head_dim`: 0"),
        ("sinks", json!(true), "the same for each layer"),
    ] {
        let each = with(sizes.clone(), json!({ name: v }));
        refused(json!({ "per_layer_config": { "1": each, "2": each } }), &["`per_layer_config`", words]);
    }
    let yarn = json!({ "rope_type": "yarn", "rope_theta": 1e4, "factor": 2 });
    refused(json!({ "rope_parameters": yarn }), &["`rope_parameters`", "no scaling"]);
    refused(json!({ "use_sliding_window": false }), &["`use_sliding_window` is false"]);
    refused(json!({ "mlp_layer_types": null, "moe_layer_freq": [1, 0] }), &["`moe_layer_freq`", "or 3 numbers"]);
}

/// Classifiers that see images pool as the whole says, whatever its text model says.
#[test]
fn pooling_is_what_the_whole_says() {
    let whole = |class: &str, pooling: &str| {
        let text = json!({ "classifier_pooling": "mean", "architectures": "absent" });
        let config = json!({ "model_type": "modernvbert", "architectures": [class], "text_config": {} });
        with(config, json!({ "classifier_pooling": pooling, "text_config": with(file("modernbert"), text) }))
    };
    let read = |pooling| {
        let whole = whole("ModernVBertForSequenceClassification", pooling);
        format!("{:?}", Model::parse(&whole).unwrap())
    };
    assert_ne!(read("mean"), read("cls"));
    assert_eq!(read("absent"), read("cls"));
    assert!(Model::parse(&whole("ModernVBertForMaskedLM", "cls")).is_ok());
    let decoder = json!({ "model_type": "a", "architectures": ["AForMaskedLM"], "text_config": file("qwen3") });
    assert!(Model::parse(&decoder).unwrap_err().to_string().contains("`AForMaskedLM`"));
}

/// A head for classes that is more than the matrix of scores is named where it is not compiled.
#[test]
fn other_heads_for_classes() {
    let folder = Folder::new();
    let config = with(file("esmc"), json!({ "architectures": ["EsmcForSequenceClassification"] }));
    write_checkpoint(&folder.0, &config, &renamed("esmc", &[], &["classifier.dense.weight"])).unwrap();
    let error = lift(&Checkpoint::open(&folder.0).unwrap(), &Options::default()).unwrap_err().to_string();
    assert!(error.contains("by `classifier.dense.weight`, and not by a matrix `score.weight`"), "{error}");
}
