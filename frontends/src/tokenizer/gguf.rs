//! The vocabulary of a GGUF file as a `tokenizer.json`, and what its metadata says beside it as
//! Transformers' settings.

use super::sentencepiece;
use crate::checkpoint::gguf::{Metadata, Value};
use serde_json::{Map, json};

/// How texts are cut before they are merged, by the name in `tokenizer.ggml.pre`. The patterns are
/// those of the models' own tokenizers.
const PRE_TOKENIZERS: &[(&[&str], Cut)] = &[
    (
        &["llama-bpe", "llama3", "llama-v3"],
        Cut {
            pattern: Some(
                r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
            ),
            composed: false,
            whole_words: true,
        },
    ),
    (
        &["qwen2"],
        Cut {
            pattern: Some(
                r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
            ),
            composed: true,
            whole_words: false,
        },
    ),
    (&["gpt-2"], Cut { pattern: None, composed: false, whole_words: false }),
];

/// What comes before merging.
struct Cut {
    /// `None`: GPT-2's.
    pattern: Option<&'static str>,
    /// Characters are composed (NFC).
    composed: bool,
    /// Words that are tokens are taken whole.
    whole_words: bool,
}

/// The `tokenizer.json` of a vocabulary; `None` if the file has none.
///
/// # Errors
/// Says what is malformed or not supported.
pub(super) fn tokenizer_json(metadata: &Metadata) -> Result<Option<serde_json::Value>, String> {
    let Some(kind) = text(metadata, "model").filter(|kind| *kind != "none") else { return Ok(None) };
    let tokens: Vec<&str> = list(metadata, "tokens")?.iter().filter_map(Value::text).collect();
    if tokens.is_empty() {
        return Err("`tokenizer.ggml.tokens` is missing or no list of texts".into());
    }
    let types = types(metadata, tokens.len())?;
    match kind {
        "llama" => {
            let scores = list(metadata, "scores")?;
            let score = |i: usize| scores.get(i).and_then(Value::number).filter(|x| x.is_finite()).unwrap_or(0.0);
            let pieces = tokens.iter().zip(types).enumerate();
            let pieces = pieces.map(|(i, (text, kind))| ((*text).to_string(), score(i) as f32, kind)).collect();
            let flag = |name: &str| metadata.get(&key(name)).and_then(Value::flag);
            let prefix = flag("add_space_prefix").unwrap_or(true);
            let collapse = flag("remove_extra_whitespaces").unwrap_or(false);
            sentencepiece::from_pieces(pieces, prefix, collapse).map(Some)
        }
        "gpt2" => byte_level(metadata, &tokens, &types).map(Some),
        other => Err(format!("`tokenizer.ggml.model` is `{other}`; `llama` and `gpt2` are supported")),
    }
}

fn key(name: &str) -> String {
    format!("tokenizer.ggml.{name}")
}

fn text<'a>(metadata: &'a Metadata, name: &str) -> Option<&'a str> {
    metadata.get(&key(name)).and_then(Value::text)
}

/// A list that may be missing.
fn list<'a>(metadata: &'a Metadata, name: &str) -> Result<&'a [Value], String> {
    match metadata.get(&key(name)) {
        None => Ok(&[]),
        Some(v) => v.list().ok_or_else(|| format!("`{}` is no list", key(name))),
    }
}

/// The type of each token: those of SentencePiece.
fn types(metadata: &Metadata, tokens: usize) -> Result<Vec<u64>, String> {
    let given = list(metadata, "token_type")?;
    if given.is_empty() {
        return Ok(vec![NORMAL; tokens]);
    }
    let types: Vec<u64> = given.iter().filter_map(Value::unsigned).collect();
    match types.len() == tokens {
        true => Ok(types),
        false => Err(format!("`{}` has {} numbers for {tokens} tokens", key("token_type"), types.len())),
    }
}

const NORMAL: u64 = 1;
const CONTROL: u64 = 3;
const USER_DEFINED: u64 = 4;

