//! Ids that other implementations give, for vocabularies of every kind of file.

use crate::checkpoint::gguf as gguf_file;
use crate::fixtures::write_checkpoint;
use crate::testing::{Folder, config, shared, with};
use crate::tokenizer::*;
use std::path::Path;

/// The tokenizer of a vocabulary in a GGUF file.
fn of_gguf(path: &Path) -> Tokenizer {
    let file = std::fs::read(path).unwrap();
    let header = crate::checkpoint::gguf::parse(&file).unwrap();
    let json = gguf::tokenizer_json(&header.metadata).unwrap().unwrap();
    check::tokenizer(json.to_string().as_bytes()).unwrap();
    Tokenizer::from_bytes(json.to_string()).unwrap()
}

fn ids(t: &Tokenizer, text: &str, special: bool) -> Vec<u32> {
    t.encode(text, special).unwrap().get_ids().to_vec()
}

/// llama.cpp's vectors, which come from the models' own tokenizers.
fn compare(t: &Tokenizer, vectors: &Path, name: &str) {
    let read =
        |ending: &str| std::fs::read_to_string(vectors.join(format!("ggml-vocab-{name}.gguf.{ending}"))).unwrap();
    let (inputs, outputs) = (read("inp"), read("out"));
    let cases: Vec<_> = inputs.split("\n__ggml_vocab_test__\n").zip(outputs.lines()).collect();
    assert!(cases.len() > 40, "{name}: {}", cases.len());
    for (input, output) in cases {
        let want: Vec<u32> = output.split_whitespace().map(|id| id.parse().unwrap()).collect();
        assert_eq!(ids(t, input, false), want, "{name}: {input:?}");
    }
}

#[test]
fn vocabularies_of_gguf_files() {
    let Some(dir) = shared("tokenizers/llama.cpp") else { return };
    for name in ["llama-spm", "phi-3", "gpt-2", "mpt", "bert-bge"] {
        compare(&of_gguf(&dir.join(format!("ggml-vocab-{name}.gguf"))), &dir, name);
    }
    golden(&of_gguf(&dir.join("ggml-vocab-bert-bge.gguf")), "BAAI/bge-small-en-v1.5");
    let gpt_neox = of_gguf(&dir.join("ggml-vocab-gpt-neox.gguf"));
    assert_eq!(gpt_neox.decode(&ids(&gpt_neox, "Hello, world  1234", false), false).unwrap(), "Hello, world  1234");
}

/// A checkpoint of a model with these files.
fn assets(changes: Value, files: &[(&str, &Path)]) -> (Folder, TextAssets) {
    let folder = Folder::new();
    write_checkpoint(&folder.0, &with(config("llama"), changes), &[]).unwrap();
    for (name, from) in files {
        std::fs::copy(from, folder.0.join(name)).unwrap();
    }
    let assets = TextAssets::load(&Checkpoint::open(&folder.0).unwrap()).unwrap();
    (folder, assets)
}

/// Compares with the ids of the tokenizers of Transformers.
fn golden(t: &Tokenizer, model: &str) {
    let Some(dir) = shared("tokenizers/iree_golden") else { return };
    let all: Value = serde_json::from_slice(&std::fs::read(dir.join("tokenizer_golden_ids.json")).unwrap()).unwrap();
    let tests = all["models"][model]["tests"].as_array().unwrap();
    assert!(tests.len() > 5);
    for case in tests {
        let want: Vec<u32> = serde_json::from_value(case["golden_ids"].clone()).unwrap();
        let text = case["input"].as_str().unwrap();
        assert_eq!(ids(t, text, case["add_special_tokens"] != false), want, "{model}: {text:?}");
    }
}

