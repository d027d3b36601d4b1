//! What text generation needs from a checkpoint, collected for the artifact.

mod protobuf;
mod sentencepiece;

use crate::checkpoint::Checkpoint;
use crate::error::FrontendError;
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::{Map, Value, json};
use std::path::PathBuf;
use tokenizers::Tokenizer;

/// Text side of an artifact.
#[derive(Clone, Debug)]
pub struct TextAssets {
    /// `tokenizer.json` of the `tokenizers` crate, without truncation and padding; `None`: the model works on token ids only.
    pub tokenizer_json: Option<Vec<u8>>,
    /// Object with the members
    /// - `bos_token`, `eos_token`: strings or null; `special_tokens`: object with these and `unk_token`, `pad_token` where present (chat
    ///   templates print them);
    /// - `bos_token_id`: number or null;
    /// - `eos_token_ids`: numbers; generation stops after any of them;
    /// - `add_bos`: whether a plain prompt starts with BOS, whatever the tokenizer's own post-processor does (chat templates write BOS
    ///   themselves);
    /// - `chat_template`: Jinja text, a list of `{"name", "template"}`, or null;
    /// - `model_max_length`: number or null;
    /// - `clean_up_tokenization_spaces`: boolean.
    pub text_config: Value,
}

const SAVE: &str = "make a tokenizer.json with Transformers: `AutoTokenizer.from_pretrained(dir).save_pretrained(dir)`";
const MISMATCH: &str = "use the tokenizer files of this very model";

impl TextAssets {
    /// Collects and checks the tokenizer files of a checkpoint.
    ///
    /// # Errors
    /// When they are malformed or belong to a model with another vocabulary, or `config.json` is wrong.
    pub fn load(ckpt: &Checkpoint) -> Result<TextAssets, FrontendError> {
        let config = crate::arch::config(ckpt)?;
        let settings = ckpt.json("tokenizer_config.json")?.unwrap_or(Value::Null);
        let map = ckpt.json("special_tokens_map.json")?.unwrap_or(Value::Null);
        let generation = ckpt.json("generation_config.json")?.unwrap_or(Value::Null);
        let source = find(ckpt)?;
        let tokenizer = source.as_ref().map(|s| load(s, config.vocab)).transpose()?;

        let named = |name: &str| token_text(settings.get(name)).or_else(|| token_text(map.get(name)));
        let id = |text: &Option<String>| tokenizer.as_ref()?.token_to_id(text.as_deref()?);
        let (bos, eos) = (named("bos_token"), named("eos_token"));
        let bos_id = id(&bos).or(config.bos);
        let mut eos_ids = ids(&generation["eos_token_id"], config.vocab);
        for more in config.eos.iter().copied().chain(id(&eos)) {
            if !eos_ids.contains(&more) {
                eos_ids.push(more);
            }
        }
        let writes_bos = || Some(tokenizer.as_ref()?.encode("a", true).ok()?.get_ids().first().copied() == bos_id);
        let add_bos = bos_id.is_some() && settings["add_bos_token"].as_bool().or_else(writes_bos).unwrap_or(false);
        let specials: Map<_, _> = ["bos_token", "eos_token", "unk_token", "pad_token"]
            .into_iter()
            .filter_map(|name| Some((name.to_string(), named(name)?.into())))
            .collect();
        let text_config = json!({
            "bos_token": bos,
            "eos_token": eos,
            "special_tokens": specials,
            "bos_token_id": bos_id,
            "eos_token_ids": eos_ids,
            "add_bos": add_bos,
            "chat_template": chat_template(ckpt, &settings)?,
            "model_max_length": settings["model_max_length"].as_u64().filter(|n| *n < 1 << 31),
            "clean_up_tokenization_spaces": settings["clean_up_tokenization_spaces"].as_bool().unwrap_or(false),
        });
        Ok(TextAssets { tokenizer_json: source.map(|s| s.json), text_config })
    }
}

/// The `tokenizer.json` that behaves like a SentencePiece `tokenizer.model`.
///
/// # Errors
/// Says what is malformed or unsupported.
pub fn from_sentencepiece(model: &[u8]) -> Result<Value, String> {
    sentencepiece::to_tokenizer_json(model)
}

