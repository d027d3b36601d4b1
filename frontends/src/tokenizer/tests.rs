mod folders;
mod programs;
mod vectors;

use super::*;
use crate::fixtures::write_checkpoint;
use crate::testing::{Folder, config, shared, with};
use std::path::Path;

/// A checkpoint folder with a tokenizer made here.
fn folder(changes: Value, files: &[(&str, &str)]) -> (Folder, Checkpoint) {
    let folder = Folder::new();
    write_checkpoint(&folder.0, &with(config("llama"), changes), &[]).unwrap();
    for (name, text) in files {
        folder.write(name, text);
    }
    let ckpt = Checkpoint::open(&folder.0).unwrap();
    (folder, ckpt)
}

/// A byte-level BPE with `extra` members; ids: 0 `<s>`, 1 `</s>`, 2 `a`, 3 `b`, 4 `ab`.
fn tokenizer(extra: Value) -> String {
    let special = |id: u32, content: &str| json!({ "id": id, "content": content, "single_word": false, "lstrip": false, "rstrip": false, "normalized": false, "special": true });
    let base = json!({
        "version": "1.0", "truncation": null, "padding": null, "added_tokens": [special(0, "<s>"), special(1, "</s>")],
        "normalizer": null, "pre_tokenizer": null, "post_processor": null, "decoder": null,
        "model": { "type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": null, "end_of_word_suffix": null, "fuse_unk": false,
            "byte_fallback": false, "ignore_merges": false, "vocab": { "<s>": 0, "</s>": 1, "a": 2, "b": 3, "ab": 4 }, "merges": [["a", "b"]] },
    });
    with(base, extra).to_string()
}

fn load_error(changes: Value, files: &[(&str, &str)]) -> String {
    let (folder, ckpt) = folder(changes, files);
    TextAssets::load(&ckpt).unwrap_err().to_string().replace(&*folder.0.to_string_lossy(), "DIR")
}

#[test]
fn settings_of_the_text_side() {
    let settings = json!({ "bos_token": "<s>", "eos_token": { "content": "</s>" }, "add_bos_token": true, "chat_template": "{{ x }}", "model_max_length": 64 });
    let generation = json!({ "eos_token_id": [7, 1, 99] });
    let files = [
        ("tokenizer.json", tokenizer(json!({}))),
        ("tokenizer_config.json", settings.to_string()),
        // It counts more than tokenizer_config.json, where that has no `added_tokens_decoder`.
        ("special_tokens_map.json", json!({ "pad_token": "ab", "unk_token": { "content": "b" } }).to_string()),
        ("generation_config.json", generation.to_string()),
    ];
    let (_folder, ckpt) = folder(json!({ "eos_token_id": 5 }), &files.each_ref().map(|(n, t)| (*n, t.as_str())));
    let text = TextAssets::load(&ckpt).unwrap();
    let expected = json!({
        "bos_token": "<s>", "eos_token": "</s>",
        "special_tokens": { "bos_token": "<s>", "eos_token": "</s>", "pad_token": "ab", "unk_token": "b" },
        "bos_token_id": 0, "eos_token_ids": [7, 1, 5], "add_bos": false, "add_eos_id": null, "chat_template": "{{ x }}", "model_max_length": 64,
        "clean_up_tokenization_spaces": false,
    });
    assert_eq!(text.text_config, expected);
    let json: Value = serde_json::from_slice(&text.tokenizer_json.unwrap()).unwrap();
    let added: Vec<(&Value, &Value)> =
        json["added_tokens"].as_array().unwrap().iter().map(|t| (&t["id"], &t["special"])).collect();
    let special = json!(true);
    assert_eq!(added, [0, 1, 3, 4].map(|id| json!(id)).each_ref().map(|id| (id, &special)));
    assert_eq!(json["model"], serde_json::from_str::<Value>(&tokenizer(json!({}))).unwrap()["model"]);

    let plain = [&files[0], &files[1]];
    let (_folder, ckpt) = folder(json!({}), &plain.map(|(n, t)| (*n, t.as_str())));
    let text = TextAssets::load(&ckpt).unwrap();
    assert_eq!(text.tokenizer_json.as_deref(), Some(tokenizer(json!({})).as_bytes()), "passed through unchanged");
}

