//! Log-probabilities of tokens, in the shapes of completions and of conversations.

use crate::model::Model;
use llmcc_model::{Event, Judged, Token};
use serde_json::{Map, Value, json};

/// A number for probabilities of 0, as in OpenAI's interface: JSON has no infinity.
pub(crate) const LEAST: f64 = -9999.0;

/// A token of a text, with its log-probability and the most probable tokens in its place.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    text: String,
    /// `None`: the first token of a prompt has none.
    logprob: Option<f64>,
    top: Vec<(String, f64)>,
}

impl Entry {
    /// About the bytes that it takes.
    pub(crate) fn bytes(&self) -> usize {
        let texts: usize = self.top.iter().map(|(text, _)| text.len() + size_of::<(String, f64)>()).sum();
        size_of::<Entry>() + self.text.len() + texts
    }

    /// A token with its log-probability, and the first `alternatives` of the most probable tokens in its place.
    fn new(model: &dyn Model, (token, logprob): (Token, f64), top: &[(Token, f64)], alternatives: u32) -> Entry {
        let top = top.iter().take(alternatives as usize);
        Entry {
            text: name(model, token),
            logprob: Some(logprob.max(LEAST)),
            top: top.map(|(token, logprob)| (name(model, *token), logprob.max(LEAST))).collect(),
        }
    }

    /// The token of an event, if it brings one; `alternatives`: how many tokens to list.
    pub(crate) fn of(event: &Event, alternatives: u32, model: &dyn Model) -> Option<Entry> {
        Some(Entry::new(model, (event.token?, event.logprob), &event.top, alternatives))
    }
}

/// The text of a token, special ones by their names.
fn name(model: &dyn Model, token: Token) -> String {
    model.detokenize(&[token], true).unwrap_or_default()
}

/// The tokens of a prompt, `rest` being all but the first one, which has no log-probability.
pub(crate) fn of_prompt(model: &dyn Model, prompt: &[Token], rest: &[Judged], alternatives: u32) -> Vec<Entry> {
    let first = prompt.first().map(|token| Entry { text: name(model, *token), logprob: None, top: vec![] });
    let entry = |one: &Judged| Entry::new(model, (one.token, one.logprob), &one.top, alternatives);
    first.into_iter().chain(rest.iter().map(entry)).collect()
}

/// The same as vLLM has them: for each token an object of the tokens in its place, by their ids. The rank of a token
/// that is not among the most probable ones is not known.
pub(crate) fn by_ids(model: &dyn Model, rest: &[Judged], alternatives: u32) -> Value {
    let one = |token: Token, logprob: f64, rank: Option<usize>| {
        (token.to_string(), json!({ "logprob": logprob.max(LEAST), "rank": rank, "decoded_token": name(model, token) }))
    };
    let place = |judged: &Judged| -> Value {
        let rank = judged.top.iter().position(|(token, _)| *token == judged.token).map(|i| i + 1);
        let top = judged.top.iter().take(alternatives as usize).enumerate();
        let top = top.map(|(i, (token, logprob))| one(*token, *logprob, Some(i + 1)));
        let mut all: Map<String, Value> = top.collect();
        all.extend([one(judged.token, judged.logprob, rank)]);
        all.into()
    };
    std::iter::once(Value::Null).chain(rest.iter().map(place)).collect()
}

/// The tokens of a part of a completion whose text begins `offset` characters after that of the choice.
pub(crate) fn of_completion(entries: &[Entry], mut offset: usize) -> Value {
    let mut offsets = vec![];
    for entry in entries {
        offsets.push(offset);
        offset += entry.text.chars().count();
    }
    let top = |entry: &Entry| -> Value {
        if entry.logprob.is_none() {
            return Value::Null;
        }
        let mut all = Map::new();
        // The most probable of tokens with the same text comes first.
        for (text, logprob) in &entry.top {
            all.entry(text.clone()).or_insert_with(|| json!(logprob));
        }
        all.into()
    };
    json!({
        "tokens": entries.iter().map(|entry| entry.text.as_str()).collect::<Vec<_>>(),
        "token_logprobs": entries.iter().map(|entry| entry.logprob).collect::<Vec<_>>(),
        "top_logprobs": entries.iter().map(top).collect::<Vec<_>>(),
        "text_offset": offsets,
    })
}

/// The tokens of a part of an answer.
pub(crate) fn of_chat<'a>(entries: impl IntoIterator<Item = &'a Entry>) -> Value {
    let one = |text: &str, logprob: Option<f64>| json!({ "token": text, "logprob": logprob, "bytes": bytes(text) });
    let whole = |entry: &Entry| {
        let mut token = one(&entry.text, entry.logprob);
        let top: Vec<Value> = entry.top.iter().map(|(text, logprob)| one(text, Some(*logprob))).collect();
        token["top_logprobs"] = top.into();
        token
    };
    json!({ "content": entries.into_iter().map(whole).collect::<Vec<_>>(), "refusal": null })
}

/// The bytes of a token's text; null where it is a part of a character.
fn bytes(text: &str) -> Option<&[u8]> {
    (!text.contains('\u{FFFD}')).then_some(text.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offsets_count_characters() {
        let entry = |text: &str| Entry {
            text: text.into(),
            logprob: Some(-1.0),
            top: vec![("a".into(), -0.5), ("a".into(), -3.0)],
        };
        let shown = of_completion(&[entry("é"), entry("xy"), entry("")], 4);
        assert_eq!(shown["text_offset"], json!([4, 5, 7]));
        assert_eq!(shown["top_logprobs"][0], json!({ "a": -0.5 }));
        assert_eq!(of_chat(&[entry("é"), entry("\u{FFFD}")])["content"][0]["bytes"], json!([195, 169]));
        assert_eq!(of_chat(&[entry("\u{FFFD}")])["content"][0]["bytes"], Value::Null);
    }
}
