//! sentence-transformers' changes to a text before a model has its tokens.

use super::files::{LIST, SETTINGS, prompt, transformer, wrong};
use super::modules::leaves_prompts_out;
use crate::checkpoint::Checkpoint;
use crate::error::FrontendError;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Texts of an embedder.
#[derive(Clone, Debug, Default)]
pub(crate) struct Texts {
    /// The prefix of each text.
    pub prompt: String,
    /// Prefixes by request, by name.
    pub prompts: BTreeMap<String, String>,
    /// The name of `prompt` among them.
    pub default: Option<String>,
    /// Tokens that are left of one.
    pub most: Option<usize>,
    /// They are in lower case.
    pub lower: bool,
    /// How two rows are compared.
    pub similarity: Option<String>,
}

/// The ways in which sentence-transformers compares two rows.
const SIMILARITIES: [&str; 4] = ["cosine", "dot", "euclidean", "manhattan"];

impl Texts {
    /// Tells the runtime.
    pub fn write(self, config: &mut Value) {
        if !self.prompt.is_empty() {
            config["prompt"] = self.prompt.into();
        }
        if let Some(most) = self.most {
            config["most_tokens"] = most.into();
        }
    }
}

/// The settings in the files beside an embedder's checkpoint; `settings` are its tokenizer's,
/// `limit` is the model's longest context. With notes for the user.
///
/// # Errors
/// A file is malformed.
pub(crate) fn found(ckpt: &Checkpoint, settings: &Value, limit: usize) -> Result<(Texts, Vec<String>), FrontendError> {
    let Some(list) = ckpt.json(LIST)? else { return Ok(Default::default()) };
    let (file, of_transformer) = transformer(ckpt)?;
    let length = |v: &Value| v.as_u64().filter(|n| *n > 0);
    let given = &of_transformer["max_seq_length"];
    if !given.is_null() && length(given).is_none() {
        return Err(wrong(ckpt, file, format!("`max_seq_length` is {given}")));
    }
    let most = length(given).or_else(|| length(&settings["model_max_length"])).unwrap_or(u64::MAX);
    let prompt = prompt(ckpt)?;
    let mut warnings = vec![];
    let of_model = ckpt.json(SETTINGS)?.unwrap_or_default();
    let (mut prompts, default) = named(ckpt, &of_model)?;
    if prompts.values().any(|p| !p.is_empty()) && leaves_prompts_out(ckpt, &list)? {
        let names: Vec<&str> = prompts.keys().map(String::as_str).collect();
        warnings.push(format!(
            "{SETTINGS}: the prompts {} are left out: their tokens would be pooled, and `include_prompt` is false",
            names.join(", ")
        ));
        prompts.clear();
    }
    if !prompt.is_empty() {
        warnings.push(format!("{SETTINGS}: every text that is embedded gets the default prompt {prompt:?} before it"));
    }
    if settings["truncation_side"] == "left" {
        let what = "`truncation_side` is \"left\": texts that are too long would lose their beginning";
        return Err(wrong(ckpt, "tokenizer_config.json", what.into()));
    }
    let most = Some(most.min(limit as u64) as usize);
    let (lower, similarity) = (of_transformer["do_lower_case"] == true, similarity(ckpt, &of_model)?);
    Ok((Texts { prompt, prompts, default, most, lower, similarity }, warnings))
}

/// Prompts by their names, and the name of the one that texts get if none is asked for.
fn named(ckpt: &Checkpoint, settings: &Value) -> Result<(BTreeMap<String, String>, Option<String>), FrontendError> {
    let mut prompts = BTreeMap::new();
    match &settings["prompts"] {
        Value::Null => {}
        Value::Object(all) => {
            for (name, text) in all {
                match text.as_str() {
                    Some(text) => drop(prompts.insert(name.clone(), text.to_owned())),
                    // (Of no effect in sentence-transformers either.)
                    None if text.is_null() => {}
                    None => {
                        return Err(wrong(
                            ckpt,
                            SETTINGS,
                            format!("the prompt `{name}` is {text}, which is not a text"),
                        ));
                    }
                }
            }
        }
        other => {
            return Err(wrong(
                ckpt,
                SETTINGS,
                format!("`prompts` is {other}; it must be an object of names and texts"),
            ));
        }
    }
    Ok((prompts, settings["default_prompt_name"].as_str().map(str::to_owned)))
}

/// The way in which two rows are compared, if the settings name one.
///
/// # Errors
/// sentence-transformers does not know it.
fn similarity(ckpt: &Checkpoint, settings: &Value) -> Result<Option<String>, FrontendError> {
    match &settings["similarity_fn_name"] {
        Value::Null => Ok(None),
        Value::String(name) if SIMILARITIES.contains(&name.as_str()) => Ok(Some(name.clone())),
        other => {
            let known = SIMILARITIES.join("`, `");
            Err(wrong(ckpt, SETTINGS, format!("`similarity_fn_name` is {other}; known are `{known}`")))
        }
    }
}

/// A `tokenizer.json` that puts all text in lower case first, unless it does so.
pub(crate) fn lowered(tokenizer: &mut Value) {
    let normalizer = tokenizer["normalizer"].take();
    let parts = match &normalizer {
        Value::Null => vec![],
        Value::Object(of) if of.get("type").is_some_and(|t| t == "Sequence") => {
            of.get("normalizers").and_then(Value::as_array).cloned().unwrap_or_default()
        }
        one => vec![one.clone()],
    };
    let lowers = |n: &Value| n["type"] == "Lowercase" || n["type"] == "BertNormalizer" && n["lowercase"] == true;
    tokenizer["normalizer"] = if parts.iter().any(lowers) {
        normalizer
    } else {
        let all: Vec<Value> = std::iter::once(json!({ "type": "Lowercase" })).chain(parts).collect();
        json!({ "type": "Sequence", "normalizers": all })
    };
}
