//! Folders of tokenizers of every kind, and the ids that AutoTokenizer of Transformers gives for them
//! (`tests/goldens/tokenizer_folders.py`).

use crate::checkpoint::Checkpoint;
use crate::fixtures::write_checkpoint;
use crate::testing::{Folder, config, golden, with};
use crate::tokenizer::TextAssets;
use serde_json::{Value, json};
use std::path::Path;

/// Tokens of a model that has rows for all.
const ROWS: u64 = 2000;

/// A file: its text, or its bytes in base64.
fn stored(file: &Value) -> Vec<u8> {
    match file["base64"].as_str() {
        Some(bytes) => llmcc_text::base64::decode(bytes).unwrap(),
        None => file.as_str().unwrap().as_bytes().to_vec(),
    }
}

fn assets(case: &Value, files: &Value) -> Result<(TextAssets, llmcc_text::Tokenizer), String> {
    let folder = Folder::new();
    let model = case["model"].as_str().unwrap_or("llama");
    let rows = case["rows"].as_u64().unwrap_or(ROWS);
    write_checkpoint(&folder.0, &with(config(model), json!({ "vocab_size": rows })), &[]).unwrap();
    for (name, content) in case["files"].as_object().unwrap() {
        let bytes = match content {
            Value::Number(at) => stored(&files[at.as_u64().unwrap() as usize]),
            // A text, whose keys are in their order.
            Value::String(text) => text.clone().into_bytes(),
            other => other.to_string().into_bytes(),
        };
        folder.write(name, bytes);
    }
    // (Trials of long texts would take most of the time.)
    let trial = |json: &[u8]| tokenizers::Tokenizer::from_bytes(json).map_err(|e| e.to_string());
    let text = TextAssets::load_with(&Checkpoint::open(&folder.0).unwrap(), trial).map_err(|e| e.to_string())?;
    let config = llmcc_text::Config::parse(&text.text_config.to_string()).unwrap();
    let Some(json) = text.tokenizer_json.clone() else { return Err(format!("no tokenizer: {:?}", text.warnings)) };
    let tokenizer = llmcc_text::Tokenizer::new(&String::from_utf8(json).unwrap(), &config).unwrap();
    Ok((text, tokenizer))
}

/// The errors of each case of a file.
fn wrong(path: &Path) -> (usize, Vec<String>) {
    let all: Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    let cases = all["cases"].as_array().unwrap();
    let mut wrong = vec![];
    for (i, case) in cases.iter().enumerate() {
        let name = &case["name"];
        let (text, tokenizer) = match assets(case, &all["files"]) {
            Ok(made) => made,
            Err(error) => {
                wrong.push(format!("{i} {name}: {error}"));
                continue;
            }
        };
        for vector in case["texts"].as_array().unwrap() {
            let [input, special, want] = [0, 1, 2].map(|k| &vector[k]);
            let got = tokenizer.encode(input.as_str().unwrap(), special == true);
            if got.as_ref().map(|ids| json!(ids)) != Ok(want.clone()) {
                wrong.push(format!("{i} {name}: {input} ({special}): {got:?}, not {want}; {:?}", text.warnings));
                break;
            }
        }
        let eos = &case["eos"];
        if !eos.is_null() && !text.text_config["eos_token_ids"].as_array().unwrap().contains(eos) {
            wrong.push(format!("{i} {name}: ends at {}, not {eos}", text.text_config["eos_token_ids"]));
        }
    }
    (cases.len(), wrong)
}

#[test]
fn folders_as_transformers_reads_them() {
    let other = std::env::var_os("LLMCC_TOKENIZER_FOLDERS");
    let path = other.map_or_else(|| golden("tokenizer_folders.json"), Into::into);
    let (n, wrong) = wrong(&path);
    assert!(n > 15 && wrong.is_empty(), "{} of {n}:\n{}", wrong.len(), wrong.join("\n"));
}

/// BPE of three letters with `<s>`; ids up to 3.
const SMALL: &str = r#"{"version": "1.0", "truncation": null, "padding": null, "added_tokens": [{"id": 3, "content": "<s>",
    "single_word": false, "lstrip": false, "rstrip": false, "normalized": false, "special": true}], "normalizer": null,
    "pre_tokenizer": null, "post_processor": null, "decoder": null, "model": {"type": "BPE", "dropout": null,
    "unk_token": null, "continuing_subword_prefix": null, "end_of_word_suffix": null, "fuse_unk": false,
    "byte_fallback": false, "ignore_merges": false, "vocab": {"a": 0, "b": 1, "ab": 2}, "merges": [["a", "b"]]}}"#;

fn small(rows: u64, files: Value) -> Result<(TextAssets, llmcc_text::Tokenizer), String> {
    let mut all = json!({ "tokenizer.json": SMALL });
    all.as_object_mut().unwrap().extend(files.as_object().unwrap().clone());
    assets(&json!({ "files": all, "rows": rows }), &Value::Null)
}