/// A `tokenizer.json`, and the file it comes from.
struct Source {
    path: PathBuf,
    json: Vec<u8>,
}

/// `tokenizer.json`, or `tokenizer.model` converted.
fn find(ckpt: &Checkpoint) -> Result<Option<Source>, FrontendError> {
    let path = |name: &str| ckpt.dir().join(name);
    if let Some(json) = ckpt.file("tokenizer.json")? {
        let json = without_limits(json).map_err(|source| FrontendError::Json { path: path("tokenizer.json"), source })?;
        return Ok(Some(Source { path: path("tokenizer.json"), json }));
    }
    if let Some(model) = ckpt.file("tokenizer.model")? {
        let path = path("tokenizer.model");
        return match from_sentencepiece(&model) {
            Ok(json) => Ok(Some(Source { path, json: json.to_string().into_bytes() })),
            Err(what) => Err(FrontendError::Tokenizer { path, what, help: SAVE }),
        };
    }
    match ["vocab.json", "vocab.txt"].into_iter().find(|name| path(name).exists()) {
        Some(name) => {
            let what = "this vocabulary has no tokenizer.json beside it".into();
            Err(FrontendError::Tokenizer { path: path(name), what, help: SAVE })
        }
        None => Ok(None),
    }
}

/// Removes `truncation` and `padding`: training leftovers that would silently change prompts.
fn without_limits(json: Vec<u8>) -> Result<Vec<u8>, serde_json::Error> {
    #[derive(Deserialize)]
    struct Limits {
        truncation: Option<IgnoredAny>,
        padding: Option<IgnoredAny>,
    }
    let limits: Limits = serde_json::from_slice(&json)?;
    if limits.truncation.is_none() && limits.padding.is_none() {
        return Ok(json);
    }
    let mut value: Value = serde_json::from_slice(&json)?;
    value["truncation"] = Value::Null;
    value["padding"] = Value::Null;
    serde_json::to_vec(&value)
}

/// Loads the tokenizer and compares its ids with the model's vocabulary.
fn load(source: &Source, vocab: usize) -> Result<Tokenizer, FrontendError> {
    let bad = |what: String, help| FrontendError::Tokenizer { path: source.path.clone(), what, help };
    let tokenizer = Tokenizer::from_bytes(&source.json).map_err(|e| bad(format!("not a usable tokenizer: {e}"), SAVE))?;
    let largest = tokenizer.get_vocab(true).into_iter().max_by_key(|(_, id)| *id);
    let (token, id) = largest.ok_or_else(|| bad("the vocabulary is empty".into(), SAVE))?;
    if id as usize >= vocab {
        let what = format!("tokenizer mismatch: token {token:?} has id {id}, but the model has {vocab} tokens");
        return Err(bad(what, MISMATCH));
    }
    Ok(tokenizer)
}

/// A special token: a string, or an object with `content`.
fn token_text(v: Option<&Value>) -> Option<String> {
    let v = v?;
    v.as_str().or_else(|| v.get("content")?.as_str()).map(String::from)
}

/// One id or a list; ids the model does not have are dropped, it can never produce them.
fn ids(v: &Value, vocab: usize) -> Vec<u32> {
    let one = |v: &Value| v.as_u64().filter(|n| *n < vocab as u64).map(|n| n as u32);
    match v.as_array() {
        Some(list) => list.iter().filter_map(one).collect(),
        None => one(v).into_iter().collect(),
    }
}

/// `chat_template.jinja`, or `chat_template` of `tokenizer_config.json` as it is there.
fn chat_template(ckpt: &Checkpoint, settings: &Value) -> Result<Value, FrontendError> {
    if let Some(bytes) = ckpt.file("chat_template.jinja")? {
        let utf8 = |_| FrontendError::Tokenizer {
            path: ckpt.dir().join("chat_template.jinja"),
            what: "not UTF-8".into(),
            help: "download it again",
        };
        return String::from_utf8(bytes).map(Value::String).map_err(utf8);
    }
    let template = &settings["chat_template"];
    let named = |t: &Value| t["name"].is_string() && t["template"].is_string();
    let usable = template.is_string() || template.as_array().is_some_and(|list| list.iter().all(named));
    Ok(if usable { template.clone() } else { Value::Null })
}

#[cfg(test)]
mod tests;
