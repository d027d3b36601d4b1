//! How a client wants its texts: the members that completions and conversations share.

use crate::defaults::supply;
use crate::error::ApiError;
use crate::fields::Fields;
use crate::form;
use crate::json::Json;
use crate::model::Facts;
use crate::stream::is_traced;
use axum::http::HeaderMap;
use llmcc_model::{Params, Sampling, Terms, Token};
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Most choices of a request, over all of its prompts.
pub(crate) const MOST_CHOICES: usize = 128;
/// Most alternatives of a token that a client may ask for, as in OpenAI's interface.
pub(crate) const MOST_TOP: u64 = 20;
/// Most texts that may end a choice. OpenAI takes 4.
const MOST_STOPS: usize = 64;
/// The member with the tokens that choices are expected to begin with.
pub(crate) const EXPECTED: &str = "expected_token_ids";
/// The header with the seconds after which a request is too late.
const TIMEOUT: &str = "x-request-timeout";

/// A request for texts, without its prompt.
#[derive(Clone, Debug)]
pub(crate) struct Ask {
    /// As the first choice has them.
    pub(crate) params: Params,
    pub(crate) terms: Terms,
    /// Choices of each prompt.
    pub(crate) choices: usize,
    pub(crate) stream: bool,
    /// Whether a stream ends with counts of tokens.
    pub(crate) include_usage: bool,
    /// Whether replies have llama.cpp's times of tokens.
    pub(crate) timings: bool,
    /// Whether a stream says which tokens its events bring.
    pub(crate) traced: bool,
    /// Tokens that choices are expected to begin with, by their numbers.
    pub(crate) expected: Vec<Vec<Token>>,
}

impl Ask {
    /// Takes the members that say how texts are generated; `most_tokens`: where neither the client nor the model says.
    ///
    /// # Errors
    /// A member that is wrong, or is not supported.
    pub(crate) fn take(
        fields: &mut Fields,
        headers: &HeaderMap,
        facts: &Facts,
        most_tokens: u64,
    ) -> Result<Ask, ApiError> {
        refuse_unsupported(fields)?;
        predicted(fields)?;
        supply(fields, facts);
        let stream = fields.take("stream")?.unwrap_or(false);
        let limit = |name: &str, fields: &mut Fields| fields.count(name, 1, u64::from(u32::MAX));
        let (new, old) = (limit("max_completion_tokens", fields)?, limit("max_tokens", fields)?);
        if let (Some(new), Some(old)) = (new, old)
            && new != old
        {
            let message = format!("`max_tokens` is {old} and `max_completion_tokens` {new}: give one of them");
            return Err(ApiError::of_param("max_tokens", message));
        }
        let params = Params {
            max_tokens: new.or(old).unwrap_or(if limits_itself(facts) { 0 } else { most_tokens }),
            sampling: sampling(fields, &facts.generation)?,
            stop: stops(fields)?,
            stop_tokens: stop_tokens(fields, facts.vocab)?,
            ignore_eos: fields.take("ignore_eos")?.unwrap_or(false),
            show_special: !fields.take("skip_special_tokens")?.unwrap_or(true),
            logit_bias: biases(fields, facts.vocab)?,
            min_tokens: fields.count("min_tokens", 0, u64::from(u32::MAX))?.unwrap_or(0),
            presence_penalty: penalty(fields, "presence_penalty")?,
            frequency_penalty: penalty(fields, "frequency_penalty")?,
            grammar: form::take(fields)?,
            ..Params::default()
        };
        let choices = fields.count("n", 1, MOST_CHOICES as u64)?.unwrap_or(1) as usize;
        let include_usage = stream_options(fields, stream)?;
        let timings = fields.take("timings_per_token")?.unwrap_or(false);
        let (traced, expected) = (is_traced(headers), expected(fields, facts.vocab)?);
        Ok(Ask { params, terms: terms(fields, headers)?, choices, stream, include_usage, timings, traced, expected })
    }

    /// The parameters of choice `i` of a prompt: its seed is that many larger.
    pub(crate) fn of_choice(&self, i: usize) -> Params {
        let mut params = self.params.clone();
        params.sampling.seed = params.sampling.seed.wrapping_add(i as u64);
        params
    }
}

/// Takes llama.cpp's name of `max_tokens`; -1 stands for as many tokens as the context has room for.
fn predicted(fields: &mut Fields) -> Result<(), ApiError> {
    match fields.take::<i64>("n_predict")? {
        None => {}
        Some(-2 | -1) => fields.put("max_tokens", Json::Number(u32::MAX.into())),
        Some(n) if n > 0 => fields.put("max_completion_tokens", Json::Number(n.into())),
        Some(n) => {
            let message = format!("`n_predict` is {n}: give a count, or -1 for as many as the context has room for");
            return Err(ApiError::of_param("n_predict", message));
        }
    }
    Ok(())
}

