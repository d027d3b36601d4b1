//! Languages of grammars, of which a runtime without grammars knows the names too.

use std::fmt;

/// A language of grammars.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Language {
    /// A JSON schema.
    JsonSchema,
    /// A regular expression that the whole text matches.
    Regex,
    /// A context-free grammar as Lark writes it.
    Lark,
    /// A JSON list of texts, one of which the text is.
    Choices,
}

impl fmt::Display for Language {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Language::JsonSchema => "JSON schema",
            Language::Regex => "regular expression",
            Language::Lark => "grammar",
            Language::Choices => "list of choices",
        })
    }
}
