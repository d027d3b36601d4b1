//! The vocabulary of a GGUF file as a `tokenizer.json`, and its metadata as Transformers' settings.

mod vocabulary;

use super::byte_level::{ByteLevel, added_token};
use super::cuts::{CUTS, LINES, WHOLE_TEXTS, named};
use super::sentencepiece::{self, Spaces};
use super::word_piece::WordPiece;
use super::world;
use crate::checkpoint::gguf::{Metadata, Value};
use serde_json::{Map, json};
use std::collections::BTreeSet;
use vocabulary::{BYTE, CONTROL, NORMAL, UNKNOWN, UNUSED, USER_DEFINED, Vocabulary, flag, key, list};

/// The `tokenizer.json` of a vocabulary; `None` if the file has none.
///
/// # Errors
/// A message naming the malformed or unsupported part.
pub(super) fn tokenizer_json(metadata: &Metadata) -> Result<Option<serde_json::Value>, String> {
    let Some(v) = Vocabulary::read(metadata)? else { return Ok(None) };
    let mut made = match v.kind {
        "llama" | "t5" => pieces(&v),
        "gemma4" => whole_texts(&v),
        "gpt2" if WHOLE_TEXTS.contains(&v.pre()) => whole_texts(&v),
        "whitespace" => words(&v),
        "gpt2" if v.pre() == WORDS => words(&v),
        "gpt2" => byte_level(&v),
        "bert" => word_piece(&v),
        "rwkv" => longest(&v),
        other => {
            let known = "`llama`, `gpt2`, `bert`, `t5`, `rwkv`, `whitespace` and `gemma4` are supported";
            Err(format!("`tokenizer.ggml.model` is `{other}`; {known}"))
        }
    }?;
    set_strips(&v, &mut made);
    Ok(Some(made))
}

/// Sets which tokens take the white space before or behind them. Files do not say it; llama.cpp knows it of some
/// models, by their names.
fn set_strips(v: &Vocabulary, made: &mut serde_json::Value) {
    let said = |key: &str| v.metadata.get(key).and_then(Value::text).unwrap_or_default();
    let any = |text: &str, parts: &[&str]| parts.iter().any(|part| text.contains(part));
    let name = said("general.name").to_ascii_lowercase();
    let masked = any(said("tokenizer.ggml.pre"), &["jina-v2-de", "jina-v2-es", "jina-v2-code", "mmbert"])
        || any(said("general.architecture"), &["nomic-bert-moe", "jina-bert-v3"]);
    let takes: fn(&str) -> Option<&'static str> = if masked {
        |token| (token == "<mask>").then_some("lstrip")
    } else if any(&name, &["phi-3", "phi3"]) {
        |token| (!["<unk>", "<s>", "<|endoftext|>"].contains(&token)).then_some("rstrip")
    } else if name.contains("modern-bert") {
        |token| (token == "[MASK]").then_some("lstrip")
    } else {
        return;
    };
    for token in made["added_tokens"].as_array_mut().into_iter().flatten() {
        if let Some(side) = token["content"].as_str().and_then(takes) {
            token[side] = true.into();
        }
    }
}

/// The score of each token, where there are scores.
fn scores(v: &Vocabulary) -> Result<Option<Vec<f32>>, String> {
    let Some(given) = list(v.metadata, "scores")? else { return Ok(None) };
    let (key, tokens) = (key("scores"), v.tokens.len());
    if given.len() < tokens {
        return Err(format!("`{key}` has {} numbers for {tokens} tokens", given.len()));
    }
    let one = |(i, x): (usize, &Value)| match x.number().map(|x| x as f32) {
        Some(x) if x.is_finite() => Ok(x),
        Some(x) => Err(format!("`{key}` has {x} for token {i}, no finite number")),
        None => Err(format!("`{key}` is no list of numbers")),
    };
    given.iter().take(tokens).enumerate().map(one).collect::<Result<_, _>>().map(Some)
}

/// Whether a text stands for a byte, as SentencePiece writes it.
fn is_byte(text: &str) -> bool {
    let hex = text.strip_prefix("<0x").and_then(|rest| rest.strip_suffix('>'));
    hex.is_some_and(|hex| hex.len() == 2 && hex.bytes().all(|b| b.is_ascii_digit() || (b'A'..=b'F').contains(&b)))
}

