//! The members of llama.cpp's requests for texts.

use crate::ask::{Ask, unforeseen};
use crate::error::ApiError;
use crate::fields::Fields;
use crate::json::Json;
use crate::model::{Facts, Model};
use axum::http::HeaderMap;
use llmcc_model::Token;
use serde_json::{Number, Value, json};

/// The steps in which the engine chooses a token, by llama.cpp's names.
pub(crate) const SAMPLERS: [&str; 5] = ["penalties", "temperature", "top_k", "top_p", "min_p"];

/// Most alternatives of a token.
const MOST_PROBS: u64 = 1024;
/// How llama.cpp chooses tokens where neither the client nor the model says it.
const USUAL: [(&str, f64); 4] = [("temperature", 0.8), ("top_k", 40.0), ("top_p", 0.95), ("min_p", 0.05)];

/// Samplers and limits that the engine has not, each with the value that turns it off.
const OFF: &[(&str, &[f64])] = &[
    ("dynatemp_range", &[0.0]),
    ("typical_p", &[1.0]),
    ("top_n_sigma", &[-1.0, 0.0]),
    ("xtc_probability", &[0.0]),
    ("dry_multiplier", &[0.0]),
    ("mirostat", &[0.0]),
    ("adaptive_target", &[-1.0]),
    ("min_keep", &[0.0]),
    ("t_max_prompt_ms", &[-1.0, 0.0]),
    ("t_max_predict_ms", &[-1.0, 0.0]),
    ("n_indent", &[0.0]),
];
/// Members without a meaning while the sampler that they belong to is off, or while texts end at the context's end.
const IDLE: &[&str] = &[
    "dynatemp_exponent",
    "xtc_threshold",
    "dry_base",
    "dry_allowed_length",
    "dry_penalty_last_n",
    "dry_sequence_breakers",
    "mirostat_tau",
    "mirostat_eta",
    "adaptive_decay",
    "n_keep",
    "n_discard",
    "n_cache_reuse",
    "backend_sampling",
    "speculative.n_max",
    "speculative.n_min",
    "speculative.p_min",
    "speculative.type",
    "grammar_triggers",
    "preserved_tokens",
    "reasoning_format",
];

/// A request for texts.
#[derive(Clone, Debug)]
pub(crate) struct Native {
    pub(crate) ask: Ask,
    /// Tokens to list with their probabilities in the place of each token.
    pub(crate) probs: u32,
    /// Whether these are the probabilities among the tokens that sampling leaves.
    pub(crate) after_sampling: bool,
    /// Whether whole documents have the tokens of the text.
    pub(crate) tokens: bool,
    /// The prompt is computed, and no text is wanted.
    pub(crate) prompt_only: bool,
    /// Paths of the members that documents have; none: all.
    pub(crate) members: Vec<String>,
}

impl Native {
    /// Takes the members of a request, but its prompt.
    ///
    /// # Errors
    /// A member that is wrong, or is not supported.
    pub(crate) fn take(fields: &mut Fields, headers: &HeaderMap, model: &dyn Model) -> Result<Native, ApiError> {
        let facts = model.facts();
        refuse_unsupported(fields)?;
        let probs = fields.count("n_probs", 0, MOST_PROBS)?.unwrap_or(0) as u32;
        let after_sampling = fields.take("post_sampling_probs")?.unwrap_or(false);
        let tokens = fields.take("return_tokens")?.unwrap_or(false);
        let members = fields.take("response_fields")?.unwrap_or_default();
        // (A limit has two names.)
        let prompt_only = ["n_predict", "max_tokens"].iter().any(|name| fields.take_zero(name));
        let window = renamed(fields, facts)?;
        let biases = biases(fields, model)?;
        let mut ask = Ask::take(fields, headers, facts, 0)?;
        ask.params.logit_bias = biases;
        if let Some(window) = window {
            ask.params.sampling.repetition_window = window;
        }
        if ask.params.ignore_eos {
            // (llama.cpp forbids these tokens, so that none is in the text.)
            ask.params.logit_bias.extend(facts.ends.iter().map(|token| (*token, f32::NEG_INFINITY)));
        }
        let made = Native { ask, probs, after_sampling, tokens, prompt_only, members };
        made.with_probs(facts)
    }