/// Members of OpenAI's and vLLM's interfaces that have values which ask for nothing.
fn refuse_unsupported(fields: &mut Fields) -> Result<(), ApiError> {
    for (name, values) in [
        ("store", &["false"][..]),
        ("best_of", &["1"]),
        ("use_beam_search", &["false"]),
        ("length_penalty", &["1", "1.0"]),
        ("early_stopping", &["false"]),
        ("spaces_between_special_tokens", &["true"]),
        ("include_stop_str_in_output", &["false"]),
        ("return_token_ids", &["false"]),
        ("return_tokens_as_token_ids", &["false"]),
        ("stream_include_usage", &["false"]),
        ("return_progress", &["false"]),
        ("lora", &["[]"]),
    ] {
        fields.only(name, values)?;
    }
    // A place among requests: any is like the others.
    let _: Option<i64> = fields.take("id_slot")?;
    Ok(())
}

/// Whether the model's own settings limit its texts.
fn limits_itself(facts: &Facts) -> bool {
    ["max_new_tokens", "max_length"].iter().any(|name| facts.generation.get(*name).is_some_and(Value::is_u64))
}

/// How tokens are chosen: as the client says, else the model, else as OpenAI does.
fn sampling(fields: &mut Fields, own: &Map<String, Value>) -> Result<Sampling, ApiError> {
    let real = |given: Option<f64>, name: &str, usual: f32| {
        given.or_else(|| own.get(name)?.as_f64()).map_or(usual, |value| value as f32)
    };
    let count = |name: &str| own.get(name)?.as_u64().and_then(|n| u32::try_from(n).ok());
    let temperature = real(fields.within("temperature", 0.0, 100.0)?, "temperature", 1.0);
    let top_p = real(fields.within("top_p", 0.0, 1.0)?, "top_p", 1.0);
    let min_p = real(fields.within("min_p", 0.0, 1.0)?, "min_p", 0.0);
    let penalty = real(fields.within("repetition_penalty", 0.01, 100.0)?, "repetition_penalty", 1.0);
    // (vLLM writes -1 for all of them.)
    let top_k = match fields.take::<i64>("top_k")? {
        None => count("top_k").unwrap_or(0),
        Some(-1) => 0,
        Some(k) => u32::try_from(k).map_err(|_| {
            ApiError::of_param("top_k", format!("`top_k` is {k}: give at least 1, or 0 for all tokens"))
        })?,
    };
    let seed = match fields.take::<i64>("seed")? {
        Some(seed) => seed.cast_unsigned(),
        None => unforeseen(),
    };
    Ok(Sampling {
        temperature,
        // A structure that says nothing would stand for the model's own settings.
        top_k: if temperature == 0.0 { 1 } else { top_k },
        // At least one token is kept, and 0 would stand for no limit.
        top_p: if top_p == 0.0 { f32::MIN_POSITIVE } else { top_p },
        min_p,
        repetition_penalty: penalty,
        repetition_window: count("repetition_window").unwrap_or(0),
        seed,
    })
}

/// A number that is taken from the logits of tokens of the text.
fn penalty(fields: &mut Fields, name: &str) -> Result<f32, ApiError> {
    Ok(fields.within(name, -2.0, 2.0)?.map_or(0.0, |value| value as f32))
}

/// Texts that end a choice: one, or a list.
fn stops(fields: &mut Fields) -> Result<Vec<String>, ApiError> {
    let texts = match fields.json("stop") {
        None => vec![],
        Some(Json::String(text)) => vec![text],
        Some(other) => other
            .read::<Vec<String>>()
            .map_err(|_| ApiError::of_param("stop", "`stop` is neither a string nor a list of strings"))?,
    };
    match texts.iter().position(|text| text.is_empty() || text.contains('\0')) {
        Some(i) => Err(ApiError::of_param("stop", format!("text {i} of `stop` is empty or contains a NUL"))),
        None if texts.len() > MOST_STOPS => {
            Err(ApiError::of_param("stop", format!("`stop` has {} texts: give up to {MOST_STOPS}", texts.len())))
        }
        None => Ok(texts),
    }
}