#[test]
fn vocab_json_and_merges() {
    let Some(dir) = shared("tokenizers") else { return };
    let (vocab, merges) = (dir.join("gpt2/gpt2_vocab.json"), dir.join("gpt2/gpt2_merges.txt"));
    let (_folder, gpt2) = assets(json!({ "vocab_size": 50_257 }), &[("vocab.json", &vocab), ("merges.txt", &merges)]);
    let gpt2 = Tokenizer::from_bytes(gpt2.tokenizer_json.unwrap()).unwrap();
    golden(&gpt2, "gpt2");
    compare(&gpt2, &dir.join("llama.cpp"), "gpt-2");

    let names = ["vocab.json", "merges.txt", "tokenizer_config.json", "added_tokens.json", "special_tokens_map.json"];
    let paths = names.map(|name| dir.join("qwen2").join(name));
    let files: Vec<(&str, &Path)> = names.into_iter().zip(paths.iter().map(|p| p.as_path())).collect();
    let (_folder, qwen2) = assets(json!({ "vocab_size": 152_064 }), &files);
    let qwen2 = Tokenizer::from_bytes(qwen2.tokenizer_json.unwrap()).unwrap();
    golden(&qwen2, "Qwen/Qwen2-7B");
    compare(&qwen2, &dir.join("llama.cpp/vectors_only"), "qwen2");
}

/// Llama 3's `tokenizer.model`.
#[test]
fn files_of_tiktoken() {
    let Some(dir) = shared("tokenizers") else { return };
    let model = dir.join("llama3/tokenizer.model");
    let (_folder, llama3) = assets(json!({ "vocab_size": 128_256 }), &[("tokenizer.model", &model)]);
    let t = Tokenizer::from_bytes(llama3.tokenizer_json.as_ref().unwrap()).unwrap();
    assert_eq!(t.token_to_id("<|eot_id|>"), Some(128_009));
    assert_eq!(ids(&t, "<|begin_of_text|>a<|start_header_id|>", false), [128_000, 64, 128_006]);
    compare(&t, &dir.join("llama.cpp/vectors_only"), "llama-bpe");
}

/// A folder with these texts.
fn written(changes: Value, files: &[(&str, &str)]) -> Result<TextAssets, String> {
    let folder = Folder::new();
    write_checkpoint(&folder.0, &with(config("llama"), changes), &[]).unwrap();
    for (name, text) in files {
        folder.write(name, text);
    }
    TextAssets::load(&Checkpoint::open(&folder.0).unwrap()).map_err(|e| e.to_string())
}

fn written_ids(files: &[(&str, &str)], text: &str) -> Vec<u32> {
    let assets = written(json!({ "vocab_size": 100 }), files).unwrap();
    ids(&Tokenizer::from_bytes(assets.tokenizer_json.unwrap()).unwrap(), text, true)
}

/// The same kinds, from files made here.
#[test]
fn small_vocabularies_of_every_kind() {
    let vocab = r#"{"a": 0, "b": 1, "ab": 2, "Ġ": 3, "Ġa": 4, "<s>": 5, "</s>": 6}"#;
    let merges = "#version: 0.2\na b\nĠ a\n";
    let class = |name: &str| json!({ "tokenizer_class": name, "bos_token": "<s>", "eos_token": "</s>" }).to_string();
    let of = |name: &str, text: &str| {
        written_ids(&[("vocab.json", vocab), ("merges.txt", merges), ("tokenizer_config.json", &class(name))], text)
    };
    assert_eq!(of("GPT2Tokenizer", "ab a</s>"), [2, 4, 6]);
    assert_eq!(of("RobertaTokenizerFast", "ab a"), [5, 2, 4, 6]);
    let spaced = json!({ "tokenizer_class": "GPT2Tokenizer", "add_prefix_space": true }).to_string();
    let spaced = [("vocab.json", vocab), ("merges.txt", merges), ("tokenizer_config.json", &spaced[..])];
    assert_eq!(written_ids(&spaced, "a"), written_ids(&spaced, " a"));
    assert_eq!(written_ids(&spaced, "a"), [4]);

    let pieces = "[PAD]\n[UNK]\n[CLS]\n[SEP]\nun\n##able\nword\n";
    assert_eq!(written_ids(&[("vocab.txt", pieces)], "Unable Word x"), [2, 4, 5, 6, 1, 3]);
    let cased = json!({ "tokenizer_class": "BertTokenizer", "do_lower_case": false }).to_string();
    let cased = [("vocab.txt", pieces), ("tokenizer_config.json", &cased[..])];
    assert_eq!(written_ids(&cased, "word Word"), [2, 6, 1, 3]);

    // "a", "b", "c", "ab", "abc".
    let tiktoken = "YQ== 0\nYg== 1\nYw== 2\nYWI= 3\nYWJj 4\n";
    assert_eq!(written_ids(&[("tokenizer.model", tiktoken)], "abc"), [4]);
    assert_eq!(written_ids(&[("tokenizer.model", tiktoken)], "bab"), [1, 3]);
}

