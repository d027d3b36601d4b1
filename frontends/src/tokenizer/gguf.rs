//! The vocabulary of a GGUF file as a `tokenizer.json`, and what its metadata says beside it as
//! Transformers' settings.

use super::byte_level::{ByteLevel, added_token};
use super::cuts::{CUTS, WHOLE_TEXTS, named};
use super::sentencepiece::{self, Spaces};
use super::word_piece::WordPiece;
use super::world;
use crate::checkpoint::gguf::{Metadata, Value};
use serde_json::{Map, json};

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
        "llama" | "t5" => pieces(metadata, &tokens, types, kind == "t5").map(Some),
        "gemma4" => whole_texts(metadata, &tokens, &types).map(Some),
        "gpt2" if text(metadata, "pre").is_some_and(|pre| WHOLE_TEXTS.contains(&pre)) => {
            whole_texts(metadata, &tokens, &types).map(Some)
        }
        "whitespace" => words(metadata, &tokens, &types).map(Some),
        "gpt2" if text(metadata, "pre") == Some(WORDS) => words(metadata, &tokens, &types).map(Some),
        "gpt2" => byte_level(metadata, &tokens, &types).map(Some),
        "bert" => word_piece(metadata, &tokens, &types).map(Some),
        "rwkv" => longest(&tokens, &types).map(Some),
        other => {
            let known = "`llama`, `gpt2`, `bert`, `t5`, `rwkv`, `whitespace` and `gemma4` are supported";
            Err(format!("`tokenizer.ggml.model` is `{other}`; {known}"))
        }
    }
}

/// SentencePiece's: BPE, or Unigram.
fn pieces(metadata: &Metadata, tokens: &[&str], types: Vec<u64>, unigram: bool) -> Result<serde_json::Value, String> {
    let scores = list(metadata, "scores")?;
    let score = |i: usize| scores.get(i).and_then(Value::number).filter(|x| x.is_finite()).unwrap_or(0.0);
    let pieces = tokens.iter().zip(types).enumerate();
    let pieces = pieces.map(|(i, (text, kind))| ((*text).to_string(), score(i) as f32, kind)).collect();
    let flag = |name: &str| metadata.get(&key(name)).and_then(Value::flag);
    let spaces = Spaces {
        prefix: flag("add_space_prefix").unwrap_or(true),
        collapse: flag("remove_extra_whitespaces").unwrap_or(false),
    };
    let charsmap = match unigram {
        true => {
            let bytes = list(metadata, "precompiled_charsmap")?.iter();
            // Stored as signed bytes by some.
            Some(bytes.filter_map(|b| b.number()).map(|b| b as i64 as u8).collect())
        }
        false => None,
    };
    sentencepiece::from_pieces(pieces, &spaces, charsmap)
}

/// RWKV's, whose tokens are written as literals of Python's. Those that no text has fill the table up.
fn longest(tokens: &[&str], types: &[u64]) -> Result<serde_json::Value, String> {
    let numbered = tokens.iter().zip(types).enumerate().filter(|(id, (_, kind))| *id > 0 && **kind == NORMAL);
    let token = |(id, (text, _)): (usize, (&&str, &u64))| {
        let bytes = world::unescaped(text, true);
        Ok((id as u32, bytes.ok_or_else(|| format!("token {id} is no literal of Python's: `{text}`"))?))
    };
    world::of_tokens(numbered.map(token).collect::<Result<_, String>>()?)
}

/// The text of a token of some role.
fn role<'a>(metadata: &Metadata, tokens: &[&'a str], names: &[&str]) -> Option<&'a str> {
    let id = names.iter().find_map(|name| metadata.get(&key(&format!("{name}_token_id")))?.unsigned())?;
    tokens.get(usize::try_from(id).ok()?).copied()
}

