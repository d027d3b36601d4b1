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

fn assets(case: &Value, files: &Value) -> Result<(TextAssets, llmcc_text::Tokenizer), String> {
    let folder = Folder::new();
    let model = case["model"].as_str().unwrap_or("llama");
    let rows = case["rows"].as_u64().unwrap_or(ROWS);
    write_checkpoint(&folder.0, &with(config(model), json!({ "vocab_size": rows })), &[]).unwrap();
    for (name, content) in case["files"].as_object().unwrap() {
        let bytes = match content {
            Value::Number(at) => llmcc_text::base64::decode(files[at.as_u64().unwrap() as usize].as_str().unwrap()).unwrap(),
            // A text, whose keys are in their order.
            Value::String(text) => text.clone().into_bytes(),
            other => other.to_string().into_bytes(),
        };
        folder.write(name, bytes);
    }
    let text = TextAssets::load(&Checkpoint::open(&folder.0).unwrap()).map_err(|e| e.to_string())?;
    let config = llmcc_text::Config::parse(&text.text_config.to_string()).unwrap();
    let Some(json) = text.tokenizer_json.clone() else { return Err(format!("no tokenizer: {:?}", text.warnings)) };
    let tokenizer = llmcc_text::Tokenizer::new(&String::from_utf8(json).unwrap(), &config).unwrap();
    Ok((text, tokenizer))
}

/// What is wrong with each case of a file.
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
    assert!(n > 20 && wrong.is_empty(), "{} of {n}:\n{}", wrong.len(), wrong.join("\n"));
}