/// Two texts are put together as BERT, RoBERTa and MPNet do; the longer one is cut first.
#[test]
fn pairs_of_texts() {
    let of = |files: &[(&str, &str)], first: &str, second: &str, most: Option<usize>| {
        let assets = written(json!({ "vocab_size": 100 }), files).unwrap();
        let config = llmcc_text::Config::parse(&assets.text_config.to_string()).unwrap();
        let json = String::from_utf8(assets.tokenizer_json.unwrap()).unwrap();
        let t = llmcc_text::Tokenizer::new(&json, &config).unwrap();
        t.encode_pair(first, second, most).map_err(|e| e.message)
    };
    let bert = [("vocab.txt", "[PAD]\n[UNK]\n[CLS]\n[SEP]\na\nb\n")];
    assert_eq!(of(&bert, "a", "b b", None).unwrap(), (vec![2, 4, 3, 5, 5, 3], vec![0, 0, 0, 1, 1, 1]));
    assert_eq!(of(&bert, "", "b", None).unwrap(), (vec![2, 3, 5, 3], vec![0, 0, 1, 1]));
    let cut = |most| of(&bert, "a a", "b b b b", Some(most)).map(|(ids, _)| ids);
    assert_eq!(cut(9).unwrap(), [2, 4, 4, 3, 5, 5, 5, 5, 3]);
    assert_eq!(cut(7).unwrap(), [2, 4, 4, 3, 5, 5, 3]);
    assert_eq!(cut(6).unwrap(), [2, 4, 3, 5, 5, 3]);
    assert!(cut(3).unwrap_err().contains("no text fits into 3 tokens, since 3 of them are special"));
    let settings = |settings: Value| settings.to_string();
    let assets = written(json!({ "vocab_size": 100 }), &bert).unwrap();
    let mut broken: Value = serde_json::from_slice(&assets.tokenizer_json.unwrap()).unwrap();
    broken["post_processor"]["pair"] = json!([{ "Sequence": { "id": "A", "type_id": 0 } }]);
    let broken = llmcc_text::Tokenizer::new(&broken.to_string(), &llmcc_text::Config::default()).unwrap();
    assert!(broken.encode_pair("a", "b", None).unwrap_err().message.contains("no form for pairs"));
    let untyped = settings(json!({ "model_input_names": ["input_ids", "attention_mask"] }));
    let untyped = [bert[0], ("tokenizer_config.json", &untyped)];
    assert_eq!(of(&untyped, "a", "b", None).unwrap(), (vec![2, 4, 3, 5, 3], vec![0; 5]));
    let mpnet = settings(json!({ "tokenizer_class": "MPNetTokenizer" }));
    let mpnet = [("vocab.txt", "<s>\n<pad>\n</s>\n[UNK]\na\nb\n"), ("tokenizer_config.json", &mpnet)];
    assert_eq!(of(&mpnet, "a", "b", None).unwrap(), (vec![0, 4, 2, 2, 5, 2], vec![0, 0, 0, 0, 1, 1]));
    let roberta = settings(json!({ "tokenizer_class": "RobertaTokenizer" }));
    let vocab = r#"{"a": 0, "b": 1, "<s>": 2, "</s>": 3}"#;
    let roberta = [("vocab.json", vocab), ("merges.txt", ""), ("tokenizer_config.json", &roberta[..])];
    assert_eq!(of(&roberta, "a", "b", None).unwrap(), (vec![2, 0, 3, 3, 1, 3], vec![0; 6]));
}