/// BPE over bytes.
fn byte_level(metadata: &Metadata, tokens: &[&str], types: &[u64]) -> Result<serde_json::Value, String> {
    let pre = text(metadata, "pre").unwrap_or("gpt-2");
    let cut = PRE_TOKENIZERS.iter().find(|(names, _)| names.contains(&pre)).map(|(_, cut)| cut);
    let cut = cut.ok_or_else(|| {
        let known: Vec<_> = PRE_TOKENIZERS.iter().flat_map(|(names, _)| *names).copied().collect();
        format!("`tokenizer.ggml.pre` is `{pre}`; supported are {}", known.join(", "))
    })?;
    let merge = |v: &Value| {
        let (left, right) = v.text()?.split_once(' ')?;
        Some(json!([left, right]))
    };
    let merges = list(metadata, "merges")?;
    let pairs: Option<Vec<_>> = merges.iter().map(merge).collect();
    let pairs = pairs.ok_or_else(|| format!("`{}` has an element that is no pair of texts", key("merges")))?;
    let added: Vec<_> = tokens
        .iter()
        .zip(types)
        .enumerate()
        .filter(|(_, (_, kind))| matches!(**kind, CONTROL | USER_DEFINED))
        .map(|(id, (text, kind))| {
            json!({
                "id": id, "content": text, "single_word": false, "lstrip": false, "rstrip": false,
                "normalized": false, "special": *kind == CONTROL,
            })
        })
        .collect();
    let vocab: Map<_, _> = tokens.iter().enumerate().map(|(id, text)| ((*text).to_string(), json!(id))).collect();
    if vocab.len() != tokens.len() {
        return Err(format!("`{}` has a token twice", key("tokens")));
    }
    let bytes = |regex: bool| json!({ "type": "ByteLevel", "add_prefix_space": false, "trim_offsets": false, "use_regex": regex });
    let pre_tokenizer = match cut.pattern {
        None => bytes(true),
        Some(pattern) => json!({ "type": "Sequence", "pretokenizers": [
            { "type": "Split", "pattern": { "Regex": pattern }, "behavior": "Isolated", "invert": false },
            bytes(false),
        ] }),
    };
    Ok(json!({
        "version": "1.0",
        "truncation": null,
        "padding": null,
        "added_tokens": added,
        "normalizer": if cut.composed { json!({ "type": "NFC" }) } else { json!(null) },
        "pre_tokenizer": pre_tokenizer,
        "post_processor": null,
        "decoder": bytes(true),
        "model": {
            "type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": null,
            "end_of_word_suffix": null, "fuse_unk": false, "byte_fallback": false,
            "ignore_merges": cut.whole_words, "vocab": vocab, "merges": pairs,
        },
    }))
}

/// What `tokenizer_config.json` would say.
pub(super) fn settings(metadata: &Metadata) -> serde_json::Value {
    let tokens = list(metadata, "tokens").unwrap_or_default();
    let mut out = Map::new();
    for (id, name) in [("bos", "bos_token"), ("eos", "eos_token"), ("unknown", "unk_token"), ("padding", "pad_token")] {
        let id = metadata.get(&key(&format!("{id}_token_id"))).and_then(Value::unsigned);
        if let Some(token) = id.and_then(|id| tokens.get(usize::try_from(id).ok()?)).and_then(Value::text) {
            out.insert(name.into(), token.into());
        }
    }
    // As llama.cpp: SentencePiece vocabularies begin with BOS unless the file says no.
    let spm = text(metadata, "model") == Some("llama");
    for (name, default) in [("add_bos_token", spm), ("add_eos_token", false)] {
        out.insert(name.into(), metadata.get(&key(name)).and_then(Value::flag).unwrap_or(default).into());
    }
    if let Some(template) = metadata.get("tokenizer.chat_template").and_then(Value::text) {
        out.insert("chat_template".into(), template.into());
    }
    out.into()
}

/// Ids that end a text beside EOS.
pub(super) fn ends(metadata: &Metadata) -> serde_json::Value {
    let id = |name: &str| metadata.get(&key(&format!("{name}_token_id"))).and_then(Value::unsigned);
    let ids: Vec<u64> = ["eos", "eot", "eom"].into_iter().filter_map(id).collect();
    json!({ "eos_token_id": ids })
}
