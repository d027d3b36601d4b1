//! A model's text configuration.

use crate::error::{Error, Result};
use crate::generation::Defaults;
use crate::json::Json;
use crate::types::TypesAlone;

/// A model's text configuration.
#[derive(Clone, Debug, Default)]
pub struct Config {
    /// Text of the token that starts a sequence.
    pub bos_token: Option<String>,
    /// Its id.
    pub bos_id: Option<i32>,
    /// Text of the first end-of-sequence token.
    pub eos_token: Option<String>,
    /// Ids that end a generation.
    pub eos_ids: Vec<i32>,
    /// Whether a prompt starts with `bos_id`; `None`: as the tokenizer says.
    pub add_bos: Option<bool>,
    /// Id that a prompt ends with, whatever the tokenizer says.
    pub add_eos: Option<i32>,
    /// The model is given no types of tokens, whatever the tokenizer says.
    pub untyped: bool,
    /// Types of the tokens of a text alone, where not all are 0.
    pub types: Option<TypesAlone>,
    /// Decoded texts lose the spaces before punctuation; texts of a BPE only with the second flag.
    pub clean: (bool, bool),
    /// Prefix of a text that gets special tokens.
    pub prompt: String,
    /// Tokens that are left of a text that gets special tokens, these included.
    pub most: Option<usize>,
    /// Chat templates by name; the plain one is called `default`.
    pub templates: Vec<(String, String)>,
    /// Other special tokens by name (`unk_token`, `pad_token`...), which templates may use.
    pub specials: Vec<(String, String)>,
    /// Tokens that a text about a source begins with; none of a model that goes on with its prompt.
    pub starts: Vec<i32>,
    /// Defaults of generations.
    pub defaults: Defaults,
}

impl Config {
    /// Ids that end a generation.
    pub fn eos_ids(&self) -> &[i32] {
        &self.eos_ids
    }

    /// Id of the token that starts a sequence.
    pub fn bos_id(&self) -> Option<i32> {
        self.bos_id
    }

    /// Defaults of generations.
    pub fn defaults(&self) -> &Defaults {
        &self.defaults
    }

    /// Whether there is a chat template.
    pub fn has_template(&self) -> bool {
        !self.templates.is_empty()
    }

    /// Reads
    /// `{"bos_token", "bos_token_id", "eos_token", "eos_token_ids", "add_bos", "add_eos_id", "untyped", "types", "prompt", "most_tokens", "chat_template", "special_tokens", "starts", "generation", "clean_up_tokenization_spaces", "clean_up_bpe"}`,
    /// all optional. `chat_template` is a string or, as in Hugging Face's files, a list of
    /// `{"name", "template"}`.
    ///
    /// # Errors
    /// It is not the JSON the compiler writes.
    pub fn parse(json: &str) -> Result<Config> {
        if json.is_empty() {
            return Ok(Config::default());
        }
        let json: Json = serde_json::from_str(json).map_err(Error::damaged)?;
        if !matches!(json, Json::Map(_)) {
            return Err(Error::damaged("not an object"));
        }
        let text = |key: &str| json.get(key).and_then(Json::as_str).map(str::to_owned);
        let flag = |key: &str| matches!(json.get(key), Some(Json::Bool(true)));
        let eos = json.get("eos_token_ids").or_else(|| json.get("eos_token_id")).unwrap_or(&Json::Null);
        let specials = match json.get("special_tokens") {
            Some(Json::Map(items)) => items.as_slice(),
            _ => &[],
        };
        Ok(Config {
            bos_token: text("bos_token"),
            bos_id: json.get("bos_token_id").and_then(id),
            eos_token: text("eos_token"),
            eos_ids: ids(eos).ok_or_else(|| Error::damaged("eos_token_ids"))?,
            add_bos: match json.get("add_bos") {
                Some(Json::Bool(b)) => Some(*b),
                _ => None,
            },
            add_eos: json.get("add_eos_id").and_then(id),
            clean: (flag("clean_up_tokenization_spaces"), flag("clean_up_bpe")),
            prompt: text("prompt").unwrap_or_default(),
            most: json.get("most_tokens").and_then(id).map(|n| n as usize),
            untyped: flag("untyped"),
            types: match json.get("types") {
                None => None,
                Some(given) => Some(TypesAlone::parse(given).ok_or_else(|| Error::damaged("types"))?),
            },
            templates: templates(json.get("chat_template")).ok_or_else(|| Error::damaged("chat_template"))?,
            specials: specials.iter().filter_map(|(k, v)| Some((k.clone(), v.as_str()?.to_owned()))).collect(),
            starts: ids(json.get("starts").unwrap_or(&Json::Null)).ok_or_else(|| Error::damaged("starts"))?,
            defaults: match json.get("generation") {
                None => Defaults::default(),
                Some(given) => Defaults::of(given).ok_or_else(|| Error::damaged("generation"))?,
            },
        })
    }
}

fn id(value: &Json) -> Option<i32> {
    match value {
        Json::Int(n) => i32::try_from(*n).ok().filter(|x| *x >= 0),
        _ => None,
    }
}

fn ids(value: &Json) -> Option<Vec<i32>> {
    match value {
        Json::List(list) => list.iter().map(id).collect(),
        Json::Null => Some(Vec::new()),
        one => id(one).map(|x| vec![x]),
    }
}

fn templates(value: Option<&Json>) -> Option<Vec<(String, String)>> {
    match value {
        None | Some(Json::Null) => Some(Vec::new()),
        Some(Json::String(source)) if source.is_empty() => Some(Vec::new()),
        Some(Json::String(source)) => Some(vec![("default".into(), source.clone())]),
        Some(Json::List(list)) => {
            let pair = |x: &Json| Some((x.get("name")?.as_str()?.to_owned(), x.get("template")?.as_str()?.to_owned()));
            list.iter().map(pair).collect()
        }
        Some(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Kind;

    #[test]
    fn configurations_parse() {
        let config = Config::parse(
            r#"{"bos_token":"<s>","bos_token_id":1,"eos_token_ids":[2,3],"add_bos":true,"chat_template":"x"}"#,
        )
        .unwrap();
        assert_eq!((config.bos_id, config.eos_ids, config.add_bos), (Some(1), vec![2, 3], Some(true)));
        assert_eq!(config.templates, [("default".to_owned(), "x".to_owned())]);
        assert_eq!(Config::parse(r#"{"eos_token_id":7}"#).unwrap().eos_ids, [7]);
        let two = Config::parse(
            r#"{"chat_template":[{"name":"default","template":"a"},{"name":"tool_use","template":"b"}]}"#,
        )
        .unwrap();
        assert_eq!(two.templates.len(), 2);
        assert!(Config::parse("").unwrap().templates.is_empty());
        for bad in ["[", "[]", r#"{"eos_token_ids":["x"]}"#, r#"{"chat_template":3}"#, r#"{"types":[]}"#] {
            assert_eq!(Config::parse(bad).unwrap_err().kind, Kind::Damaged);
        }
    }
}