/// SentencePiece's: BPE, or Unigram.
fn pieces(v: &Vocabulary) -> Result<serde_json::Value, String> {
    let unigram = v.kind == "t5";
    let scores = scores(v)?.unwrap_or_else(|| vec![0.0; v.tokens.len()]);
    let mut types = v.types.clone();
    if !unigram {
        // By their texts, as llama.cpp finds them.
        let bytes = types.iter_mut().zip(&v.tokens).filter(|(kind, text)| **kind == NORMAL && is_byte(text));
        bytes.for_each(|(kind, _)| *kind = BYTE);
    }
    let unknown = v.id("unknown").filter(|_| (unigram || !v.typed) && !types.contains(&UNKNOWN));
    unknown.into_iter().for_each(|id| types[id] = UNKNOWN);
    let pieces = v.tokens.iter().zip(scores).zip(types);
    let pieces = pieces.map(|((text, score), kind)| (text.to_string(), score, kind)).collect();
    let spaces = Spaces {
        prefix: flag(v.metadata, "add_space_prefix").unwrap_or(!unigram),
        collapse: flag(v.metadata, "remove_extra_whitespaces").unwrap_or(false),
    };
    let charsmap = match unigram {
        true => {
            let bytes = list(v.metadata, "precompiled_charsmap")?.unwrap_or_default().iter();
            // Stored as signed bytes by some.
            Some(bytes.filter_map(|b| b.number()).map(|b| b as i64 as u8).collect())
        }
        false => None,
    };
    sentencepiece::from_pieces(pieces, &spaces, charsmap)
}

/// RWKV's, whose tokens are written as literals of Python's. Those that no text has fill the table up.
fn longest(v: &Vocabulary) -> Result<serde_json::Value, String> {
    let kept = |kind: u64| kind != CONTROL && kind != UNUSED;
    let numbered = v.tokens.iter().zip(&v.types).enumerate().filter(|(id, (_, kind))| *id > 0 && kept(**kind));
    let tokens = numbered.map(|(id, (text, _))| {
        let bytes = world::unescaped(text, true);
        Ok((id as u32, bytes.ok_or_else(|| format!("token {id} is no literal of Python's: `{text}`"))?))
    });
    world::of_tokens(tokens.collect::<Result<_, String>>()?)
}

/// WordPiece, in which those that begin a word have the mark that SentencePiece has, and the others
/// none.
fn word_piece(v: &Vocabulary) -> Result<serde_json::Value, String> {
    let is_special = |text: &str, kind: u64| kind == CONTROL || (text.starts_with('[') && text.ends_with(']'));
    let text = |text: &str, kind: u64| match text.strip_prefix('\u{2581}') {
        Some(word) => word.to_string(),
        None if is_special(text, kind) => text.to_string(),
        None => format!("##{text}"),
    };
    let all = || v.tokens.iter().map(AsRef::as_ref).zip(v.types.iter().copied());
    // The file's value, the token of the usual name, the usual id. (The key is misspelt in files.)
    let role = |names: &[&str], usual: &'static str| {
        let said = names.iter().find_map(|name| v.said(name)).and_then(|id| v.tokens.get(id)).map(AsRef::as_ref);
        let named = || v.tokens.iter().any(|t| t == usual).then_some(usual);
        said.or_else(named).or_else(|| names.iter().find_map(|name| v.role(name))).unwrap_or(usual)
    };
    WordPiece {
        twice: false,
        tokens: all().map(|(token, kind)| text(token, kind)).collect(),
        unknown: role(&["unknown"], "[UNK]"),
        first: role(&["cls", "bos"], "[CLS]"),
        last: role(&["seperator", "separator", "eos"], "[SEP]"),
        others: all().filter(|(_, kind)| *kind == CONTROL).map(|(token, _)| token).collect(),
        lowercase: flag(v.metadata, "normalizer.lowercase").unwrap_or(true),
        // By default as letters are made small.
        strip_accents: flag(v.metadata, "normalizer.strip_accents"),
        chinese: true,
    }
    .json()
}