/// A text alone has types of tokens where its special tokens have others than 0, as XLNet's last one.
#[test]
fn special_tokens_of_a_text_alone_have_types() {
    let bert = [("vocab.txt", "[PAD]\n[UNK]\n[CLS]\n[SEP]\na\nb\n")];
    let assets = written(json!({ "vocab_size": 100 }), &bert).unwrap();
    assert_eq!(assets.text_config["types"], Value::Null);
    let json: Value = serde_json::from_slice(&assets.tokenizer_json.unwrap()).unwrap();
    let special = |id: &str, of: u32| json!({ "SpecialToken": { "id": id, "type_id": of } });
    let types = |parts: Value, settings: Value| {
        let mut json = json.clone();
        json["post_processor"]["single"] = parts;
        let (json, settings) = (json.to_string(), settings.to_string());
        let files = [("tokenizer.json", json.as_str()), ("tokenizer_config.json", &settings)];
        written(json!({ "vocab_size": 100 }), &files).unwrap().text_config["types"].clone()
    };
    let text = json!({ "Sequence": { "id": "A", "type_id": 0 } });
    let xlnet = json!([text, special("[SEP]", 0), special("[CLS]", 2)]);
    let expected = json!({ "before": [], "text": 0, "after": [[3, 0], [2, 2]] });
    assert_eq!(types(xlnet.clone(), json!({})), expected);
    assert_eq!(types(xlnet, json!({ "model_input_names": ["input_ids", "attention_mask"] })), Value::Null);
    let first = json!([special("[CLS]", 2), text, special("[SEP]", 0)]);
    assert_eq!(types(first, json!({})), json!({ "before": [[2, 2]], "text": 0, "after": [[3, 0]] }));
}

/// Unreadable files are refused with messages.
#[test]
fn broken_vocabularies_are_refused() {
    let vocab = r#"{"a": 0, "b": 1}"#;
    let error = |files: &[(&str, &str)]| written(json!({ "vocab_size": 100 }), files).unwrap_err();
    assert!(error(&[("vocab.json", vocab)]).contains("no merges.txt beside it"));
    assert!(error(&[("vocab.json", "[]"), ("merges.txt", "")]).contains("no vocabulary"));
    assert!(error(&[("vocab.json", vocab), ("merges.txt", "a b\n")]).contains("\"ab\" is not in the vocabulary"));
    assert!(error(&[("vocab.json", vocab), ("merges.txt", "ab\n")]).contains("line 1 of merges.txt"));
    let other = r#"{ "tokenizer_class": "OtherTokenizer" }"#;
    let message = error(&[("vocab.json", vocab), ("merges.txt", ""), ("tokenizer_config.json", other)]);
    assert!(message.contains("OtherTokenizer") && message.contains("Qwen2Tokenizer"), "{message}");
    assert!(error(&[("vocab.txt", "a\nb\n")]).contains("[CLS]"));
    assert!(error(&[("vocab.txt", "a\na\n[CLS]\n[SEP]\n[UNK]\n")]).contains("twice"));
    assert!(error(&[("tokenizer.model", "YQ== 0\nYQ== 1\n")]).contains("twice"));
    assert!(error(&[("tokenizer.model", "YQ== 0\nYg=== 1\n")]).contains("neither a SentencePiece model nor"));
}

/// Every way to cut texts is one that tokenizers may have, and cuts without loss.
#[test]
fn all_cuts_are_usable() {
    for cut in cuts::CUTS {
        let bytes: Map<String, Value> =
            (0..=255u8).map(|b| (llmcc_text::alphabet::character(b).to_string(), json!(b))).collect();
        let parts = byte_level::ByteLevel {
            vocab: bytes,
            merges: vec![],
            added: vec![],
            cut,
            prefix_space: false,
            around: None,
        };
        let json = parts.json().to_string();
        check::tokenizer(json.as_bytes()).unwrap_or_else(|e| panic!("{:?}: {e}", cut.names));
        let t = check::trial(json.as_bytes()).unwrap_or_else(|e| panic!("{:?}: {e}", cut.names));
        let text = "It's 12345 o'clock,\r\n\n  naïve 你好 ÀB_c!! ";
        let all = ids(&t, text, false);
        if !cut.composed {
            assert_eq!(all, text.bytes().map(u32::from).collect::<Vec<_>>(), "{:?}", cut.names);
        }
        assert_eq!(t.decode(&all, false).unwrap(), text, "{:?}", cut.names);
    }
}