#[test]
fn names_of_classes_and_defaults_of_generations() {
    let labels = |given: Value| {
        let (_folder, ckpt) = folder(json!({ "id2label": given }), &[]);
        TextAssets::load(&ckpt).unwrap().classes
    };
    assert_eq!(labels(json!({ "1": "good", "0": "bad" })), ["bad", "good"]);
    assert_eq!(labels(json!({ "0": "a", "2": "c" })), [""; 0]);
    assert_eq!(labels(json!({ "0": 3 })), [""; 0]);
    let both = json!({ "id2label": { "0": "bad", "1": "good" }, "label2id": { "bad": 1, "good": 0 } });
    let warnings = TextAssets::load(&folder(both, &[]).1).unwrap().warnings;
    assert!(warnings.iter().any(|w| w.contains("class 0 \"bad\", but `label2id` numbers it 1")), "{warnings:?}");
    let assets = |config: Value| TextAssets::load(&folder(config, &[]).1).unwrap();
    assert_eq!(assets(json!({ "problem_type": "regression" })).problem_type.as_deref(), Some("regression"));
    let identity = "torch.nn.modules.linear.Identity";
    for config in [
        json!({ "sentence_transformers": { "activation_fn": identity, "version": "4.1.0" } }),
        json!({ "sbert_ce_default_activation_function": identity }),
    ] {
        let of = assets(config);
        assert_eq!((of.problem_type, of.pair_activation.as_deref()), (None, Some("identity")));
    }
    assert_eq!(assets(json!({})).pair_activation, None);
    let newest = json!({ "activation_fn": "torch.nn.modules.activation.Sigmoid" }).to_string();
    let (_folder, ckpt) = folder(json!({}), &[("config_sentence_transformers.json", &newest)]);
    assert_eq!(TextAssets::load(&ckpt).unwrap().pair_activation.as_deref(), Some("sigmoid"));
    let generation = r#"{"do_sample": true, "top_k": 5, "num_beams": 2}"#;
    let (_folder, ckpt) = folder(json!({}), &[("generation_config.json", generation)]);
    let assets = TextAssets::load(&ckpt).unwrap();
    assert_eq!(assets.text_config["generation"], json!({ "temperature": 1.0, "top_k": 5 }));
    assert!(assets.warnings.iter().any(|w| w.contains("`num_beams` is 2")), "{:?}", assets.warnings);
    let error = load_error(json!({}), &[("generation_config.json", r#"{"top_p": 2}"#)]);
    assert!(error.starts_with("DIR/generation_config.json: `top_p` is 2, not a number from 0 to 1; "), "{error}");
    let error = load_error(json!({}), &[("generation_config.json", r#"{"eos_token_id": [1, "</s>"]}"#)]);
    assert!(error.contains("`eos_token_id` is [1,\"</s>\"], not a token id, or a list of them"), "{error}");
}

/// Among files for several versions of Transformers, the one for 5.23 is read.
#[test]
fn tokenizer_files_of_versions() {
    let of = |list: Value, name: &str| {
        let settings = json!({ "fast_tokenizer_files": list }).to_string();
        let files = [("tokenizer.json", tokenizer(json!({}))), (name, tokenizer(json!({ "added_tokens": [] })))];
        let [plain, other] = files.each_ref().map(|(n, t)| (*n, t.as_str()));
        let (_folder, ckpt) = folder(json!({}), &[plain, other, ("tokenizer_config.json", settings.as_str())]);
        let json: Value = serde_json::from_slice(&TextAssets::load(&ckpt).unwrap().tokenizer_json.unwrap()).unwrap();
        json["added_tokens"].as_array().unwrap().is_empty()
    };
    assert!(of(json!(["tokenizer.json", "tokenizer.4.0.0.json"]), "tokenizer.4.0.0.json"));
    assert!(of(json!(["tokenizer.4.0.0.json", "tokenizer.5.23.1.json"]), "tokenizer.5.23.1.json"));
    assert!(!of(json!(["tokenizer.6.0.json"]), "tokenizer.6.0.json"));
    // A name with a folder is no name of a file beside it.
    assert!(!of(json!(["./tokenizer.4.0.0.json"]), "tokenizer.4.0.0.json"));
    // Transformers sorts them as texts.
    assert!(!of(json!(["tokenizer.10.0.json", "tokenizer.4.0.json"]), "tokenizer.4.0.json"));
}

#[test]
fn no_tokenizer_at_all() {
    let (_folder, ckpt) = folder(json!({ "bos_token_id": 3, "eos_token_id": 4 }), &[]);
    let text = TextAssets::load(&ckpt).unwrap();
    assert!(text.tokenizer_json.is_none());
    assert_eq!((&text.text_config["bos_token_id"], &text.text_config["eos_token_ids"]), (&json!(3), &json!([4])));
    assert_eq!((&text.text_config["add_bos"], &text.text_config["chat_template"]), (&json!(false), &Value::Null));
}

#[test]
fn bos_as_the_post_processor_says() {
    let template = json!({ "type": "TemplateProcessing", "single": [{ "SpecialToken": { "id": "<s>", "type_id": 0 } }, { "Sequence": { "id": "A", "type_id": 0 } }],
        "pair": [{ "Sequence": { "id": "A", "type_id": 0 } }, { "Sequence": { "id": "B", "type_id": 1 } }], "special_tokens": { "<s>": { "id": "<s>", "ids": [0], "tokens": ["<s>"] } } });
    let add_bos = |post: Value, settings: Value| {
        let files = [
            ("tokenizer.json", tokenizer(json!({ "post_processor": post }))),
            ("tokenizer_config.json", settings.to_string()),
        ];
        let (_folder, ckpt) = folder(json!({}), &files.each_ref().map(|(n, t)| (*n, t.as_str())));
        TextAssets::load(&ckpt).unwrap().text_config["add_bos"].clone()
    };
    assert_eq!(add_bos(template.clone(), json!({ "bos_token": "<s>" })), true);
    assert_eq!(add_bos(Value::Null, json!({ "bos_token": "<s>" })), false);
    assert_eq!(add_bos(template, json!({ "bos_token": "<s>", "add_bos_token": false })), true, "as in Transformers 5");
    assert_eq!(add_bos(Value::Null, json!({ "bos_token": null })), false);
}

#[test]
fn chat_templates() {
    let template = |files: &[(&str, &str)]| {
        TextAssets::load(&folder(json!({}), files).1).unwrap().text_config["chat_template"].clone()
    };
    let list = json!([{ "name": "default", "template": "a" }, { "name": "tool_use", "template": "b" }]);
    let settings = |t: &Value| json!({ "chat_template": t }).to_string();
    assert_eq!(template(&[("tokenizer_config.json", &settings(&list))]), list);
    assert_eq!(template(&[("tokenizer_config.json", &settings(&list)), ("chat_template.jinja", "c")]), "c");
    assert_eq!(template(&[("tokenizer_config.json", &settings(&json!([3])))]), Value::Null);
    let beside = ("chat_template.json", &*settings(&json!("d")));
    assert_eq!(template(&[("tokenizer_config.json", "{}"), beside]), "d");
    assert_eq!(template(&[("tokenizer_config.json", &settings(&list)), beside]), list);
    let error = load_error(json!({}), &[("tokenizer_config.json", "{")]);
    assert_eq!(
        error,
        "DIR/tokenizer_config.json: not valid JSON: EOF while parsing an object at line 1 column 1; the file is empty or cut off: download it again"
    );
}

#[test]
fn truncation_left_over_from_training_is_removed() {
    let limits =
        json!({ "truncation": { "direction": "Right", "max_length": 2, "strategy": "LongestFirst", "stride": 0 } });
    let (_folder, ckpt) = folder(json!({}), &[("tokenizer.json", &tokenizer(limits))]);
    let json = TextAssets::load(&ckpt).unwrap().tokenizer_json.unwrap();
    assert_eq!(ids_of(&Tokenizer::from_bytes(json).unwrap(), "abbbb"), [4, 3, 3, 3]);
}

#[test]
fn tokenizers_that_do_not_fit() {
    let save = "make a tokenizer.json with Transformers: `AutoTokenizer.from_pretrained(dir).save_pretrained(dir)`";
    assert_eq!(
        load_error(json!({ "vocab_size": 4 }), &[("tokenizer.json", &tokenizer(json!({})))]),
        "DIR/tokenizer.json: tokenizer mismatch: token \"ab\" has id 4, but the model has 4 tokens; use the tokenizer files of this very model"
    );
    let error = load_error(json!({}), &[("tokenizer.json", &tokenizer(json!({ "model": { "type": "Strange" } })))]);
    assert!(error.starts_with("DIR/tokenizer.json: not a usable tokenizer: ") && error.ends_with(save), "{error}");
    let error = load_error(json!({}), &[("tokenizer.json", "")]);
    assert_eq!(
        error,
        "DIR/tokenizer.json: not valid JSON: EOF while parsing a value at line 1 column 0; the file is empty or cut off: download it again"
    );
    let neither = "IQ== 0\nIg== 2\n";
    assert_eq!(
        load_error(json!({}), &[("tokenizer.model", neither)]),
        format!("DIR/tokenizer.model: neither a SentencePiece model nor a file of tiktoken; {}", source::SAVE)
    );
    assert_eq!(
        load_error(json!({}), &[("vocab.json", "{}")]),
        format!("DIR/vocab.json: this vocabulary has no merges.txt beside it; {}", source::SAVE)
    );
}

fn ids_of(t: &Tokenizer, text: &str) -> Vec<u32> {
    t.encode(text, false).unwrap().get_ids().to_vec()
}

/// A SentencePiece model converted and loaded.
fn converted(path: &Path) -> Tokenizer {
    let json = from_sentencepiece(&std::fs::read(path).unwrap()).unwrap();
    Tokenizer::from_bytes(json.to_string()).unwrap()
}

/// A serialized `ModelProto`: pieces `(text, score, type)`, model type, raw normalizer fields.
fn model_proto(pieces: &[(&str, f32, u8)], model_type: u8, normalizer: &[u8]) -> Vec<u8> {
    let message = |tag: u8, body: &[u8]| [&[tag, u8::try_from(body.len()).unwrap()], body].concat();
    let piece = |(text, score, kind): &(&str, f32, u8)| {
        let body =
            [message(0x0a, text.as_bytes()), [&[0x15], &score.to_le_bytes()[..]].concat(), vec![0x18, *kind]].concat();
        message(0x0a, &body)
    };
    [pieces.iter().flat_map(piece).collect(), message(0x12, &[0x18, model_type]), message(0x1a, normalizer)].concat()
}

#[test]
fn sentencepiece_bpe_merges_by_score() {
    // `ab` scores better than `bc`; `▁ab` better than all; `<0x41>` and the user's `zz` never take
    // part in merges.
    let pieces = [
        ("<unk>", 0.0, 2),
        ("<s>", 0.0, 3),
        ("<0x41>", 0.0, 6),
        ("zz", 0.0, 4),
        ("▁ab", -1.0, 1),
        ("ab", -2.0, 1),
        ("bc", -3.0, 1),
        ("▁", -4.0, 1),
        ("a", -5.0, 1),
        ("b", -6.0, 1),
        ("c", -7.0, 1),
        ("z", -8.0, 1),
        ("<", -9.0, 1),
    ];
    // Prefix on (field 3), extra whitespace kept (field 4).
    let json = from_sentencepiece(&model_proto(&pieces, 2, &[0x18, 1, 0x20, 0])).unwrap();
    assert_eq!(json["model"]["merges"], json!([["▁", "ab"], ["a", "b"], ["b", "c"]]));
    let t = Tokenizer::from_bytes(json.to_string()).unwrap();
    assert_eq!(ids_of(&t, "abc"), [4, 10]);
    assert_eq!(ids_of(&t, "bc  b"), [7, 6, 7, 7, 9]);
    assert_eq!(ids_of(&t, "azz"), [7, 8, 3]);
    assert_eq!(ids_of(&t, "A"), [7, 2]);
    assert_eq!(t.decode(&ids_of(&t, "abc  b"), true).unwrap(), "abc  b");
    // Defaults: repeated and outer spaces go.
    let t = Tokenizer::from_bytes(from_sentencepiece(&model_proto(&pieces, 2, &[])).unwrap().to_string()).unwrap();
    assert_eq!(ids_of(&t, "  bc   b "), [7, 6, 7, 9]);
}

/// `remove_extra_whitespaces` takes spaces from the end after they became `▁`, with the text's own;
/// SentencePiece 0.2 gave these.
#[test]
fn outer_spaces_go_as_in_sentencepiece() {
    use tokenizers::{NormalizedString, Normalizer};
    let pieces = [("<unk>", 0.0, 2), ("▁", -1.0, 1), ("a", -2.0, 1)];
    let t = Tokenizer::from_bytes(from_sentencepiece(&model_proto(&pieces, 2, &[])).unwrap().to_string()).unwrap();
    for (text, expected) in [
        ("a▁ ", "▁a"),
        ("▁", ""),
        (" ▁ a", "▁▁▁a"),
        ("\n  b ▁▁", "▁\n▁b"),
        ("  ", ""),
        ("a ▁  b", "▁a▁▁▁b"),
        ("▁a\n ", "▁▁a\n"),
        ("x\n", "▁x\n"),
    ] {
        let mut normalized = NormalizedString::from(text);
        t.get_normalizer().unwrap().normalize(&mut normalized).unwrap();
        assert_eq!(normalized.get(), expected, "{text:?}");
    }
}

#[test]
fn sentencepiece_unigram() {
    let pieces =
        [("<unk>", 0.0, 2), ("▁", -3.0, 1), ("▁a", -2.0, 1), ("b", -2.0, 1), ("ab", -1.0, 1), ("▁ab", -5.0, 1)];
    let t = Tokenizer::from_bytes(from_sentencepiece(&model_proto(&pieces, 1, &[])).unwrap().to_string()).unwrap();
    // The best sum: ▁a + b = -4, ▁ + ab = -4 (the same), ▁ab = -5.
    assert_eq!(ids_of(&t, "b"), [1, 3]);
    assert_eq!(t.decode(&ids_of(&t, "ab ab"), true).unwrap(), "ab ab");
}

#[test]
fn malformed_sentencepiece_models() {
    let good = model_proto(&[("<unk>", 0.0, 2), ("a", -1.0, 1)], 2, &[]);
    let error = |bytes: &[u8]| from_sentencepiece(bytes).map(|_| ()).unwrap_err();
    let malformed = "neither a SentencePiece model nor a file of tiktoken";
    assert_eq!(error(&[]), malformed);
    assert_eq!(error(&good[..good.len() - 1]), malformed);
    assert_eq!(error(&model_proto(&[("a", f32::NAN, 1)], 2, &[])), malformed);
    assert_eq!(error(&model_proto(&[("a", 0.0, 7)], 2, &[])), malformed);
    assert_eq!(error(&model_proto(&[("a", 0.0, 1), ("a", 0.0, 1)], 2, &[])), "piece \"a\" appears twice");
    assert_eq!(
        error(&model_proto(&[("a", 0.0, 1)], 4, &[])),
        "SentencePiece model type 4 is not supported (only unigram and BPE)"
    );
}

/// SentencePiece itself tokenized the stories whose perplexity is stored, so the number of tokens
/// must agree.
#[test]
fn stories_tokenize_as_by_sentencepiece() {
    let (Some(model), Some(text)) = (shared("stories260K"), shared("text/tinystories_a.txt")) else { return };
    let t = converted(&model.join("hf/tokenizer.model"));
    let json = |name: &str| -> Value { serde_json::from_slice(&std::fs::read(model.join(name)).unwrap()).unwrap() };
    let prompt = json("expected/prompt_ids.json");
    let ids: Vec<u32> = [1].into_iter().chain(ids_of(&t, prompt["prompt"].as_str().unwrap())).collect();
    assert_eq!(json!(ids), prompt["ids"]);

    let text = std::fs::read_to_string(text).unwrap();
    let stories = text.split("<|endoftext|>").map(str::trim).filter(|s| !s.is_empty()).take(60);
    // With BOS, cut to the context of 512; all but the first are predicted.
    let predicted: usize = stories.map(|s| (ids_of(&t, s).len() + 1).min(512) - 1).sum();
    assert_eq!(json!(predicted), json("expected/ppl.json")["tokens"]);
}

/// llama.cpp's vectors for the Llama 2 vocabulary.
#[test]
fn llama2_vectors() {
    let Some(dir) = shared("tokenizers") else { return };
    let t = converted(&dir.join("llama2/tokenizer.model"));
    let read =
        |ext: &str| std::fs::read_to_string(dir.join(format!("llama.cpp/ggml-vocab-llama-spm.gguf.{ext}"))).unwrap();
    let (inputs, outputs) = (read("inp"), read("out"));
    let mut n = 0;
    for (input, output) in inputs.split("\n__ggml_vocab_test__\n").zip(outputs.lines()) {
        let expected: Vec<u32> = output.split_whitespace().map(|id| id.parse().unwrap()).collect();
        assert_eq!(ids_of(&t, input), expected, "{input:?}");
        let decoded = t.decode(&expected, false).unwrap();
        assert_eq!(decoded, input, "decoded");
        n += 1;
    }
    assert_eq!(n, 46);
}

#[test]
fn real_tokenizers_load() {
    let Some(dir) = shared("tokenizers") else { return };
    for (name, vocab) in [
        ("mistral/tokenizer.model.v1", 32_000),
        ("mistral/mistral_instruct_tokenizer_240323.model.v3", 32_768),
        ("llama2/tokenizer.model", 32_000),
    ] {
        assert_eq!(converted(&dir.join(name)).get_vocab_size(true), vocab, "{name}");
    }
    for (name, vocab) in [("phi3", 32_064), ("granite_code", 49_152)] {
        let read = |file: &str| std::fs::read_to_string(dir.join(name).join(file)).unwrap_or_default();
        let files = ["tokenizer.json", "tokenizer_config.json", "special_tokens_map.json"].map(|f| (f, read(f)));
        let (_folder, ckpt) = folder(json!({ "vocab_size": vocab }), &files.each_ref().map(|(n, t)| (*n, t.as_str())));
        let text = TextAssets::load(&ckpt).unwrap();
        assert!(
            text.tokenizer_json.is_some() && text.text_config["eos_token_ids"] != json!([]),
            "{name}: {}",
            text.text_config
        );
    }
    let error = from_sentencepiece(&std::fs::read(dir.join("llama3/tokenizer.model")).unwrap()).unwrap_err();
    assert_eq!(error, "neither a SentencePiece model nor a file of tiktoken");
}

/// RWKV's World vocabulary gives the tokens that its own tokenizer (PyPI: rwkv 0.8.32) gives, and the
/// text again.
#[test]
fn rwkv_world_vectors() {
    let Some(dir) = shared("tokenizers/rwkv_world") else { return };
    let json = from_rwkv(&std::fs::read(dir.join(world::FILE)).unwrap()).unwrap().to_string();
    assert_eq!(check::tokenizer(json.as_bytes()).unwrap(), [] as [&str; 0]);
    let t = llmcc_text::Tokenizer::new(&json, &llmcc_text::Config::default()).unwrap();
    assert_eq!(t.vocab_size(), 65_530);
    for (text, ids) in [
        ("", &[][..]),
        (
            "Hello, world! It's 2024.\n\n\tdef f(x):\r\n    return x  ",
            &[33155, 45, 40213, 34, 3918, 460, 3493, 644, 47, 3327, 7334, 337, 41, 121, 501, 36213, 42178, 355, 267],
        ),
        (
            "The quick brown fox jumps over the lazy dog.",
            &[6699, 39418, 37917, 21704, 38828, 31601, 22590, 31261, 21551, 47],
        ),
        ("你好，世界 こんにちは", &[10464, 11685, 19137, 10267, 14610, 33, 10115, 10165, 10136, 10127, 10139]),
        ("e\u{301} 𝔘𝔫", &[102, 2672, 33, 3318, 149, 153, 3318, 149, 172]),
        ("User: hi\n\nAssistant:", &[24281, 59, 4571, 261, 5585, 41693, 59]),
        ("aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", &[53739, 53739, 53739, 53739, 6885]),
        ("\0\u{7f} é", &[1, 128, 4970]),
    ] {
        assert_eq!(t.encode(text, true).unwrap(), ids, "{text:?}");
        assert_eq!(t.decode(ids, false).unwrap(), text);
    }
    // Long texts are no trouble.
    let long = "Once upon a time, there was a café. ".repeat(20_000);
    assert_eq!(t.decode(&t.encode(&long, true).unwrap(), false).unwrap(), long);
    // A checkpoint with it.
    let vocab = std::fs::read(dir.join(world::FILE)).unwrap();
    let (folder, _) = folder(json!({ "vocab_size": 65_536 }), &[]);
    std::fs::write(folder.0.join(world::FILE), vocab).unwrap();
    let text = TextAssets::load(&Checkpoint::open(&folder.0).unwrap()).unwrap();
    assert!(text.tokenizer_json.is_some() && text.warnings.is_empty());
}

/// The runtime's tokens of "ab", and the notes for the user.
fn tokens(files: &[(&str, &[u8])]) -> (Vec<i32>, Vec<String>) {
    let (folder, _) = folder(json!({ "vocab_size": 512 }), &[]);
    for (name, bytes) in files {
        std::fs::write(folder.0.join(name), bytes).unwrap();
    }
    let text = TextAssets::load(&Checkpoint::open(&folder.0).unwrap()).unwrap();
    let config = llmcc_text::Config::parse(&text.text_config.to_string()).unwrap();
    let json = String::from_utf8(text.tokenizer_json.unwrap()).unwrap();
    let tokenizer = llmcc_text::Tokenizer::new(&json, &config).unwrap();
    (tokenizer.encode("ab", true).unwrap(), text.warnings)
}

/// Transformers 5: with a `tokenizer.json` its post-processor alone counts; without one,
/// `add_bos_token` and `add_eos_token` do, and none is the default.
#[test]
fn first_and_last_tokens_are_those_of_transformers() {
    let special = |id: &str| json!({ "SpecialToken": { "id": id, "type_id": 0 } });
    let text = json!({ "Sequence": { "id": "A", "type_id": 0 } });
    let post = |single: Value| {
        let tokens = json!({ "<s>": { "id": "<s>", "ids": [0], "tokens": ["<s>"] }, "</s>": { "id": "</s>", "ids": [1], "tokens": ["</s>"] } });
        tokenizer(
            json!({ "post_processor": { "type": "TemplateProcessing", "single": single, "pair": [], "special_tokens": tokens } }),
        )
    };
    let settings = |bos: Value, eos: Value| {
        json!({ "bos_token": "<s>", "eos_token": "</s>", "add_bos_token": bos, "add_eos_token": eos }).to_string()
    };
    let json_file = |json: &str, settings: &str| {
        tokens(&[("tokenizer.json", json.as_bytes()), ("tokenizer_config.json", settings.as_bytes())])
    };
    let (ids, warnings) = json_file(&tokenizer(json!({})), &settings(json!(true), json!(true)));
    assert_eq!((ids, warnings.len()), (vec![4], 2), "{warnings:?}");
    assert!(warnings[1].contains("add_eos_token"), "{warnings:?}");
    let both = post(json!([special("<s>"), text, special("</s>")]));
    assert_eq!(json_file(&both, &settings(json!(true), json!(true))), (vec![0, 4, 1], vec![]));
    assert_eq!(json_file(&both, &settings(Value::Null, Value::Null)), (vec![0, 4, 1], vec![]));

    let Ok(model) = std::fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/corpus/sentencepiece/bpe"))
    else {
        panic!("the corpus")
    };
    // The corpus' model has no `</s>`.
    let plain = |bos: Value, eos: Value| {
        let settings = settings(bos, eos).replace("</s>", "zz");
        tokens(&[("tokenizer.model", &model), ("tokenizer_config.json", settings.as_bytes())]).0
    };
    let bare = plain(Value::Null, Value::Null);
    let (first, last) = (plain(json!(true), json!(false)), plain(json!(false), json!(true)));
    assert_eq!(first[1..], bare, "{first:?}");
    assert_eq!(last[..last.len() - 1], bare, "{last:?}");
    assert_eq!(plain(json!(true), json!(true)), [&first[..], &last[last.len() - 1..]].concat());
}

/// Tokenizers that would kill the runtime are not put into an artifact, and say where their fault
/// is.
#[test]
fn hostile_tokenizers_are_refused() {
    let error = |extra: Value| load_error(json!({}), &[("tokenizer.json", &tokenizer(extra))]);
    let message = error(json!({ "pre_tokenizer": { "type": "FixedLength", "length": 0 } }));
    assert!(message.contains("DIR/tokenizer.json") && message.contains("pre_tokenizer: `length`"), "{message}");
    let message = error(json!({ "normalizer": { "type": "Precompiled", "precompiled_charsmap": "AAAAAA==" } }));
    assert!(message.contains("normalizer.precompiled_charsmap: an empty trie"), "{message}");
    let (special, text) =
        (json!({ "SpecialToken": { "id": "q", "type_id": 0 } }), json!({ "Sequence": { "id": "A", "type_id": 0 } }));
    let message =
        error(json!({ "post_processor": { "type": "TemplateProcessing", "single": [special, text], "pair": [],
        "special_tokens": { "q": { "id": "q", "ids": [4_000_000_000_u32], "tokens": ["q"] } } } }));
    assert!(message.contains("adds token 4000000000"), "{message}");
}

#[test]
fn random_tokenizers_are_made_plain() {
    let mut json: Value = serde_json::from_str(&tokenizer(json!({}))).unwrap();
    json["model"]["dropout"] = json!(0.9);
    let (ids, warnings) = tokens(&[("tokenizer.json", json.to_string().as_bytes())]);
    assert_eq!(ids, [4]);
    assert!(warnings.len() == 1 && warnings[0].contains("dropout"), "{warnings:?}");
}

/// Templates are tried: failing for a plain message is an error, elsewhere a warning, and refusing
/// with `raise_exception` is neither.
#[test]
fn chat_templates_are_tried() {
    let settings = |template: &str| json!({ "chat_template": template }).to_string();
    let error = |template: &str| {
        load_error(
            json!({}),
            &[("tokenizer.json", &tokenizer(json!({}))), ("tokenizer_config.json", &settings(template))],
        )
    };
    let message = error("{{ messages[0].content + 1 }}");
    assert!(
        message.contains("cannot render a user's message") && message.contains("DIR/tokenizer_config.json"),
        "{message}"
    );
    assert!(error("{% for %}").contains("does not parse"));
    assert!(error(&format!("{{{{ {}1{} }}}}", "(".repeat(100_000), ")".repeat(100_000))).contains("nested"));
    assert!(
        error("{% set n = namespace(x='ab') %}{% for i in range(99) %}{% set n.x = n.x ~ n.x %}{% endfor %}")
            .contains("too much memory")
    );

    let warnings = |template: &str| {
        let files = [("tokenizer.json", tokenizer(json!({}))), ("tokenizer_config.json", settings(template))];
        tokens(&files.each_ref().map(|(n, t)| (*n, t.as_bytes()))).1
    };
    assert_eq!(warnings("{{ messages[0].content }}"), Vec::<String>::new());
    assert_eq!(warnings("{% if tools %}{{ raise_exception('no tools') }}{% endif %}"), Vec::<String>::new());
    let told = warnings("{% if tools %}{{ 1 + 'a' }}{% endif %}");
    assert!(told.len() == 2 && told[0].contains("cannot render tools"), "{told:?}");
}

/// Templates of GGUF files that have names of their own are listed as `tokenizer_config.json` lists them.
#[test]
fn named_templates_of_gguf_files() {
    use crate::checkpoint::gguf::{Metadata, Value as Said};
    let template = |said: &[(&str, &str)]| {
        let entry = |(name, text): &(&str, &str)| (format!("tokenizer.{name}"), Said::Text((*text).into()));
        let metadata: Metadata = said.iter().map(entry).collect();
        gguf::settings(&metadata)["chat_template"].clone()
    };
    assert_eq!(template(&[]), Value::Null);
    assert_eq!(template(&[("chat_template", "a")]), "a");
    let both = json!([{ "name": "default", "template": "a" }, { "name": "tool_use", "template": "b" }]);
    assert_eq!(template(&[("chat_template", "a"), ("chat_template.tool_use", "b")]), both);
    assert_eq!(template(&[("chat_template.tool_use", "b")]), json!([{ "name": "tool_use", "template": "b" }]));
}