fn stop_tokens(fields: &mut Fields, vocab: usize) -> Result<Vec<Token>, ApiError> {
    let tokens: Vec<Token> = fields.take("stop_token_ids")?.unwrap_or_default();
    tokens.iter().try_for_each(|token| known(*token, vocab, "stop_token_ids"))?;
    Ok(tokens)
}

/// Tokens that choices are expected to begin with: a list for each.
fn expected(fields: &mut Fields, vocab: usize) -> Result<Vec<Vec<Token>>, ApiError> {
    let lists: Vec<Vec<Token>> = fields.take(EXPECTED)?.unwrap_or_default();
    lists.iter().flatten().try_for_each(|token| known(*token, vocab, EXPECTED))?;
    Ok(lists)
}

/// Takes whether choices have the tokens of their texts.
///
/// # Errors
/// It is no boolean.
pub(crate) fn token_ids(fields: &mut Fields) -> Result<bool, ApiError> {
    Ok(fields.take("return_token_ids")?.unwrap_or(false))
}

/// Refuses a token outside the vocabulary.
pub(crate) fn known(token: Token, vocab: usize, param: &str) -> Result<(), ApiError> {
    if usize::try_from(token).is_ok_and(|token| token < vocab) {
        return Ok(());
    }
    let message =
        format!("`{param}`: token {token} is outside the vocabulary, whose tokens are 0 to {}", vocab.max(1) - 1);
    Err(ApiError::of_param(param, message))
}

/// Numbers that are added to logits, by tokens.
fn biases(fields: &mut Fields, vocab: usize) -> Result<Vec<(Token, f32)>, ApiError> {
    let given: BTreeMap<String, f32> = fields.take("logit_bias")?.unwrap_or_default();
    let bias = |(token, value): (String, f32)| {
        let param = "logit_bias";
        let token = token.parse::<Token>();
        let token = token.map_err(|_| ApiError::of_param(param, "`logit_bias`: names of members are tokens"))?;
        known(token, vocab, param)?;
        if !(-100.0..=100.0).contains(&value) {
            let message = format!("`logit_bias`: token {token} has {value}: give a number from -100 to 100");
            return Err(ApiError::of_param(param, message));
        }
        Ok((token, value))
    };
    given.into_iter().map(bias).collect()
}

/// Whether a stream ends with counts of tokens.
fn stream_options(fields: &mut Fields, stream: bool) -> Result<bool, ApiError> {
    let options = match fields.json("stream_options") {
        None => return Ok(false),
        Some(Json::Object(members)) if stream => members,
        Some(Json::Object(_)) => {
            return Err(ApiError::of_param("stream_options", "`stream_options` is for streams: set `stream` to true"));
        }
        Some(other) => {
            return Err(ApiError::of_type("stream_options", "an object", other.kind()));
        }
    };
    let mut options = Fields::of(options)?;
    let include = options.take("include_usage")?.unwrap_or(false);
    options.only("continuous_usage_stats", &["false"])?;
    // Padding of events changes no text.
    let _: Option<bool> = options.take("include_obfuscation")?;
    options.finish()?;
    Ok(include)
}

/// The request's place among others.
fn terms(fields: &mut Fields, headers: &HeaderMap) -> Result<Terms, ApiError> {
    // vLLM's smaller priorities go first, the engine's larger ones.
    let priority = fields.take::<i32>("priority")?.unwrap_or(0).saturating_neg();
    let salt = match fields.take::<String>("cache_salt")? {
        None => 0,
        Some(salt) if salt.is_empty() => {
            return Err(ApiError::of_param("cache_salt", "`cache_salt` is empty: leave it out, or give a secret text"));
        }
        Some(salt) => secret().hash_one(salt).max(1),
    };
    // (llama.cpp's word for a request that uses no computed beginnings: nobody else has its salt.)
    let salt = match fields.take::<bool>("cache_prompt")? {
        Some(false) => unforeseen().max(1),
        _ => salt,
    };
    let seconds = match fields.within("timeout", 0.0, 1e9)? {
        Some(seconds) => Some(seconds),
        None => header_seconds(headers)?,
    };
    Ok(Terms { priority, timeout: seconds.map(Duration::from_secs_f64), salt })
}

fn header_seconds(headers: &HeaderMap) -> Result<Option<f64>, ApiError> {
    let Some(value) = headers.get(TIMEOUT) else { return Ok(None) };
    let seconds = value.to_str().ok().and_then(|text| text.trim().parse::<f64>().ok());
    let fault = || ApiError::of_param(TIMEOUT, format!("the header {TIMEOUT} is no number of seconds from 0 to 1e9"));
    seconds.filter(|seconds| (0.0..=1e9).contains(seconds)).map(Some).ok_or_else(fault)
}

