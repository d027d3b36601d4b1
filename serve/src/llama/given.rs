//! Prompts as llama.cpp takes them: a text, tokens, both in one list, an object, or a list of these.

use crate::ask::known;
use crate::error::ApiError;
use crate::fields::Fields;
use crate::json::Json;
use crate::model::Model;
use llmcc_model::Token;

/// A part of a prompt.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Part {
    Text(String),
    Token(Token),
}

/// A prompt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Given(Vec<Part>);

impl Given {
    /// A prompt that is a text.
    pub(crate) fn text(text: String) -> Given {
        Given(vec![Part::Text(text)])
    }

    /// Its tokens; `special`: a text at its beginning has the special tokens around a prompt.
    ///
    /// # Errors
    /// No tokenizer.
    pub(crate) fn tokens(&self, model: &dyn Model, special: bool) -> Result<Vec<Token>, ApiError> {
        if let [Part::Text(text)] = &self.0[..] {
            return Ok(model.tokenize(text, special)?);
        }
        let mut all = vec![];
        if let (true, Some(Part::Text(_)), Some(bos)) = (special, self.0.first(), model.facts().bos) {
            all.push(bos);
        }
        for part in &self.0 {
            match part {
                Part::Text(text) => all.extend(model.tokenize(text, false)?),
                Part::Token(token) => all.push(*token),
            }
        }
        Ok(all)
    }
}

/// Takes the prompts of a request.
///
/// # Errors
/// There are none; a value of another type; a token outside the vocabulary; images or sounds.
pub(crate) fn texts(fields: &mut Fields, name: &str, vocab: usize) -> Result<Vec<Given>, ApiError> {
    let reader = Reader { name, vocab };
    match fields.json(name).ok_or_else(|| ApiError::missing(name))? {
        Json::List(all) if all.is_empty() => {
            Err(ApiError::of_param(name, format!("`{name}` is an empty list: give at least one text")))
        }
        // Tokens among texts are parts of one prompt.
        Json::List(all) if all.iter().any(|one| matches!(one, Json::Number(_))) => Ok(vec![reader.mixed(&all)?]),
        Json::List(all) => all.iter().map(|one| reader.one(one)).collect(),
        one => Ok(vec![reader.one(&one)?]),
    }
}

struct Reader<'a> {
    name: &'a str,
    vocab: usize,
}

impl Reader<'_> {
    fn wrong(&self) -> ApiError {
        let name = self.name;
        let message = format!(
            "`{name}` is neither a text, nor a list of tokens and texts, nor an object with `prompt_string` or \
             `content`, nor a list of these"
        );
        ApiError::of_param(name, message)
    }

    /// One prompt.
    fn one(&self, json: &Json) -> Result<Given, ApiError> {
        match json {
            Json::String(text) => Ok(Given::text(text.clone())),
            Json::List(parts) => self.mixed(parts),
            Json::Object(_) => self.object(json),
            _ => Err(self.wrong()),
        }
    }

    /// Tokens and texts of one prompt.
    fn mixed(&self, parts: &[Json]) -> Result<Given, ApiError> {
        let part = |json: &Json| match json {
            Json::String(text) => Ok(Part::Text(text.clone())),
            Json::Number(_) => {
                let token: Token = json.read().map_err(|_| self.wrong())?;
                known(token, self.vocab, self.name).map(|()| Part::Token(token))
            }
            _ => Err(self.wrong()),
        };
        parts.iter().map(part).collect::<Result<_, _>>().map(Given)
    }

    /// `{"prompt_string": "..."}`, or `{"content": [{"type": "text", "text": "..."}]}`.
    fn object(&self, json: &Json) -> Result<Given, ApiError> {
        let mut members = Fields::of_json(json.clone(), self.name)?;
        if members.json("multimodal_data").is_some_and(|data| data != Json::List(vec![])) {
            let message = format!("`{}.multimodal_data` is not supported: give texts", self.name);
            return Err(ApiError::of_param(self.name, message).code("unsupported_parameter"));
        }
        let given = match (members.take::<String>("prompt_string")?, members.json("content")) {
            (Some(text), None) => Given::text(text),
            (None, Some(Json::List(parts))) => Given::text(self.joined(&parts)?),
            _ => return Err(self.wrong()),
        };
        members.finish().map(|()| given)
    }

    fn joined(&self, parts: &[Json]) -> Result<String, ApiError> {
        let text = |part: &Json| match (part.get("type").and_then(Json::as_str), part.get("text")) {
            (Some("text"), Some(Json::String(text))) => Ok(text.clone()),
            (kind, _) => {
                let message =
                    format!("`{}.content` has a part of type `{}`: give texts", self.name, kind.unwrap_or("?"));
                Err(ApiError::of_param(self.name, message))
            }
        };
        parts.iter().map(text).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Vec<Given>, ApiError> {
        let mut fields = Fields::parse(format!(r#"{{"prompt": {text}}}"#).as_bytes())?;
        texts(&mut fields, "prompt", 100)
    }

    #[test]
    fn one_prompt_or_several() {
        let text = |text: &str| Given::text(text.into());
        let mixed = Given(vec![Part::Token(1), Part::Text("a".into()), Part::Token(2)]);
        for (given, wanted) in [
            (r#""a""#, vec![text("a")]),
            (r#"[1, "a", 2]"#, vec![mixed.clone()]),
            (r#"["a", "b"]"#, vec![text("a"), text("b")]),
            (r#"["b", [1, "a", 2]]"#, vec![text("b"), mixed]),
            (r#"{"prompt_string": "a"}"#, vec![text("a")]),
            (r#"[{"content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}]"#, vec![text("ab")]),
        ] {
            assert_eq!(read(given).map_err(|e| e.message), Ok(wanted), "{given}");
        }
    }

    #[test]
    fn wrong_prompts_are_named() {
        for given in [
            "[]",
            "3",
            "null",
            "[100]",
            "[true]",
            r#"{"content": "a"}"#,
            r#"{"content": [{"type": "image_url"}]}"#,
            r#"{"prompt_string": "a", "multimodal_data": ["x"]}"#,
            r#"{"prompt_string": "a", "x": 1}"#,
        ] {
            assert!(read(given).is_err(), "{given}");
        }
    }
}