/// BPE over bytes.
fn byte_level(v: &Vocabulary) -> Result<serde_json::Value, String> {
    let cut = named(v.pre()).ok_or_else(|| {
        let others = WHOLE_TEXTS.iter().chain(&[WORDS]);
        let known: Vec<_> = CUTS.iter().flat_map(|cut| cut.names).chain(others).copied().collect();
        format!("`tokenizer.ggml.pre` is `{}`; supported are {}", v.pre(), known.join(", "))
    })?;
    let (vocab, merges, added) = (vocab(v)?, pairs(v.metadata)?, added(v));
    all_made(v, &merges)?;
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
    let pairs: Option<Vec<_>> = list(metadata, "merges")?.unwrap_or_default().iter().map(merge).collect();
    pairs.ok_or_else(|| format!("`{}` has an element that is no pair of texts", key("merges")))
}

/// The most words that no pairs make.
const FEW: usize = 8;

/// Whether the list of pairs is whole: if more than a quarter of the words are made by none, it was cut off.
fn all_made(v: &Vocabulary, merges: &[serde_json::Value]) -> Result<(), String> {
    let part = |pair: &serde_json::Value, i: usize| pair[i].as_str().unwrap_or_default().to_string();
    let made: BTreeSet<String> = merges.iter().map(|pair| part(pair, 0) + &part(pair, 1)).collect();
    let is_word = |(text, kind): &(&str, u64)| *kind == NORMAL && text.chars().nth(1).is_some();
    let words = v.tokens.iter().map(AsRef::as_ref).zip(v.types.iter().copied()).filter(is_word);
    let (all, lost) = words.fold((0, 0), |(all, lost), (text, _)| (all + 1, lost + usize::from(!made.contains(text))));
    if lost < FEW || lost <= all / 4 {
        return Ok(());
    }
    let (key, n) = (key("merges"), merges.len());
    Err(match v.metadata.contains_key(&key) {
        true => format!("the {n} pairs of `{key}` make none of {lost} of the {all} tokens of several characters"),
        false => format!("`{key}` is missing, without which no text makes {lost} of the tokens"),
    })
}

/// Tokens that are cut out of texts.
fn added(v: &Vocabulary) -> Vec<serde_json::Value> {
    let fixed = v.tokens.iter().zip(&v.types).enumerate();
    let fixed = fixed.filter(|(_, (_, kind))| matches!(**kind, CONTROL | USER_DEFINED | UNKNOWN));
    fixed.map(|(id, (text, kind))| added_token(id as u64, text, *kind != USER_DEFINED)).collect()
}

/// Ids by text.
fn vocab(v: &Vocabulary) -> Result<Map<String, serde_json::Value>, String> {
    let vocab: Map<_, _> = v.tokens.iter().enumerate().map(|(id, text)| (text.to_string(), json!(id))).collect();
    match vocab.len() == v.tokens.len() {
        true => Ok(vocab),
        false => Err(format!("`{}` has a token twice", key("tokens"))),
    }
}

/// Value of `tokenizer.ggml.pre` for words between spaces.
const WORDS: &str = "whitespace";

/// BPE over the characters of words, which are the texts between spaces (Jina's embedder for
/// Chinese).
fn words(v: &Vocabulary) -> Result<serde_json::Value, String> {
    // As llama.cpp: letters are made small unless the file or the name of the cut says otherwise.
    let lowercase = flag(v.metadata, "normalizer.lowercase").unwrap_or(v.pre() != WORDS);
    Ok(json!({
        "version": "1.0",
        "truncation": null,
        "padding": null,
        "added_tokens": added(v),
        "normalizer": lowercase.then(|| json!({ "type": "Lowercase" })),
        "pre_tokenizer": { "type": "WhitespaceSplit" },
        "post_processor": null,
        "decoder": null,
        "model": {
            "type": "BPE", "dropout": null, "unk_token": v.role("unknown"),
            "continuing_subword_prefix": null, "end_of_word_suffix": null, "fuse_unk": false, "byte_fallback": false,
            "ignore_merges": false, "vocab": vocab(v)?, "merges": pairs(v.metadata)?,
        },
    }))
}

/// Steps one after the other; one alone is itself.
fn sequence(name: &str, mut steps: Vec<serde_json::Value>) -> serde_json::Value {
    match steps.len() {
        1 => steps.remove(0),
        _ => json!({ "type": "Sequence", name: steps }),
    }
}