/// The pieces of a text, as they are cut.
fn pieces(cut: &cuts::Cut, text: &str) -> Vec<String> {
    let vocab = (0..=255u8).map(|b| (llmcc_text::alphabet::character(b).to_string(), json!(b))).collect();
    let parts = byte_level::ByteLevel { vocab, merges: vec![], added: vec![], cut, prefix_space: false, around: None };
    let t = check::trial(parts.json().to_string().as_bytes()).unwrap();
    let mut cut = tokenizers::PreTokenizedString::from(text);
    tokenizers::PreTokenizer::pre_tokenize(t.get_pre_tokenizer().unwrap(), &mut cut).unwrap();
    let splits = cut.get_splits(tokenizers::OffsetReferential::Original, tokenizers::OffsetType::Byte);
    splits.into_iter().map(|(_, (from, to), _)| text[from..to].to_string()).collect()
}

/// Spaces by powers of two, digits by threes from the last, scripts without spaces by themselves.
#[test]
fn cuts_of_other_models() {
    let of = |name: &str, text: &str| pieces(cuts::named(name).unwrap(), text);
    let spaces = |n: usize| " ".repeat(n);
    assert_eq!(of("jais-2", &format!("a{}b", spaces(13))), ["a", &spaces(8), &spaces(4), " b"]);
    assert_eq!(of("afmoe", "x1234567 你好a"), ["x", "1", "234", "567", " ", "你好", "a"]);
    assert_eq!(of("ufakzeka", "Ankara'dan 12"), ["Ankara", "'dan", " ", "1", "2"]);
    assert_eq!(of("laguna", "a \n b"), ["a", " ", "\n", " b"]);
    assert_eq!(of("spark2_5", "ab\n\n12"), ["ab", "\n", "\n", "1", "2"]);
}

/// Gemma 4's pairs are merged over whole texts; the rest is bytes.
#[test]
fn whole_texts_of_gguf_files() {
    let mut tokens: Vec<String> =
        ["<unk>", "<bos>", "a", "b", "\u{2581}", "ab", "\u{2581}ab", "ab\u{2581}ab", "\n", "\n\n"]
            .map(String::from)
            .into();
    tokens.extend((0..=255u8).map(|b| format!("<0x{b:02X}>")));
    let types = tokens.iter().enumerate().map(|(i, t)| match (i, t.starts_with("<0x")) {
        (0, _) => 2,
        (1, _) => 3,
        (_, true) => 6,
        _ => 1,
    });
    let list = |of: Vec<gguf_file::Value>| gguf_file::Value::List(of);
    let text = |t: &str| gguf_file::Value::Text(t.to_string());
    let merges = ["a b", "\u{2581} ab", "ab \u{2581}ab", "\n \n"];
    let metadata: gguf_file::Metadata = [
        ("model", text("gemma4")),
        ("tokens", list(tokens.iter().map(|t| text(t)).collect())),
        ("token_type", list(types.map(gguf_file::Value::Unsigned).collect())),
        ("merges", list(merges.map(text).into())),
        ("unknown_token_id", gguf_file::Value::Unsigned(0)),
    ]
    .map(|(name, v)| (format!("tokenizer.ggml.{name}"), v))
    .into();
    let json = gguf::tokenizer_json(&metadata).unwrap().unwrap().to_string();
    check::tokenizer(json.as_bytes()).unwrap();
    let t = check::trial(json.as_bytes()).unwrap();
    let sample = "ab ab\n\nab <bos>é";
    let wanted = [7, 9, 5, 4, 1, 10 + 0xc3, 10 + 0xa9];
    assert_eq!(ids(&t, sample, false), wanted);
    assert_eq!(t.decode(&wanted, false).unwrap(), sample);
}

