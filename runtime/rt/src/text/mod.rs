//! From text to tokens and back: the tokenizer and chat template the compiler put into the artifact.

mod template;
mod tokenizer;

use std::sync::{Arc, OnceLock};

use serde_json::Value as Json;

use crate::error::{Error, Result, Status};
use crate::image::Image;
pub use template::{Clock, Template};
pub use tokenizer::Tokenizer;

/// Everything a model knows about text. Tokenizer and template are parsed when first used.
pub struct Text {
    image: Arc<Image>,
    config: Config,
    tokenizer: OnceLock<Result<Tokenizer>>,
    template: OnceLock<Result<Template>>,
}

/// The artifact's text configuration.
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
    /// Chat templates by name; the plain one is called `default`.
    pub templates: Vec<(String, String)>,
    /// Other special tokens by name (`unk_token`, `pad_token`...), which templates may use.
    pub specials: Vec<(String, String)>,
}

impl Text {
    /// The text side of `image`; `None` when it has no tokenizer.
    ///
    /// # Errors
    /// The configuration is not the JSON the compiler writes.
    pub fn new(image: &Arc<Image>) -> Result<Option<Text>> {
        if image.tokenizer().is_empty() {
            return Ok(None);
        }
        let config = Config::parse(image.text_config())?;
        let (tokenizer, template) = Default::default();
        Ok(Some(Text { image: image.clone(), config, tokenizer, template }))
    }

    /// Special tokens and templates.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// The tokenizer, parsed on first use.
    pub fn tokenizer(&self) -> Result<&Tokenizer> {
        let made = self.tokenizer.get_or_init(|| {
            self.image.check_tokenizer()?;
            Tokenizer::new(self.image.tokenizer(), &self.config)
        });
        made.as_ref().map_err(Clone::clone)
    }

    /// The prompt for a conversation; see [`Template::render`].
    pub fn apply_template(&self, conversation: &str) -> Result<String> {
        let made = self.template.get_or_init(|| Template::new(&self.config, template::local_time));
        made.as_ref().map_err(Clone::clone)?.render(conversation)
    }
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

    /// Whether there is a chat template.
    pub fn has_template(&self) -> bool {
        !self.templates.is_empty()
    }

    /// Reads `{"bos_token", "bos_token_id", "eos_token", "eos_token_ids", "add_bos", "chat_template", "special_tokens"}`, all optional. `chat_template` is a
    /// string or, as in Hugging Face's files, a list of `{"name", "template"}`.
    pub fn parse(json: &str) -> Result<Config> {
        if json.is_empty() {
            return Ok(Config::default());
        }
        let damaged = |what: &str| Error::artifact(format!("the artifact's text configuration is damaged ({what}); compile it again"));
        let json: Json = serde_json::from_str(json).map_err(|e| damaged(&e.to_string()))?;
        let object = json.as_object().ok_or_else(|| damaged("not an object"))?;
        let text = |key: &str| object.get(key).and_then(Json::as_str).map(str::to_owned);
        let id = |value: &Json| value.as_i64().and_then(|x| i32::try_from(x).ok()).filter(|x| *x >= 0);
        let ids = |value: &Json| match value {
            Json::Array(list) => list.iter().map(id).collect::<Option<Vec<_>>>(),
            Json::Null => Some(Vec::new()),
            one => id(one).map(|x| vec![x]),
        };
        let eos = object.get("eos_token_ids").or_else(|| object.get("eos_token_id")).unwrap_or(&Json::Null);
        let specials = object.get("special_tokens").and_then(Json::as_object);
        Ok(Config {
            bos_token: text("bos_token"),
            bos_id: object.get("bos_token_id").and_then(id),
            eos_token: text("eos_token"),
            eos_ids: ids(eos).ok_or_else(|| damaged("eos_token_ids"))?,
            add_bos: object.get("add_bos").and_then(Json::as_bool),
            templates: templates(object.get("chat_template")).ok_or_else(|| damaged("chat_template"))?,
            specials: specials.into_iter().flatten().filter_map(|(k, v)| Some((k.clone(), v.as_str()?.to_owned()))).collect(),
        })
    }
}

fn templates(value: Option<&Json>) -> Option<Vec<(String, String)>> {
    match value {
        None | Some(Json::Null) => Some(Vec::new()),
        Some(Json::String(source)) if source.is_empty() => Some(Vec::new()),
        Some(Json::String(source)) => Some(vec![("default".into(), source.clone())]),
        Some(Json::Array(list)) => {
            let pair = |x: &Json| Some((x.get("name")?.as_str()?.to_owned(), x.get("template")?.as_str()?.to_owned()));
            list.iter().map(pair).collect()
        }
        Some(_) => None,
    }
}

/// The error for artifacts without a tokenizer.
pub fn no_tokenizer() -> Error {
    Error::new(Status::Unsupported, "the artifact has no tokenizer (its checkpoint had no tokenizer.json); use tokens instead of text")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn configurations_parse() {
        let config =
            Config::parse(r#"{"bos_token":"<s>","bos_token_id":1,"eos_token_ids":[2,3],"add_bos":true,"chat_template":"x"}"#).unwrap();
        assert_eq!((config.bos_id, config.eos_ids, config.add_bos), (Some(1), vec![2, 3], Some(true)));
        assert_eq!(config.templates, [("default".to_owned(), "x".to_owned())]);
        assert_eq!(Config::parse(r#"{"eos_token_id":7}"#).unwrap().eos_ids, [7]);
        let two = Config::parse(r#"{"chat_template":[{"name":"default","template":"a"},{"name":"tool_use","template":"b"}]}"#).unwrap();
        assert_eq!(two.templates.len(), 2);
        assert!(Config::parse("").unwrap().templates.is_empty());
        for bad in ["[", "[]", r#"{"eos_token_ids":["x"]}"#, r#"{"chat_template":3}"#] {
            assert_eq!(Config::parse(bad).unwrap_err().status, Status::Artifact);
        }
    }
}