/// Keys of hashes, which nobody knows outside this process.
fn secret() -> &'static RandomState {
    static SECRET: OnceLock<RandomState> = OnceLock::new();
    SECRET.get_or_init(RandomState::new)
}

/// A number that differs from request to request.
pub fn unforeseen() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    secret().hash_one(NEXT.fetch_add(1, Ordering::Relaxed))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn ask(text: &str, own: Value) -> Result<Ask, ApiError> {
        let facts = Facts { vocab: 100, generation: own.as_object().cloned().unwrap_or_default(), ..Facts::default() };
        let mut fields = Fields::parse(text.as_bytes())?;
        let ask = Ask::take(&mut fields, &HeaderMap::new(), &facts, 16)?;
        fields.finish().map(|()| ask)
    }

    #[test]
    fn clients_come_before_models_and_these_before_the_interface() {
        let own = json!({ "temperature": 0.7, "top_k": 40, "top_p": 0.9, "max_new_tokens": 9 });
        let plain = ask("{}", own.clone()).unwrap().params;
        assert_eq!((plain.sampling.temperature, plain.sampling.top_k, plain.sampling.top_p), (0.7, 40, 0.9));
        assert_eq!(plain.max_tokens, 0, "the model's own limit");
        let given =
            ask(r#"{"temperature": 0.2, "top_k": -1, "max_tokens": 3, "seed": -1}"#, own.clone()).unwrap().params;
        assert_eq!((given.sampling.temperature, given.sampling.top_k, given.max_tokens), (0.2, 0, 3));
        assert_eq!(given.sampling.seed, u64::MAX);
        let greedy = ask(r#"{"temperature": 0}"#, own).unwrap().params;
        assert_eq!((greedy.sampling.temperature, greedy.sampling.top_k), (0.0, 1));
        let usual = ask("{}", json!({})).unwrap().params;
        assert_eq!((usual.sampling.temperature, usual.max_tokens), (1.0, 16));
    }

    #[test]
    fn wrong_members_are_named() {
        for (text, param) in [
            (r#"{"temperature": -1}"#, "temperature"),
            (r#"{"temperature": "hot"}"#, "temperature"),
            (r#"{"top_p": 1.5}"#, "top_p"),
            (r#"{"top_k": -2}"#, "top_k"),
            (r#"{"n": 0}"#, "n"),
            (r#"{"stop": 1}"#, "stop"),
            (r#"{"stop": [""]}"#, "stop"),
            (r#"{"stop_token_ids": [100]}"#, "stop_token_ids"),
            (r#"{"logit_bias": {"x": 1}}"#, "logit_bias"),
            (r#"{"logit_bias": {"1": 101}}"#, "logit_bias"),
            (r#"{"logit_bias": {"100": 1}}"#, "logit_bias"),
            (r#"{"max_tokens": 0}"#, "max_tokens"),
            (r#"{"max_tokens": 1, "max_completion_tokens": 2}"#, "max_tokens"),
            (r#"{"presence_penalty": 2.5}"#, "presence_penalty"),
            (r#"{"frequency_penalty": "x"}"#, "frequency_penalty"),
            (r#"{"min_tokens": -1}"#, "min_tokens"),
            (r#"{"response_format": {"type": "xml"}}"#, "response_format"),
            (r#"{"stream_options": {"include_usage": true}}"#, "stream_options"),
            (r#"{"timeout": -1}"#, "timeout"),
            (r#"{"cache_salt": ""}"#, "cache_salt"),
            (r#"{"guided_whitespace_pattern": "x"}"#, "guided_whitespace_pattern"),
        ] {
            assert_eq!(ask(text, json!({})).unwrap_err().param.as_deref(), Some(param), "{text}");
        }
    }

    #[test]
    fn salts_are_kept_apart_and_choices_have_seeds() {
        let salt = |text: &str| ask(text, json!({})).unwrap().terms.salt;
        assert_eq!(salt(r#"{"cache_salt": "a"}"#), salt(r#"{"cache_salt": "a"}"#));
        assert_ne!(salt(r#"{"cache_salt": "a"}"#), salt(r#"{"cache_salt": "b"}"#));
        assert_eq!(salt("{}"), 0);
        let two = ask(r#"{"n": 2, "seed": 7}"#, json!({})).unwrap();
        assert_eq!((two.of_choice(0).sampling.seed, two.of_choice(1).sampling.seed), (7, 8));
        let seed = || ask("{}", json!({})).unwrap().params.sampling.seed;
        assert_ne!(seed(), seed());
    }
}