/// Cuts of Python's `tokenizers` by the patterns in the models' own files.
#[test]
fn cuts_are_those_of_the_models() {
    let text = "It's 1234567 o'clock, a\u{301}b c,\n  你好 ÀB! <sentinel:12>IMGIMGABZ  x";
    let expected: [(&str, &[&str]); 5] = [
        (
            "superbpe",
            &["It's ", "1", "234", "567", " o'clock, a\u{301}b c,\n  你好 ÀB! <sentinel:", "12", ">IMGIMGABZ  x"],
        ),
        (
            "chameleon",
            &[
                "It",
                "'",
                "s",
                " ",
                "1",
                "2",
                "3",
                "4",
                "5",
                "6",
                "7",
                " o",
                "'",
                "clock",
                ",",
                " a",
                "\u{301}",
                "b",
                " c",
                ",",
                "\n",
                "  ",
                "你好",
                " ÀB",
                "!",
                " ",
                "<",
                "sentinel",
                ":",
                "1",
                "2",
                ">",
                "IMGIMGABZ",
                "  ",
                "x",
            ],
        ),
        (
            "exaone-moe",
            &[
                "It",
                "'s",
                " ",
                "1",
                "2",
                "3",
                "4",
                "5",
                "6",
                "7",
                " o",
                "'clock",
                ",",
                " a\u{301}b c",
                ",\n",
                " ",
                " 你好 ÀB",
                "!",
                " <",
                "sentinel",
                ":",
                "1",
                "2",
                ">IMGIMGABZ",
                " ",
                " x",
            ],
        ),
        (
            "kimi-k2",
            &[
                "It's",
                " ",
                "123",
                "456",
                "7",
                " o",
                "'clock",
                ",",
                " a\u{301}b",
                " c",
                ",\n",
                " ",
                " ",
                "你好",
                " ÀB",
                "!",
                " <",
                "sentinel",
                ":",
                "12",
                ">IMGIMGABZ",
                " ",
                " x",
            ],
        ),
        (
            "deepseek-llm",
            &[
                "It",
                "'",
                "s",
                " ",
                "1234567",
                " o",
                "'",
                "clock",
                ",",
                " a",
                "\u{301}",
                "b",
                " c",
                ",",
                "\n",
                "  ",
                "你好",
                " À",
                "B",
                "!",
                " <",
                "sentinel",
                ":",
                "12",
                ">",
                "IMGIMGABZ",
                " ",
                " x",
            ],
        ),
    ];
    for (name, expected) in expected {
        assert_eq!(pieces(cuts::named(name).unwrap(), text), expected, "{name}");
    }
}