/// BPE over the characters of whole texts, in which lines alone are apart, or words between spaces too.
fn whole_texts(v: &Vocabulary) -> Result<serde_json::Value, String> {
    let bytes = v.types.contains(&BYTE) || v.tokens.iter().any(|t| is_byte(t));
    let replace = |pattern| json!({ "type": "Replace", "pattern": pattern, "content": "\u{2581}" });
    let split =
        |pattern| json!({ "type": "Split", "pattern": { "Regex": pattern }, "behavior": "Isolated", "invert": false });
    let (mut normalizers, mut splits) = (vec![replace(json!({ "String": " " }))], vec![split(r"[^\n]+|\n+")]);
    if v.pre() == LINES {
        normalizers.push(replace(json!({ "Regex": r"\A(?=[^\n\x{2581}])|(?<=\n)(?=[^\n\x{2581}])" })));
        splits.push(split(r"\x{2581}[^\x{2581}]*"));
    }
    Ok(json!({
        "version": "1.0",
        "truncation": null,
        "padding": null,
        "added_tokens": added(v),
        "normalizer": sequence("normalizers", normalizers),
        "pre_tokenizer": sequence("pretokenizers", splits),
        "post_processor": null,
        "decoder": { "type": "Sequence", "decoders": [
            { "type": "Replace", "pattern": { "String": "\u{2581}" }, "content": " " },
            { "type": "ByteFallback" },
            { "type": "Fuse" },
        ] },
        "model": {
            "type": "BPE", "dropout": null, "unk_token": v.role("unknown"), "continuing_subword_prefix": null,
            "end_of_word_suffix": null, "fuse_unk": true, "byte_fallback": bytes, "ignore_merges": false,
            "vocab": vocab(v)?, "merges": pairs(v.metadata)?,
        },
    }))
}

/// The equivalent of `tokenizer_config.json`. A malformed vocabulary gives none here:
/// [`tokenizer_json`] reports the fault.
pub(super) fn settings(metadata: &Metadata) -> serde_json::Value {
    let mut out = Map::new();
    if let Ok(Some(v)) = Vocabulary::read(metadata) {
        let roles = [("bos", "bos_token"), ("eos", "eos_token"), ("unknown", "unk_token"), ("padding", "pad_token")];
        for (role, name) in roles {
            out.extend(v.role(role).map(|token| (name.to_string(), token.into())));
        }
        if let Some([bos, eos]) = v.around() {
            out.extend([("add_bos_token".to_string(), bos.into()), ("add_eos_token".to_string(), eos.into())]);
        }
    }
    if let Some(templates) = templates(metadata) {
        out.insert("chat_template".into(), templates);
    }
    out.into()
}

/// Notes for the user about a vocabulary.
pub(super) fn warnings(metadata: &Metadata) -> Vec<String> {
    let Ok(Some(v)) = Vocabulary::read(metadata) else { return vec![] };
    let has = |name: &str| metadata.contains_key(&key(name));
    let mut out = vec![];
    if v.kind == "gpt2" && !has("pre") {
        out.push(format!(
            "`{}` is missing, so that texts are cut as llama.cpp cuts them by default, which few models were trained \
             with: convert the model again with a current llama.cpp",
            key("pre")
        ));
    }
    if ["llama", "t5"].contains(&v.kind) && !has("scores") {
        out.push(format!(
            "`{}` is missing, so that all pieces count the same: tokens may be others than those that the model was \
             trained with",
            key("scores")
        ));
    }
    out
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

/// The equivalent of `generation_config.json`: the tokens that end a text, tokens that are never
/// taken, and how the next one is.
pub(super) fn generation(metadata: &Metadata) -> serde_json::Value {
    let mut out = Map::new();
    if let Ok(Some(v)) = Vocabulary::read(metadata) {
        out.insert("eos_token_id".into(), v.ends.iter().copied().collect());
        let never: Vec<u64> = list(metadata, "suppress_tokens")
            .ok()
            .flatten()
            .unwrap_or_default()
            .iter()
            .filter_map(|id| id.unsigned().filter(|id| *id < v.tokens.len() as u64))
            .collect();
        if !never.is_empty() {
            out.insert("suppress_tokens".into(), never.into());
        }
    }
    const SAMPLING: [(&str, &str); 5] = [
        ("temp", "temperature"),
        ("top_k", "top_k"),
        ("top_p", "top_p"),
        ("min_p", "min_p"),
        ("penalty_repeat", "repetition_penalty"),
    ];
    for (key, field) in SAMPLING {
        let value = metadata.get(&format!("general.sampling.{key}")).filter(|v| v.number().is_some());
        out.extend(value.map(|value| (field.to_string(), value.to_json())));
    }
    out.into()
}

#[cfg(test)]
mod tests;
