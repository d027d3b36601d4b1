//! Defaults of a model's generations: its `generation_config.json`, as the compiler has checked it.

use crate::json::Json;

/// How tokens are chosen, and when a generation ends, where the caller does not say. All zero and empty: the most
/// probable token, until the text ends.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Defaults {
    /// 0: the most probable token.
    pub temperature: f32,
    /// 0: all tokens.
    pub top_k: u32,
    /// 0: all tokens.
    pub top_p: f32,
    /// 0: all tokens.
    pub min_p: f32,
    /// 0: all tokens.
    pub typical_p: f32,
    /// 0: none.
    pub repetition_penalty: f32,
    /// Tokens that the penalty looks back at; 0: all.
    pub repetition_window: u32,
    /// Most tokens to generate; 0: any number.
    pub max_new_tokens: usize,
    /// Longest sequence, the prompt included; 0: the model's.
    pub max_length: usize,
    /// Tokens before which no generation ends.
    pub min_new_tokens: usize,
    /// Length of a sequence, the prompt included, before which it does not end.
    pub min_length: usize,
    /// No so many tokens in a row occur twice; 0: they may.
    pub no_repeat_ngram_size: usize,
    /// Tokens that are never chosen.
    pub suppress_tokens: Vec<i32>,
    /// Tokens that are not chosen first.
    pub begin_suppress_tokens: Vec<i32>,
    /// Sequences of tokens that never come to be.
    pub bad_words_ids: Vec<Vec<i32>>,
    /// Sequences of tokens with a value: it is added to the logit of the last token where the text
    /// ends with the others.
    pub sequence_bias: Vec<(Vec<i32>, f32)>,
    /// Texts that end a generation.
    pub stop_strings: Vec<String>,
}

impl Defaults {
    /// Reads the object that the compiler writes; `None`: it is another one.
    pub(crate) fn of(json: &Json) -> Option<Defaults> {
        if !matches!(json, Json::Map(_)) {
            return None;
        }
        let list = |key: &str| match json.get(key) {
            None => Some(&[][..]),
            Some(Json::List(list)) => Some(list.as_slice()),
            Some(_) => None,
        };
        let real = |key: &str| json.get(key).map_or(Some(0.0), number);
        let count = |key: &str| json.get(key).map_or(Some(0), whole);
        let small = |key: &str| count(key).and_then(|n| u32::try_from(n).ok());
        let bias = |entry: &Json| match entry {
            Json::List(pair) => Some((ids(pair.first()?)?, number(pair.get(1)?)?)),
            _ => None,
        };
        Some(Defaults {
            temperature: real("temperature")?,
            top_k: small("top_k")?,
            top_p: real("top_p")?,
            min_p: real("min_p")?,
            typical_p: real("typical_p")?,
            repetition_penalty: real("repetition_penalty")?,
            repetition_window: small("repetition_window")?,
            max_new_tokens: count("max_new_tokens")?,
            max_length: count("max_length")?,
            min_new_tokens: count("min_new_tokens")?,
            min_length: count("min_length")?,
            no_repeat_ngram_size: count("no_repeat_ngram_size")?,
            suppress_tokens: json.get("suppress_tokens").map_or(Some(vec![]), ids)?,
            begin_suppress_tokens: json.get("begin_suppress_tokens").map_or(Some(vec![]), ids)?,
            bad_words_ids: list("bad_words_ids")?.iter().map(ids).collect::<Option<_>>()?,
            sequence_bias: list("sequence_bias")?.iter().map(bias).collect::<Option<_>>()?,
            stop_strings: list("stop_strings")?.iter().map(|s| s.as_str().map(str::to_owned)).collect::<Option<_>>()?,
        })
    }
}

fn number(value: &Json) -> Option<f32> {
    match value {
        Json::Int(n) => Some(*n as f32),
        Json::Float(x) => Some(*x as f32),
        _ => None,
    }
}

fn whole(value: &Json) -> Option<usize> {
    match value {
        Json::Int(n) => usize::try_from(*n).ok(),
        _ => None,
    }
}

fn ids(value: &Json) -> Option<Vec<i32>> {
    match value {
        Json::List(list) => list.iter().map(|id| whole(id).and_then(|id| i32::try_from(id).ok())).collect(),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Option<Defaults> {
        Defaults::of(&serde_json::from_str(text).unwrap())
    }

    #[test]
    fn what_the_compiler_writes_is_read() {
        assert_eq!(of("{}"), Some(Defaults::default()));
        let some =
            of(r#"{"temperature":1.0,"top_k":50,"top_p":0.5,"suppress_tokens":[1,2],"bad_words_ids":[[3],[4,5]],
                "sequence_bias":[[[6],-1.5]],"stop_strings":["x"],"max_new_tokens":7}"#)
            .unwrap();
        assert_eq!((some.temperature, some.top_k, some.top_p, some.max_new_tokens), (1.0, 50, 0.5, 7));
        assert_eq!((some.suppress_tokens, some.bad_words_ids), (vec![1, 2], vec![vec![3], vec![4, 5]]));
        assert_eq!((some.sequence_bias, some.stop_strings), (vec![(vec![6], -1.5)], vec!["x".to_owned()]));
        for bad in ["[]", r#"{"top_k":"x"}"#, r#"{"suppress_tokens":[-1]}"#, r#"{"bad_words_ids":[1]}"#] {
            assert_eq!(of(bad), None, "{bad}");
        }
    }
}
