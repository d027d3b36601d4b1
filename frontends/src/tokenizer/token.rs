//! Tokens as files name them: a text, with flags that say how it is met.

use serde_json::{Value, json};

/// How a token is met in a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Flags {
    /// Only where no letter is beside it.
    pub single_word: bool,
    /// With the spaces before it.
    pub lstrip: bool,
    /// With those behind it.
    pub rstrip: bool,
    /// Cut out of the normalizer's result; `None`: unless it is special.
    pub normalized: Option<bool>,
    /// Left out of texts that are made of ids.
    pub special: bool,
}

impl Flags {
    /// Wherever its text is.
    pub const NONE: Flags =
        Flags { single_word: false, lstrip: false, rstrip: false, normalized: Some(false), special: false };
    /// The same, of a special token.
    pub const SPECIAL: Flags = Flags { special: true, ..Flags::NONE };
}

/// A token as files name it: by its text alone, or with flags.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Token {
    pub text: String,
    pub flags: Option<Flags>,
}

impl Token {
    /// A text alone.
    pub fn plain(text: &str) -> Token {
        Token { text: text.into(), flags: None }
    }

    /// A text with flags.
    pub fn flagged(text: &str, flags: Flags) -> Token {
        Token { text: text.into(), flags: Some(flags) }
    }

    /// A text, an object with `content`, or nothing.
    pub fn read(value: &Value, what: &str) -> Result<Option<Token>, String> {
        let wrong = || format!("`{what}` is {value}, which is not a token");
        match value {
            Value::Null => Ok(None),
            Value::String(text) => Ok(Some(Token::plain(text))),
            Value::Object(of) => {
                let text = of.get("content").and_then(Value::as_str).ok_or_else(wrong)?;
                let flag = |name: &str| match of.get(name) {
                    None | Some(Value::Null) => Ok(None),
                    Some(Value::Bool(b)) => Ok(Some(*b)),
                    Some(other) => {
                        Err(format!("`{name}` of the token {text:?} in `{what}` is {other}; it must be true or false"))
                    }
                };
                let flags = Flags {
                    single_word: flag("single_word")?.unwrap_or(false),
                    lstrip: flag("lstrip")?.unwrap_or(false),
                    rstrip: flag("rstrip")?.unwrap_or(false),
                    normalized: flag("normalized")?,
                    special: flag("special")?.unwrap_or(false),
                };
                Ok(Some(Token::flagged(text, flags)))
            }
            _ => Err(wrong()),
        }
    }

    /// As the `tokenizers` crate writes it.
    pub fn entry(&self, id: u64) -> Value {
        entry(id, &self.text, self.flags.unwrap_or(Flags::SPECIAL))
    }

    /// The same as a special one.
    pub fn into_special(self) -> Token {
        Token { flags: self.flags.map(|flags| Flags { special: true, ..flags }), ..self }
    }

    pub fn list(value: &Value, what: &str) -> Result<Vec<Token>, String> {
        let list = value.as_array().ok_or_else(|| format!("`{what}` is not a list of tokens"))?;
        list.iter().map(|v| Token::read(v, what)).filter_map(Result::transpose).collect()
    }
}

/// A token as the `tokenizers` crate writes it.
pub(super) fn entry(id: u64, text: &str, f: Flags) -> Value {
    json!({
        "id": id, "content": text, "single_word": f.single_word, "lstrip": f.lstrip, "rstrip": f.rstrip,
        "normalized": f.normalized.unwrap_or(!f.special), "special": f.special,
    })
}
