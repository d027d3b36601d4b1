//! Defaults of a model's generations, as its checkpoint states them: `generation_config.json`, the same
//! members of `config.json` where that file is missing, or `general.sampling.*` of a GGUF file.
//!
//! The members have the same meaning as in Transformers. Members with an effect are carried;
//! members with an effect that the runtime cannot have are warnings.

mod found;
mod gguf;

pub(crate) use found::Found;

use crate::checkpoint::Checkpoint;
use crate::config::Facts;
use crate::error::FrontendError;
use serde_json::{Map, Value, json};
use std::path::PathBuf;

/// The file.
const FILE: &str = "generation_config.json";
/// The remedy for a member that makes no sense.
const HELP: &str = "correct it, or remove it: then defaults apply";
/// `max_length` that stands for "not set": the default of Transformers.
const UNSET_LENGTH: u64 = 20;
/// `top_k` of Transformers where a model is sampled from and says nothing of it.
const USUAL_TOP_K: u64 = 50;

/// Members with an effect that the runtime cannot have, and the values with which they have none (besides null).
const NOT_USED: &[(&str, f64)] = &[
    ("num_beams", 1.0),
    ("num_beam_groups", 1.0),
    ("num_return_sequences", 1.0),
    ("penalty_alpha", 0.0),
    ("presence_penalty", 0.0),
    ("frequency_penalty", 0.0),
    ("top_h", 0.0),
    ("epsilon_cutoff", 0.0),
    ("eta_cutoff", 0.0),
    ("encoder_repetition_penalty", 1.0),
    ("encoder_no_repeat_ngram_size", 0.0),
    ("forced_eos_token_id", f64::NAN),
    ("exponential_decay_length_penalty", f64::NAN),
    ("guidance_scale", 1.0),
    ("watermarking_config", f64::NAN),
    ("token_healing", 0.0),
    ("dola_layers", f64::NAN),
    ("constraints", f64::NAN),
    ("force_words_ids", f64::NAN),
    ("max_time", f64::NAN),
];

/// The defaults of a checkpoint whose model has `vocab` tokens, of which `ends` end a generation.
///
/// # Errors
/// A member has a value without a meaning.
pub(crate) fn found(ckpt: &Checkpoint, vocab: usize, ends: &[u32]) -> Result<Found, FrontendError> {
    if let Some(metadata) = ckpt.metadata() {
        return Ok(gguf::found(metadata));
    }
    let file = ckpt.json(FILE)?;
    let (own, path) =
        (file.is_some(), if file.is_some() { ckpt.beside(FILE) } else { ckpt.config_path().to_path_buf() });
    let given = match &file {
        Some(Value::Object(given)) => given,
        Some(_) => return Err(bad(path, "it is not a JSON object".into())),
        None => match ckpt.config() {
            Value::Object(config) if writes_text(ckpt.config()) => config,
            _ => return Ok(Found::default()),
        },
    };
    let mut reader = Reader { given, path, vocab: vocab as u64, out: Map::new() };
    reader.sampling()?;
    reader.lengths(own)?;
    reader.tokens(ends)?;
    let name = if own { FILE } else { "config.json" };
    let warnings = NOT_USED.iter().filter_map(|(key, neutral)| reader.not_used(key, *neutral, name)).collect();
    Ok(Found { settings: reader.out, warnings })
}

/// The tokens that a text about a source begins with: the start token, then the language, say.
/// `ending` is `generation_config.json`, whose members count before those of `config.json`.
///
/// # Errors
/// There is no start token, or one that the vocabulary does not have.
pub(crate) fn starts(ckpt: &Checkpoint, ending: &Value, facts: &Facts) -> Result<Vec<u32>, FrontendError> {
    let path = ckpt.config_path().to_path_buf();
    let given = |key: &str| [ending, ckpt.config()].into_iter().map(|of| &of[key]).find(|v| !v.is_null());
    let token = |key: &str| match given(key) {
        None => Ok(None),
        Some(value) => {
            let id = value.as_u64().filter(|id| *id < facts.vocab as u64).and_then(|id| u32::try_from(id).ok());
            let what = || format!("`{key}` is {value}, not a token of the {} that the model has", facts.vocab);
            id.map(Some).ok_or_else(|| bad(path.clone(), what()))
        }
    };
    let first = token("decoder_start_token_id")?.or(facts.bos);
    let what = "`decoder_start_token_id` is missing: the token that a text begins with";
    let first = first.ok_or_else(|| FrontendError::Tokenizer {
        path: path.clone(),
        what: what.into(),
        help: "add it, as the model's files on the hub have it",
    })?;
    Ok(std::iter::once(first).chain(token("forced_bos_token_id")?).collect())
}

