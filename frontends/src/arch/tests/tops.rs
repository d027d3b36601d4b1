//! Classes' heads above their layers, and kinds of models that are refused.

use crate::arch::Model;
use crate::arch::blocks::outputs::Top;
use crate::testing::{golden, with};
use serde_json::{Value, json};

fn config(name: &str) -> Value {
    let text = std::fs::read_to_string(golden(name).join("config.json")).unwrap();
    serde_json::from_str(&text).unwrap()
}

#[test]
fn kinds_that_are_not_compiled_say_why() {
    for (model_type, words) in [
        ("pegasus", "a decoder that reads the encoder's output"),
        ("switch_transformers", "a decoder that reads the encoder's output"),
        ("nllb-moe", "experts that drop tokens"),
        ("moonshine", "it reads or makes sound"),
        ("siglip", "it reads images"),
    ] {
        let error = Model::parse(&json!({ "model_type": model_type })).unwrap_err().to_string();
        assert!(error.contains(&format!("architecture `{model_type}` is not supported")), "{error}");
        assert!(error.contains(words), "{error}");
    }
    // Its encoder by itself is compiled.
    let (model_type, class) = ("switch_transformers", "SwitchTransformersForConditionalGeneration");
    let whole = json!({ "model_type": model_type, "architectures": [class] });
    let error = Model::parse(&whole).unwrap_err().to_string();
    assert!(error.contains(&format!("`{class}` of `{model_type}` is not supported")), "{error}");
    assert!(error.contains("a decoder that reads the encoder's output"), "{error}");
    // The class says which of two a model is; without one it is the whole.
    let found = |changes: Value| Model::parse(&with(config("t5"), changes)).unwrap();
    let (part, whole) = (found(json!({})), found(json!({ "architectures": "absent" })));
    assert_eq!((part.arch.class, whole.arch.class), ("T5EncoderModel", "T5ForConditionalGeneration"));
    assert!(whole.has_source() && !part.has_source());
    let other = with(config("t5"), json!({ "architectures": ["T5ForTokenClassification"] }));
    let error = Model::parse(&other).unwrap_err().to_string();
    assert!(error.contains("`T5ForTokenClassification` of `t5` is not supported"), "{error}");
}

/// A classifier that sees images is one by its text model, too; other heads are none of ours.
#[test]
fn classes_of_several_parts() {
    let whole = |class: Value| {
        let mut text = config("gemma3");
        text.as_object_mut().unwrap().remove("architectures");
        json!({ "model_type": "gemma3", "architectures": class, "text_config": text, "vision_config": {} })
    };
    for (class, top) in [
        (json!(["Gemma3ForConditionalGeneration"]), Top::Own),
        (json!(["SomeChatModel"]), Top::Own),
        (json!(null), Top::Own),
        (json!(["Gemma3ForSequenceClassification"]), Top::Classes),
    ] {
        assert_eq!(Model::parse(&whole(class.clone())).unwrap().top, top, "{class}");
    }
    for class in ["Gemma3ForTokenClassification", "ColGemma3ForRetrieval"] {
        let error = Model::parse(&whole(json!([class]))).unwrap_err().to_string();
        assert!(error.contains(&format!("`{class}` is not supported")), "{error}");
    }
}

#[test]
fn classes_by_other_names() {
    for (name, class) in [
        ("rwkv5_paper", "RwkvForCausalLM"),
        ("rwkv5_paper", "Rwkv5ForCausalLM"),
        ("step3p5", "Step3p5ForCausalLM"),
        ("internlm3", "LlamaForCausalLM"),
    ] {
        let mut json = config(name);
        json["architectures"] = json!([class]);
        assert_eq!(Model::parse(&json).unwrap().top, Top::Own, "{name}, {class}");
        // Without a type it is that of the class.
        if class.starts_with("Llama") {
            json["architectures"] = json!(["Rwkv5ForCausalLM"]);
            assert!(Model::parse(&json).unwrap_err().to_string().contains("`Rwkv5ForCausalLM` of `internlm3`"));
        }
    }
}

/// How long a sequence may be is said in many ways, which are no architecture's own.
#[test]
fn lengths_by_any_name() {
    for name in ["max_seq_len", "max_sequence_length", "n_positions", "n_ctx", "context_length", "model_max_length"] {
        let mut json = config("llama");
        json[name] = json!(64);
        assert!(Model::parse(&json).is_ok(), "{name}");
    }
}

#[test]
fn decoders_score_classes_and_recurrences_do_not() {
    let of = |name: &str, class: &str| {
        let mut config = config(name);
        config["architectures"] = json!([class]);
        Model::parse(&config).map(|m| m.top).map_err(|e| e.to_string())
    };
    for (name, class) in [
        ("llama", "LlamaForSequenceClassification"),
        ("gpt2", "GPT2ForSequenceClassification"),
        ("bloom", "BloomForSequenceClassification"),
        ("qwen3_moe", "Qwen3MoeForSequenceClassification"),
    ] {
        assert_eq!(of(name, class), Ok(Top::Classes), "{class}");
    }
    let error = of("mamba", "MambaForSequenceClassification").unwrap_err();
    assert!(error.contains("`MambaForSequenceClassification` of `mamba` is not supported"), "{error}");
}