/// WordPiece, in which those that begin a word have the mark that SentencePiece has, and the others
/// none.
fn word_piece(metadata: &Metadata, tokens: &[&str], types: &[u64]) -> Result<serde_json::Value, String> {
    let is_special = |text: &str, kind: u64| kind == CONTROL || (text.starts_with('[') && text.ends_with(']'));
    let text = |(text, kind): (&&str, &u64)| match text.strip_prefix('\u{2581}') {
        Some(word) => word.to_string(),
        None if is_special(text, *kind) => (*text).to_string(),
        None => format!("##{text}"),
    };
    let others = tokens.iter().zip(types).filter(|(_, kind)| **kind == CONTROL).map(|(t, _)| *t).collect();
    WordPiece {
        twice: false,
        tokens: tokens.iter().zip(types).map(text).collect(),
        unknown: role(metadata, tokens, &["unknown"]).unwrap_or("[UNK]"),
        first: role(metadata, tokens, &["cls", "bos"]).unwrap_or("[CLS]"),
        // The key is misspelt in files.
        last: role(metadata, tokens, &["seperator", "separator", "eos"]).unwrap_or("[SEP]"),
        others,
        lowercase: metadata.get(&key("normalizer.lowercase")).and_then(Value::flag).unwrap_or(true),
        strip_accents: None,
        chinese: true,
    }
    .json()
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
const BYTE: u64 = 6;

/// BPE over bytes.
fn byte_level(metadata: &Metadata, tokens: &[&str], types: &[u64]) -> Result<serde_json::Value, String> {
    let pre = text(metadata, "pre").unwrap_or("gpt-2");
    let cut = named(pre).ok_or_else(|| {
        let others = WHOLE_TEXTS.iter().chain(&[WORDS]);
        let known: Vec<_> = CUTS.iter().flat_map(|cut| cut.names).chain(others).copied().collect();
        format!("`tokenizer.ggml.pre` is `{pre}`; supported are {}", known.join(", "))
    })?;
    let (vocab, merges, added) = (vocab(tokens)?, pairs(metadata)?, added(tokens, types));
    Ok(ByteLevel { vocab, merges, added, cut, prefix_space: false, around: None }.json())
}

/// The pairs that are merged, the first first.
fn pairs(metadata: &Metadata) -> Result<Vec<serde_json::Value>, String> {
    let merge = |v: &Value| {
        // No token begins with a space but the space.
        let text = v.text()?;
        let first = text.chars().next()?.len_utf8();
        let at = first + text.get(first..)?.find(' ')?;
        Some(json!([text.get(..at)?, text.get(at + 1..)?]))
    };
    let pairs: Option<Vec<_>> = list(metadata, "merges")?.iter().map(merge).collect();
    pairs.ok_or_else(|| format!("`{}` has an element that is no pair of texts", key("merges")))
}

/// Tokens that are cut out of texts.
fn added(tokens: &[&str], types: &[u64]) -> Vec<serde_json::Value> {
    let fixed = tokens.iter().zip(types).enumerate().filter(|(_, (_, kind))| matches!(**kind, CONTROL | USER_DEFINED));
    fixed.map(|(id, (text, kind))| added_token(id as u64, text, *kind == CONTROL)).collect()
}

/// Ids by text.
fn vocab(tokens: &[&str]) -> Result<Map<String, serde_json::Value>, String> {
    let vocab: Map<_, _> = tokens.iter().enumerate().map(|(id, text)| ((*text).to_string(), json!(id))).collect();
    match vocab.len() == tokens.len() {
        true => Ok(vocab),
        false => Err(format!("`{}` has a token twice", key("tokens"))),
    }
}

/// What `tokenizer.ggml.pre` says of words between spaces.
const WORDS: &str = "whitespace";

/// BPE over the characters of words, which are what is between spaces (Jina's embedder for Chinese).
fn words(metadata: &Metadata, tokens: &[&str], types: &[u64]) -> Result<serde_json::Value, String> {
    let lowercase = metadata.get(&key("normalizer.lowercase")).and_then(Value::flag) == Some(true);
    Ok(json!({
        "version": "1.0",
        "truncation": null,
        "padding": null,
        "added_tokens": added(tokens, types),
        "normalizer": lowercase.then(|| json!({ "type": "Lowercase" })),
        "pre_tokenizer": { "type": "WhitespaceSplit" },
        "post_processor": null,
        "decoder": null,
        "model": {
            "type": "BPE", "dropout": null, "unk_token": role(metadata, tokens, &["unknown"]),
            "continuing_subword_prefix": null, "end_of_word_suffix": null, "fuse_unk": false, "byte_fallback": false,
            "ignore_merges": false, "vocab": vocab(tokens)?, "merges": pairs(metadata)?,
        },
    }))
}

/// BPE over the characters of whole texts, in which lines alone are apart.
fn whole_texts(metadata: &Metadata, tokens: &[&str], types: &[u64]) -> Result<serde_json::Value, String> {
    let unknown = role(metadata, tokens, &["unknown"]);
    let bytes = tokens.iter().zip(types).any(|(_, kind)| *kind == BYTE) || tokens.contains(&"<0x00>");
    Ok(json!({
        "version": "1.0",
        "truncation": null,
        "padding": null,
        "added_tokens": added(tokens, types),
        "normalizer": { "type": "Replace", "pattern": { "String": " " }, "content": "\u{2581}" },
        "pre_tokenizer": {
            "type": "Split", "pattern": { "Regex": r"[^\n]+|\n+" }, "behavior": "Isolated", "invert": false,
        },
        "post_processor": null,
        "decoder": { "type": "Sequence", "decoders": [
            { "type": "Replace", "pattern": { "String": "\u{2581}" }, "content": " " },
            { "type": "ByteFallback" },
            { "type": "Fuse" },
        ] },
        "model": {
            "type": "BPE", "dropout": null, "unk_token": unknown, "continuing_subword_prefix": null,
            "end_of_word_suffix": null, "fuse_unk": true, "byte_fallback": bytes, "ignore_merges": false,
            "vocab": vocab(tokens)?, "merges": pairs(metadata)?,
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
    if let Some(templates) = templates(metadata) {
        out.insert("chat_template".into(), templates);
    }
    out.into()
}

/// The template of conversations; where some have names of their own, all, as `tokenizer_config.json` has them.
fn templates(metadata: &Metadata) -> Option<serde_json::Value> {
    const KEY: &str = "tokenizer.chat_template";
    let default = metadata.get(KEY).and_then(Value::text);
    let named = metadata.iter().filter_map(|(key, v)| Some((key.strip_prefix(KEY)?.strip_prefix('.')?, v.text()?)));
    let all: Vec<_> = default.map(|text| ("default", text)).into_iter().chain(named).collect();
    match (&all[..], default) {
        ([], _) => None,
        ([_], Some(only)) => Some(only.into()),
        _ => Some(all.iter().map(|(name, template)| json!({ "name": name, "template": template })).collect()),
    }
}

/// Ids that end a text beside EOS.
pub(super) fn ends(metadata: &Metadata) -> serde_json::Value {
    let id = |name: &str| metadata.get(&key(&format!("{name}_token_id"))).and_then(Value::unsigned);
    let ids: Vec<u64> = ["eos", "eot", "eom"].into_iter().filter_map(id).collect();
    json!({ "eos_token_id": ids })
}
