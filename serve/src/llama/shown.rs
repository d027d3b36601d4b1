//! Documents of texts, as llama.cpp has them.

use crate::json::short;
use crate::llama::native::{Native, SAMPLERS};
use crate::model::Facts;
use crate::timings::Timings;
use llmcc_model::{End, Finish, Grammar, Token};
use serde_json::{Map, Value, json};

/// A text that has ended.
#[derive(Clone, Debug, Default)]
pub(crate) struct Told {
    pub(crate) index: usize,
    pub(crate) text: String,
    pub(crate) tokens: Vec<Token>,
    /// Tokens with their probabilities.
    pub(crate) entries: Vec<Value>,
    pub(crate) finish: Option<Finish>,
    pub(crate) end: Option<End>,
}

/// How a text was asked for.
pub(crate) fn settings(native: &Native, facts: &Facts) -> Value {
    let (params, sampling) = (&native.ask.params, &native.ask.params.sampling);
    let bias = |(token, value): &(Token, f32)| {
        let value = if value.is_finite() { short(*value) } else { Value::Null };
        json!({ "token": token, "bias": value })
    };
    let most = most(native, facts);
    let grammar = match &params.grammar {
        Some(Grammar::Lark(source) | Grammar::JsonSchema(source) | Grammar::Regex(source)) => source.as_str(),
        _ => "",
    };
    json!({
        "n_predict": most, "max_tokens": most, "seed": sampling.seed,
        "temperature": short(sampling.temperature), "top_k": sampling.top_k, "top_p": short(sampling.top_p),
        "min_p": short(sampling.min_p), "repeat_penalty": short(sampling.repetition_penalty),
        "repeat_last_n": if sampling.repetition_window == 0 { -1 } else { i64::from(sampling.repetition_window) },
        "presence_penalty": short(params.presence_penalty), "frequency_penalty": short(params.frequency_penalty),
        "samplers": SAMPLERS, "dynatemp_range": 0.0, "typical_p": 1.0, "top_n_sigma": -1.0, "xtc_probability": 0.0,
        "dry_multiplier": 0.0, "mirostat": 0, "adaptive_target": -1.0, "adaptive_decay": 0.0, "min_keep": 0,
        "stop": params.stop, "ignore_eos": params.ignore_eos, "stream": native.ask.stream, "n_probs": native.probs,
        "post_sampling_probs": native.after_sampling, "timings_per_token": native.ask.timings, "grammar": grammar,
        "logit_bias": params.logit_bias.iter().map(bias).collect::<Vec<Value>>(), "lora": [],
    })
}

/// Most tokens of a text; -1: as many as the context has room for.
fn most(native: &Native, facts: &Facts) -> i64 {
    match native.ask.params.max_tokens {
        _ if native.prompt_only => 0,
        0 => facts.generation.get("max_new_tokens").and_then(Value::as_i64).unwrap_or(-1),
        n if n >= u64::from(u32::MAX) => -1,
        n => n.cast_signed(),
    }
}

/// The document of a text that has ended; `prompt`: its prompt's text.
pub(crate) fn whole(told: &Told, native: &Native, facts: &Facts, (model, prompt): (&str, &str)) -> Value {
    let times = told.end.as_ref().map(Timings::of).unwrap_or_default();
    let evaluated = told.end.as_ref().map_or(0, |end| end.prompt_tokens);
    let (kind, word) = match told.finish {
        Some(Finish::Token) => ("eos", ""),
        // (Among several texts the engine does not say which one it was.)
        Some(Finish::Text) => ("word", if let [only] = &native.ask.params.stop[..] { only.as_str() } else { "" }),
        Some(_) => ("limit", ""),
        None => ("none", ""),
    };
    let mut document = json!({
        "index": told.index, "content": told.text, "tokens": [], "stop": true, "model": model, "prompt": prompt,
        "tokens_predicted": times.generated, "tokens_evaluated": evaluated,
        "tokens_cached": evaluated + times.generated, "generation_settings": settings(native, facts),
        "has_new_line": told.text.contains('\n'), "truncated": told.finish == Some(Finish::Context),
        "stop_type": kind, "stopping_word": word, "timings": times.json(),
    });
    if native.tokens {
        document["tokens"] = json!(told.tokens);
    }
    if native.probs > 0 {
        document["completion_probabilities"] = json!(told.entries);
    }
    chosen(document, &native.members)
}

/// The members of a document that a client wants, by their paths; no paths: all of them.
fn chosen(document: Value, paths: &[String]) -> Value {
    if paths.is_empty() {
        return document;
    }
    let member = |path: &String| Some((path.clone(), document.pointer(&format!("/{path}"))?.clone()));
    paths.iter().filter_map(member).collect::<Map<String, Value>>().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documents_have_the_members_that_are_wanted() {
        let document = json!({ "a": { "b": 1, "c": 2 }, "d": 3 });
        assert_eq!(chosen(document.clone(), &[]), document);
        let paths = ["a/b", "d", "x"].map(String::from);
        assert_eq!(chosen(document, &paths), json!({ "a/b": 1, "d": 3 }));
    }
}