/// Texts of embedders get the prompt, are cut at the limit, and are in lower case, as their files
/// say.
#[test]
fn texts_of_embedders() {
    let vocab = ("vocab.txt", "[PAD]\n[UNK]\n[CLS]\n[SEP]\na\nb\nq\nA\n");
    let cased = ("tokenizer_config.json", r#"{"tokenizer_class": "BertTokenizer", "do_lower_case": false}"#);
    let of = |settings: Value, transformer: Value, text: &str, special: bool| {
        let (settings, transformer) = (settings.to_string(), transformer.to_string());
        let beside =
            [("config_sentence_transformers.json", &settings[..]), ("sentence_bert_config.json", &transformer)];
        let files = [&[vocab, cased, ("modules.json", "[]")], &beside[..]].concat();
        let assets = written(json!({ "vocab_size": 100, "max_position_embeddings": 32 }), &files)?;
        let config = llmcc_text::Config::parse(&assets.text_config.to_string()).unwrap();
        let json = String::from_utf8(assets.tokenizer_json.unwrap()).unwrap();
        Ok::<_, String>(llmcc_text::Tokenizer::new(&json, &config).unwrap().encode(text, special).unwrap())
    };
    assert_eq!(of(json!({}), json!({}), "a A b", true).unwrap(), [2, 4, 7, 5, 3]);
    let prompts = json!({ "prompts": { "p": "q " }, "default_prompt_name": "p" });
    assert_eq!(of(prompts.clone(), json!({}), "a", true).unwrap(), [2, 6, 4, 3]);
    assert_eq!(of(prompts, json!({}), "a", false).unwrap(), [4]);
    assert_eq!(of(json!({ "prompts": { "p": "q " } }), json!({}), "a", true).unwrap(), [2, 4, 3]);
    assert_eq!(of(json!({}), json!({ "max_seq_length": 4 }), "a b a b", true).unwrap(), [2, 4, 5, 3]);
    assert_eq!(of(json!({}), json!({ "max_seq_length": 4 }), "a b a b", false).unwrap().len(), 4);
    assert_eq!(of(json!({}), json!({}), &"a ".repeat(40), true).unwrap().len(), 32, "as long as the model's context");
    assert_eq!(of(json!({}), json!({ "do_lower_case": true }), "A a", true).unwrap(), [2, 4, 4, 3]);
    let error = of(json!({ "default_prompt_name": "p" }), json!({}), "a", true).unwrap_err();
    assert!(error.contains("`default_prompt_name` is \"p\", which is not in `prompts`"), "{error}");
    assert!(of(json!({}), json!({ "max_seq_length": "9" }), "a", true).is_err());
    let error = of(json!({ "similarity_fn_name": "angle" }), json!({}), "a", true).unwrap_err();
    assert!(error.contains("`similarity_fn_name` is \"angle\"; known are `cosine`, `dot`"), "{error}");
    // Named prompts are for the caller to put before a text, in place of the default one.
    let mut named = json!({ "prompts": { "p": "q ", "other": "b " }, "default_prompt_name": "p" });
    named["similarity_fn_name"] = "manhattan".into();
    let named = named.to_string();
    let whole = [vocab, cased, ("modules.json", "[]"), ("config_sentence_transformers.json", &named)];
    let assets = written(json!({ "vocab_size": 100 }), &whole).unwrap();
    assert_eq!(
        assets.prompts.iter().collect::<Vec<_>>(),
        [(&"other".into(), &"b ".into()), (&"p".into(), &"q ".into())]
    );
    assert_eq!((assets.default_prompt.as_deref(), assets.similarity.as_deref()), (Some("p"), Some("manhattan")));
    let config = llmcc_text::Config::parse(&assets.text_config.to_string()).unwrap();
    let tokenizer = String::from_utf8(assets.tokenizer_json.unwrap()).unwrap();
    let tokenizer = llmcc_text::Tokenizer::new(&tokenizer, &config).unwrap();
    assert_eq!(tokenizer.encode_whole("b a", true).unwrap(), [2, 5, 4, 3]);
    let wrong = json!({ "prompts": { "p": 3 } }).to_string();
    let wrong = [vocab, cased, ("modules.json", "[]"), ("config_sentence_transformers.json", &wrong)];
    assert!(written(json!({ "vocab_size": 100 }), &wrong).unwrap_err().contains("the prompt `p` is 3"));
}

/// GGUF's vocabularies of words between spaces: characters are merged as they are, and spaces are gone.
#[test]
fn words_between_spaces_are_merged() {
    use crate::checkpoint::gguf::{Metadata, Value};
    let texts = |list: &[&str]| Value::List(list.iter().map(|s| Value::Text((*s).into())).collect());
    let said = |kind: &str, lower: bool| -> Metadata {
        [
            ("model", Value::Text(kind.into())),
            ("pre", Value::Text("whitespace".into())),
            ("tokens", texts(&["<unk>", "\u{4f60}", "\u{597d}", "\u{4f60}\u{597d}", "h", "i", "hi", "H"])),
            ("merges", texts(&["\u{4f60} \u{597d}", "h i"])),
            ("unknown_token_id", Value::Unsigned(0)),
            ("normalizer.lowercase", Value::Bool(lower)),
        ]
        .into_iter()
        .map(|(name, value)| (format!("tokenizer.ggml.{name}"), value))
        .collect()
    };
    for kind in ["whitespace", "gpt2"] {
        for (lower, first) in [(true, vec![6]), (false, vec![7, 5])] {
            let json = gguf::tokenizer_json(&said(kind, lower)).unwrap().unwrap().to_string();
            let tokenizer: Tokenizer = json.parse().unwrap();
            let ids = tokenizer.encode("Hi \t\u{4f60}\u{597d}\n\u{597d}\u{4f60}x", false).unwrap();
            let wanted: Vec<u32> = [first, vec![3, 2, 1, 0]].concat();
            assert_eq!(ids.get_ids(), wanted, "{kind} {lower}");
        }
    }
}
