//! `preprocessor_config.json` of models that hear, and the tokens that say language and task.

use crate::checkpoint::Checkpoint;
use crate::error::FrontendError;
use serde_json::{Map, Value, json};
use std::path::PathBuf;

/// The file.
const FILE: &str = "preprocessor_config.json";
/// The file that has its contents in a member, as newer versions of Transformers save it.
const NEWER: &str = "processor_config.json";
/// The class whose spectrograms the runtime makes.
const CLASS: &str = "WhisperFeatureExtractor";

/// Reads one file.
struct Reader {
    path: PathBuf,
    given: Value,
}

impl Reader {
    fn open(ckpt: &Checkpoint) -> Result<Reader, FrontendError> {
        if let Some(given) = ckpt.json(FILE)? {
            return Ok(Reader { path: ckpt.beside(FILE), given });
        }
        let given = ckpt.json(NEWER)?.map_or(Value::Null, |mut v| v["feature_extractor"].take());
        Ok(Reader { path: ckpt.beside(NEWER), given })
    }

    fn wrong(&self, key: &str, wanted: &str) -> FrontendError {
        let what = format!("`{key}` is {}, not {wanted}", self.given[key]);
        FrontendError::Tokenizer { path: self.path.clone(), what, help: "use the files of this very model" }
    }

    /// A positive number; `usual` where the file has none.
    fn size(&self, key: &str, usual: usize) -> Result<usize, FrontendError> {
        match &self.given[key] {
            Value::Null => Ok(usual),
            value => {
                let size = value.as_u64().filter(|n| (1..1 << 24).contains(n)).and_then(|n| usize::try_from(n).ok());
                size.ok_or_else(|| self.wrong(key, "a positive number"))
            }
        }
    }

    /// A setting that has one meaning to the runtime.
    fn only(&self, key: &str, neutral: &[Value], wanted: &str) -> Result<(), FrontendError> {
        let value = &self.given[key];
        if value.is_null() || neutral.contains(value) { Ok(()) } else { Err(self.wrong(key, wanted)) }
    }
}

/// The description of the sounds that a model with an encoder for `mels` numbers of a frame reads, and of `tokens`
/// tokens of a clip.
pub(super) fn described(
    ckpt: &Checkpoint,
    (mels, tokens): (usize, usize),
    (ending, vocab): (&Value, usize),
) -> Result<Value, FrontendError> {
    let r = Reader::open(ckpt)?;
    r.only("feature_extractor_type", &[CLASS.into()], &format!("`{CLASS}`"))?;
    r.only("dither", &[0.into(), 0.0.into()], "0: noise would make other texts of the same sound")?;
    r.only("padding_value", &[0.into(), 0.0.into()], "0")?;
    r.only("do_normalize", &[false.into()], "false")?;
    if r.size("feature_size", mels)? != mels {
        return Err(r.wrong("feature_size", &format!("{mels}, which is `num_mel_bins` of config.json")));
    }
    let (rate, fft, hop) = (r.size("sampling_rate", 16_000)?, r.size("n_fft", 400)?, r.size("hop_length", 160)?);
    // A token has two frames.
    let frames = tokens.saturating_mul(2);
    let samples = match &r.given["chunk_length"] {
        Value::Null => frames.saturating_mul(hop),
        _ => r.size("chunk_length", 30)?.saturating_mul(rate),
    };
    if samples / hop != frames {
        let wanted = format!("as long as `max_source_positions` of config.json says: {frames} frames of {hop} samples");
        return Err(r.wrong("chunk_length", &wanted));
    }
    Ok(json!({
        "spectrogram": { "mels": mels, "rate": rate, "fft": fft, "hop": hop, "samples": samples },
        "transcription": transcription(ckpt, ending, vocab)?,
    }))
}

/// The tokens that texts begin with, by `generation_config.json` or, where that lacks them, `config.json`.
fn transcription(ckpt: &Checkpoint, ending: &Value, vocab: usize) -> Result<Value, FrontendError> {
    let path = if ending.is_null() { ckpt.config_path().to_path_buf() } else { ckpt.beside("generation_config.json") };
    let given = |key: &str| [ending, ckpt.config()].into_iter().map(|of| &of[key]).find(|v| !v.is_null());
    let wrong = |what: String| FrontendError::Tokenizer {
        path: path.clone(),
        what,
        help: "add it, as the model's files on the hub have it",
    };
    let token = |v: &Value| v.as_u64().filter(|id| *id < vocab as u64);
    let known = |key: &str, v: &Value| {
        token(v).ok_or_else(|| wrong(format!("`{key}` has {v}, not a token of the {vocab} that the model has")))
    };
    let one = |key: &str| given(key).map(|v| known(key, v)).transpose();
    let table = |key: &str, name: &dyn Fn(&str) -> String| -> Result<Map<String, Value>, FrontendError> {
        let Some(given) = given(key) else { return Ok(Map::new()) };
        let of = given.as_object().ok_or_else(|| wrong(format!("`{key}` is no object of tokens")))?;
        of.iter().map(|(k, v)| Ok((name(k), known(key, v)?.into()))).collect()
    };
    let start = one("decoder_start_token_id")?;
    let start =
        start.ok_or_else(|| wrong("`decoder_start_token_id` is missing: the token that texts begin with".into()))?;
    let code = |token: &str| token.trim_start_matches("<|").trim_end_matches("|>").to_lowercase();
    let (languages, tasks) = match given("is_multilingual").and_then(Value::as_bool) {
        Some(false) => Default::default(),
        _ => (table("lang_to_id", &code)?, table("task_to_id", &str::to_owned)?),
    };
    let forced = if languages.is_empty() { forced(given("forced_decoder_ids"), &known)? } else { vec![] };
    let no_timestamps = one("no_timestamps_token_id")?.filter(|token| forced.last() != Some(token));
    Ok(json!({
        "start": start, "forced": forced, "languages": languages, "tasks": tasks, "no_timestamps": no_timestamps,
    }))
}

/// Tokens at the places 1, 2... of a text, as files for one language name them.
fn forced(
    given: Option<&Value>,
    known: &dyn Fn(&str, &Value) -> Result<u64, FrontendError>,
) -> Result<Vec<u64>, FrontendError> {
    let pairs = given.and_then(Value::as_array).into_iter().flatten();
    let at = |(i, pair): (usize, &Value)| (pair[0].as_u64() == Some(i as u64 + 1)).then(|| pair[1].clone());
    let tokens: Vec<Value> = pairs.enumerate().map_while(at).filter(|token| !token.is_null()).collect();
    tokens.iter().map(|token| known("forced_decoder_ids", token)).collect()
}