    /// The same, with the log-probabilities that the probabilities of its tokens need.
    fn with_probs(mut self, facts: &Facts) -> Result<Native, ApiError> {
        if self.probs == 0 {
            return Ok(self);
        }
        let mut wanted = self.probs;
        if self.after_sampling {
            let params = &self.ask.params;
            let penalized = params.presence_penalty != 0.0
                || params.frequency_penalty != 0.0
                || params.sampling.repetition_penalty != 1.0
                || params.grammar.is_some()
                || !params.logit_bias.is_empty();
            let kept = if params.sampling.top_k == 0 { facts.vocab as u64 } else { params.sampling.top_k.into() };
            if penalized || kept > MOST_PROBS {
                let message = format!(
                    "`post_sampling_probs` is for requests without penalties, biases and grammars, and with a `top_k` \
                     of up to {MOST_PROBS}: leave it out for the probabilities before sampling"
                );
                return Err(ApiError::of_param("post_sampling_probs", message).code("unsupported_parameter"));
            }
            wanted = wanted.max(kept as u32);
        }
        self.ask.params.logprobs = Some(wanted.min(u32::try_from(facts.vocab).unwrap_or(u32::MAX)));
        Ok(self)
    }
}

/// Members that have values which ask for nothing.
fn refuse_unsupported(fields: &mut Fields) -> Result<(), ApiError> {
    for (name, values) in OFF {
        match fields.take::<f64>(name)? {
            // (A target below 0 is none.)
            Some(value) if *name == "adaptive_target" && value < 0.0 => {}
            Some(value) if !values.contains(&value) => {
                let message = format!("`{name}` is not supported: leave it out, or give {}", values[0]);
                return Err(ApiError::of_param(name, message).code("unsupported_parameter"));
            }
            _ => {}
        }
    }
    IDLE.iter().for_each(|name| drop(fields.json(name)));
    fields.only("samplers", &[&json!(SAMPLERS).to_string()])?;
    for (name, values) in [("image_data", &["[]"][..]), ("grammar_lazy", &["false"])] {
        fields.only(name, values)?;
    }
    Ok(())
}

/// Gives members the names that [`Ask::take`] knows. Returns the tokens that a repetition counts within.
fn renamed(fields: &mut Fields, facts: &Facts) -> Result<Option<u32>, ApiError> {
    for (own, name) in [("repeat_penalty", "repetition_penalty"), ("n_cmpl", "n")] {
        if let Some(value) = fields.json(own) {
            fields.put(name, value);
        }
    }
    let window = match fields.take::<i64>("repeat_last_n")? {
        None => None,
        Some(-1) => Some(0),
        Some(0) => {
            let _ = fields.json("repetition_penalty");
            None
        }
        Some(n) => Some(u32::try_from(n).map_err(|_| {
            let message = format!("`repeat_last_n` is {n}: give a count of tokens, 0 for none or -1 for all");
            ApiError::of_param("repeat_last_n", message)
        })?),
    };
    // (-1 stands for a seed of the server's choice.)
    match fields.json("seed") {
        None => {}
        Some(Json::Number(n)) if n.as_i64() == Some(-1) => {
            fields.put("seed", Json::Number(unforeseen().cast_signed().into()));
        }
        Some(seed) => fields.put("seed", seed),
    }
    for (name, value) in USUAL {
        if facts.defaults.get(name).or_else(|| facts.generation.get(name)).is_none() {
            let value = if name == "top_k" { Some((value as u32).into()) } else { Number::from_f64(value) };
            fields.supply(name, &value.map_or(Value::Null, Value::Number));
        }
    }
    Ok(window)
}

/// Numbers that are added to logits: `[[token or text, number or false], ...]`, or an object.
fn biases(fields: &mut Fields, model: &dyn Model) -> Result<Vec<(Token, f32)>, ApiError> {
    const NAME: &str = "logit_bias";
    let wrong = |what: &str| ApiError::of_param(NAME, format!("`{NAME}`: {what}"));
    let pairs: Vec<(Json, Json)> = match fields.json(NAME) {
        None => vec![],
        Some(Json::Object(members)) => members.into_iter().map(|(name, value)| (Json::String(name), value)).collect(),
        Some(Json::List(all)) => {
            let pair = |one: Json| match one {
                Json::List(pair) => <[Json; 2]>::try_from(pair).map(|[key, value]| (key, value)).ok(),
                _ => None,
            };
            let pairs: Option<_> = all.into_iter().map(pair).collect();
            pairs.ok_or_else(|| wrong("elements are lists of a token or a text and a number"))?
        }
        Some(other) => return Err(ApiError::of_type(NAME, "a list or an object", other.kind())),
    };
    let mut all = vec![];
    for (key, value) in pairs {
        let value = match value {
            Json::Bool(false) => f32::NEG_INFINITY,
            other => other.read::<f32>().map_err(|_| wrong("values are numbers, or false"))?,
        };
        let tokens = match &key {
            Json::Number(_) => vec![key.read::<Token>().map_err(|_| wrong("a token is no whole number"))?],
            Json::String(text) => match text.parse::<Token>() {
                Ok(token) => vec![token],
                Err(_) => model.tokenize(text, false)?,
            },
            _ => return Err(wrong("names are tokens or texts")),
        };
        for token in tokens {
            crate::ask::known(token, model.facts().vocab, NAME)?;
            all.push((token, value));
        }
    }
    Ok(all)
}