#[test]
fn tokens_beyond_the_model_are_left_out_and_said() {
    let files = json!({ "tokenizer_config.json": { "eos_token": "<e>" }, "added_tokens.json": { "<e>": 4, "<f>": 5 } });
    let (text, t) = small(5, files.clone()).unwrap();
    assert_eq!(t.encode("ab<e>", false).unwrap(), [2, 4]);
    assert_eq!(text.text_config["eos_token_ids"], json!([2, 4]), "and that of config.json");
    let [warning] = &text.warnings[..] else { panic!("{:?}", text.warnings) };
    assert!(warning.contains("\"<f>\" (id 5)") && warning.contains("has 5 tokens"), "{warning}");
    assert_eq!(small(6, files).unwrap().0.warnings, [] as [&str; 0]);
    // A class has tokens that no file names: nothing is said of them.
    let (text, _) = small(4, json!({ "tokenizer_config.json": { "tokenizer_class": "GPT2Tokenizer" } })).unwrap();
    assert_eq!(text.warnings, [] as [&str; 0]);
}

#[test]
fn contradictions_are_as_in_transformers_and_said() {
    let flags = |text: &str| json!({ "content": text, "special": true });
    // The same text twice, an id of another token, a gap.
    let decoder = json!({ "4": flags("<e>"), "5": flags("<e>"), "0": flags("<f>"), "9": flags("<g>") });
    let (text, t) = small(20, json!({ "tokenizer_config.json": { "added_tokens_decoder": decoder } })).unwrap();
    assert_eq!(t.encode("a<e><f><g>b", false).unwrap(), [0, 5, 4, 6, 1]);
    let [warning] = &text.warnings[..] else { panic!("{:?}", text.warnings) };
    assert!(warning.contains("\"<f>\" (4, not 0)") && warning.contains("\"<g>\" (6, not 9)"), "{warning}");
}

#[test]
fn what_is_no_token_is_refused_with_its_file() {
    let error = |file: &str, content: Value| {
        let error = small(20, json!({ file: content })).map(|_| ()).unwrap_err();
        assert!(error.contains(file), "{error}");
        error
    };
    let config = |content: Value| error("tokenizer_config.json", content);
    assert!(config(json!({ "eos_token": 3 })).contains("`eos_token` is 3, which is not a token"));
    assert!(config(json!({ "added_tokens_decoder": { "x": { "content": "y" } } })).contains("\"x\" for the id"));
    assert!(config(json!({ "added_tokens_decoder": { "4": "y" } })).contains("no token 4"));
    assert!(config(json!({ "added_tokens_decoder": [] })).contains("not an object of tokens by id"));
    assert!(config(json!({ "extra_special_tokens": "y" })).contains("not a list of tokens"));
    assert!(config(json!({ "eos_token": { "content": "y", "lstrip": 1 } })).contains("`lstrip` of the token \"y\""));
    assert!(error("special_tokens_map.json", json!({ "pad_token": [] })).contains("which is not a token"));
    assert!(error("added_tokens.json", json!({ "<e>": -1 })).contains("no id of the token \"<e>\""));
}

/// A tokenizer in a file that is not read is not left out in silence.
#[test]
fn files_that_are_not_read_are_said() {
    let load = |name: &str, content: &str, class: &str| {
        let files = json!({ name: content, "tokenizer_config.json": { "tokenizer_class": class } });
        assets(&json!({ "files": files }), &Value::Null).map(|_| ()).unwrap_err()
    };
    for name in ["source.spm", "qwen.tiktoken", "bpe.codes", "m.model", "merges.txt", "vocab.bpe", "my_vocab.json"] {
        let error = load(name, "x", "X");
        assert!(error.starts_with("no tokenizer:") && error.contains(name) && error.contains("token ids"), "{error}");
    }
    for name in ["sentencepiece.bpe.model", "spiece.model", "spm.model", "tiktoken.model", "tekken.json"] {
        let error = load(name, "x", "X");
        assert!(error.contains(name) && error.contains("or move the file away"), "{error}");
    }
    let error = load("sentencepiece.bpe.model", "", "MBartTokenizer");
    assert!(error.contains("MBartTokenizer") || error.contains("neither"), "{error}");
}

/// Texts with characters that would be lost are refused, and compiling a model warns of them.
#[test]
fn vocabularies_without_all_bytes() {
    let tiktoken = "YQ== 0\nYg== 1\nYw== 2\nYWI= 3\n";
    let bytes = json!({ "a": 0, "b": 1, "ab": 2 });
    for files in [
        json!({ "tokenizer.model": tiktoken }),
        json!({ "vocab.json": bytes, "merges.txt": "a b\n" }),
        json!({ "vocab.json": bytes, "merges.txt": "a b\n", "tokenizer_config.json": { "tokenizer_class": "Qwen2Tokenizer" } }),
    ] {
        let (text, t) = assets(&json!({ "files": files }), &Value::Null).unwrap();
        assert!(
            text.warnings[0].contains("lacks 24") && text.warnings[0].contains("are refused"),
            "{:?}",
            text.warnings
        );
        assert_eq!(t.encode("abb", true).unwrap().len(), 2);
        let error = t.encode("ab é\n", true).unwrap_err().message;
        assert!(error.contains("no token for: ' ', 'é', '\\n'"), "{error}");
    }
}
