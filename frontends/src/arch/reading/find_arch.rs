//! Finds the architecture for a `config.json`, and its class's head.

use crate::arch::blocks::entry::Arch;
use crate::arch::blocks::outputs::Top;
use crate::arch::models::ARCHS;
use crate::arch::reading::unsupported;
use crate::config::ConfigError;
use crate::config::fields::Fields;
use crate::spelling::nearest;
use serde_json::Value;

/// The class that a file names.
pub(crate) fn class<'a>(f: &Fields<'a>) -> Option<&'a str> {
    f.get("architectures").value().and_then(|a| a.get(0)).and_then(Value::as_str)
}

/// That of a file of several parts.
pub(crate) fn first_class(config: &serde_json::Map<String, Value>) -> Option<&str> {
    config.get("architectures")?.get(0)?.as_str()
}

/// The kind of a JSON value, in words.
pub(crate) fn kind(v: &Value) -> &'static str {
    match v {
        Value::Null => "`null`",
        Value::Bool(_) => "a truth value",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

/// Architectures that are supported.
#[derive(Clone, Copy)]
pub(crate) struct Supported(pub &'static [&'static Arch]);

impl Supported {
    /// `found`, which is like `name`, is not supported.
    pub(crate) fn unknown(self, name: &str, found: String) -> ConfigError {
        if let Some(why) = unsupported::reason(name) {
            return ConfigError::Beyond { found, why };
        }
        let nearest = nearest(name, self.0.iter().map(|a| a.model_type));
        ConfigError::UnknownArch { found, nearest, supported: self.names() }
    }

    /// The architecture of a file, and its class's head.
    pub(crate) fn find(self, f: &Fields) -> Result<(&'static Arch, Top), ConfigError> {
        let class = class(f);
        let by_type = match f.text("model_type") {
            Some(t) => Some(self.by_model_type(t).ok_or_else(|| self.unknown(t, format!("`{t}`")))?),
            None => None,
        };
        match (by_type, class) {
            (Some(a), Some(c)) => {
                let top = |a: &'static Arch| {
                    let classes = a.also("architectures").iter().copied();
                    std::iter::once(a.class).chain(classes).find_map(|class| Some((a, Top::of(c, class)?)))
                };
                let found = self.of_model_type(a.model_type).find_map(top).or_else(|| self.of_type(a.model_type, c));
                found.ok_or_else(|| self.unknown(a.model_type, format!("`{c}` of `{}`", a.model_type)))
            }
            // Without a class they are the whole that is named so.
            (Some(a), None) => match self.of_model_type(a.model_type).find(|a| !a.is_part()) {
                Some(whole) => Ok((whole, Top::Own)),
                None => Err(self.unknown(a.model_type, format!("`{}`", a.model_type))),
            },
            (None, Some(c)) => {
                let found = self.0.iter().find_map(|a| Some((*a, Top::of(c, a.class)?)));
                found.ok_or_else(|| self.unknown(c, format!("`{c}`")))
            }
            (None, None) => Err(f.missing("model_type")),
        }
    }

    /// The architecture of a class whose files give the `model_type` of a simpler one: `bert` for
    /// `jina_bert`.
    fn of_type(self, model_type: &str, class: &str) -> Option<(&'static Arch, Top)> {
        let after = |a: &&&Arch| a.model_type.strip_suffix(model_type).is_some_and(|start| start.ends_with('_'));
        self.0.iter().filter(after).find_map(|a| Some((*a, Top::of(class, a.class)?)))
    }

    /// The architectures with a `model_type`: a whole, and a part of it that stands alone.
    fn of_model_type(self, name: &str) -> impl Iterator<Item = &'static Arch> {
        self.0.iter().filter(move |a| a.model_type == name).copied()
    }

    /// The architecture with a `model_type`.
    pub(crate) fn by_model_type(self, name: &str) -> Option<&'static Arch> {
        self.0.iter().find(|a| a.model_type == name || a.also("model_type").contains(&name)).copied()
    }

    /// Their names.
    pub(crate) fn names(self) -> Vec<&'static str> {
        self.0.iter().map(|a| a.model_type).collect()
    }
}

/// Every supported architecture.
pub(crate) const KNOWN: Supported = Supported(ARCHS);

/// The architecture with a `model_type`.
pub fn by_model_type(name: &str) -> Option<&'static Arch> {
    KNOWN.by_model_type(name)
}