/// Whether a `config.json` is that of a model that writes text: others have members of the same names.
fn writes_text(config: &Value) -> bool {
    let class = config["architectures"][0].as_str().unwrap_or_default();
    ["ForCausalLM", "LMHeadModel", "ForConditionalGeneration", "MTModel"].iter().any(|end| class.ends_with(end))
}

fn bad(path: PathBuf, what: String) -> FrontendError {
    FrontendError::Tokenizer { path, what, help: HELP }
}

/// Members of the file, checked one by one.
struct Reader<'a> {
    given: &'a Map<String, Value>,
    path: PathBuf,
    vocab: u64,
    out: Map<String, Value>,
}

impl Reader<'_> {
    fn get(&self, key: &str) -> Option<&Value> {
        self.given.get(key).filter(|v| !v.is_null())
    }

    fn wrong(&self, key: &str, wanted: &str) -> FrontendError {
        let value = self.given.get(key).map(ToString::to_string).unwrap_or_default();
        let shown: String = value.chars().take(80).collect();
        bad(self.path.clone(), format!("`{key}` is {shown}, not {wanted}"))
    }

    /// A number from 0 to `most`.
    fn number(&self, key: &str, most: f64) -> Result<Option<f64>, FrontendError> {
        let Some(value) = self.get(key) else { return Ok(None) };
        let number = value.as_f64().filter(|x| (0.0..=most).contains(x));
        let wanted = if most == 1.0 { "a number from 0 to 1" } else { "0 or a positive number" };
        number.map(Some).ok_or_else(|| self.wrong(key, wanted))
    }

    /// A number of something; floats without a fraction count.
    fn count(&self, key: &str) -> Result<Option<u64>, FrontendError> {
        let Some(value) = self.get(key) else { return Ok(None) };
        let whole = |x: f64| (x.fract() == 0.0 && (0.0..9e15).contains(&x)).then_some(x as u64);
        let number = value.as_u64().or_else(|| value.as_f64().and_then(whole));
        number.map(Some).ok_or_else(|| self.wrong(key, "0 or a positive integer"))
    }

    fn put(&mut self, key: &str, value: impl Into<Value>) {
        self.out.insert(key.into(), value.into());
    }

    /// How a token is drawn.
    fn sampling(&mut self) -> Result<(), FrontendError> {
        let most = f64::from(f32::MAX);
        let draws = match self.get("do_sample") {
            None => false,
            Some(value) => value.as_bool().ok_or_else(|| self.wrong("do_sample", "true or false"))?,
        };
        let temperature = self.number("temperature", most)?;
        if draws {
            self.put("temperature", temperature.unwrap_or(1.0));
        }
        // (vLLM's way to say that all are kept.)
        let top_k = if self.get("top_k") == Some(&json!(-1)) { Some(0) } else { self.count("top_k")? };
        let top_p = self.number("top_p", 1.0)?;
        let top_k = match (top_p, top_k) {
            // No token but the most probable one is left.
            (Some(0.0), _) => 1,
            (_, Some(k)) => k.min(u64::from(u32::MAX)),
            (_, None) if draws => USUAL_TOP_K,
            (_, None) => 0,
        };
        if top_k > 0 {
            self.put("top_k", top_k);
        }
        if let Some(p) = top_p.filter(|p| *p > 0.0 && *p < 1.0) {
            self.put("top_p", p);
        }
        if let Some(p) = self.number("min_p", 1.0)?.filter(|p| *p > 0.0) {
            self.put("min_p", p);
        }
        if let Some(p) = self.number("typical_p", most)?.filter(|p| *p < 1.0) {
            if p == 0.0 {
                return Err(self.wrong("typical_p", "a number between 0 and 1"));
            }
            self.put("typical_p", p);
        }
        if let Some(penalty) = self.number("repetition_penalty", most)?.filter(|p| *p != 1.0) {
            if penalty == 0.0 {
                return Err(self.wrong("repetition_penalty", "a positive number"));
            }
            self.put("repetition_penalty", penalty);
        }
        Ok(())
    }

    /// How long texts are, and the tokens that end them. `own`: the file is there (`config.json` of
    /// old has `max_length` in several meanings).
    fn lengths(&mut self, own: bool) -> Result<(), FrontendError> {
        for key in ["max_new_tokens", "min_new_tokens", "min_length", "no_repeat_ngram_size"] {
            if let Some(n) = self.count(key)?.filter(|n| *n > 0) {
                self.put(key, n);
            }
        }
        if own && let Some(n) = self.count("max_length")?.filter(|n| *n > 0 && *n != UNSET_LENGTH) {
            self.put("max_length", n);
        }
        let stop: Option<Vec<&str>> = match self.get("stop_strings") {
            None => Some(vec![]),
            Some(Value::String(one)) => Some(vec![one.as_str()]),
            Some(Value::Array(list)) => list.iter().map(Value::as_str).collect(),
            Some(_) => None,
        };
        let stop = stop.filter(|all| all.iter().all(|s| !s.is_empty() && !s.contains('\0')));
        let stop = json!(stop.ok_or_else(|| self.wrong("stop_strings", "a text or a list of texts"))?);
        if stop != json!([]) {
            self.put("stop_strings", stop);
        }
        Ok(())
    }

    /// Ids of a list; those that no token has are left out, as nothing could be done to them.
    fn ids(&self, list: &Value) -> Option<(Vec<u64>, bool)> {
        let all: Vec<i64> = list.as_array()?.iter().map(Value::as_i64).collect::<Option<_>>()?;
        let known: Vec<u64> =
            all.iter().filter_map(|id| u64::try_from(*id).ok().filter(|id| *id < self.vocab)).collect();
        let whole = known.len() == all.len();
        Some((known, whole))
    }

    /// Which tokens are never chosen, or with another probability.
    fn tokens(&mut self, ends: &[u32]) -> Result<(), FrontendError> {
        if let Some(ends) = self.get("eos_token_id") {
            let id = |v: &Value| v.is_i64() || v.is_u64();
            if !id(ends) && !ends.as_array().is_some_and(|list| list.iter().all(id)) {
                return Err(self.wrong("eos_token_id", "a token id, or a list of them"));
            }
        }
        for key in ["suppress_tokens", "begin_suppress_tokens"] {
            let Some(list) = self.get(key) else { continue };
            let (ids, _) = self.ids(list).ok_or_else(|| self.wrong(key, "a list of token ids"))?;
            if !ids.is_empty() {
                self.put(key, ids);
            }
        }
        if let Some(list) = self.get("bad_words_ids") {
            let words: Option<Vec<_>> = list.as_array().and_then(|l| l.iter().map(|word| self.ids(word)).collect());
            let words = words.ok_or_else(|| self.wrong("bad_words_ids", "a list of lists of token ids"))?;
            // An end alone stays allowed, as in Transformers.
            let end = |ids: &[u64]| ids.len() == 1 && ends.iter().any(|end| u64::from(*end) == ids[0]);
            let words: Vec<Vec<u64>> = words
                .into_iter()
                .filter(|(ids, whole)| *whole && !ids.is_empty() && !end(ids))
                .map(|(ids, _)| ids)
                .collect();
            if !words.is_empty() {
                self.put("bad_words_ids", words);
            }
        }
        if let Some(list) = self.get("sequence_bias") {
            let pair = |entry: &Value| {
                let bias = entry[1].as_f64().filter(|x| x.abs() <= f64::from(f32::MAX))?;
                Some((self.ids(&entry[0]).filter(|(ids, whole)| !ids.is_empty() || !whole)?, bias))
            };
            let pairs: Option<Vec<_>> = list.as_array().and_then(|l| l.iter().map(pair).collect());
            let pairs = pairs.ok_or_else(|| self.wrong("sequence_bias", "a list of [[token ids], number]"))?;
            let pairs: Vec<Value> =
                pairs.into_iter().filter(|((_, whole), _)| *whole).map(|((ids, _), bias)| json!([ids, bias])).collect();
            if !pairs.is_empty() {
                self.put("sequence_bias", pairs);
            }
        }
        Ok(())
    }

    /// A warning about a member that has an effect and is not used.
    fn not_used(&self, key: &str, neutral: f64, file: &str) -> Option<String> {
        let value = self.get(key)?;
        let number = value.as_f64().or_else(|| value.as_bool().map(|b| f64::from(u8::from(b))));
        // Lists and objects without members do nothing either.
        let empty = value.as_array().is_some_and(Vec::is_empty) || value.as_object().is_some_and(Map::is_empty);
        if empty || number == Some(neutral) {
            return None;
        }
        let shown: String = value.to_string().chars().take(60).collect();
        Some(format!("{file}: `{key}` is {shown}, which is not supported: texts are made without it"))
    }
}

#[cfg(test)]
mod tests;
