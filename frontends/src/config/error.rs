//! Faults of a `config.json`, and the words of their messages.

/// A fault of a `config.json`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// Not an object.
    #[error("it holds {found}, not an object with the fields of a model; use the model's own config.json")]
    NotAnObject {
        /// The value found.
        found: &'static str,
    },
    /// The architecture is not in the table.
    #[error(
        "architecture {found} is not supported{}; supported are {} (docs/adding-architecture.md says how to add one)",
        nearest.map_or(String::new(), |n| format!("; the nearest by its name is `{n}`")), supported.join(", ")
    )]
    UnknownArch {
        /// As written.
        found: String,
        /// The supported `model_type` that is written most alike, if any is.
        nearest: Option<&'static str>,
        /// All supported `model_type`s.
        supported: Vec<&'static str>,
    },
    /// A kind of model that is known, and not compiled.
    #[error("architecture {found} is not supported: {why}; `llmcc models` lists those")]
    Beyond {
        /// As written.
        found: String,
        /// The unsupported part, and the supported alternative.
        why: &'static str,
    },
    /// A field that must be present is not.
    #[error("field `{field}` is missing; use the model's own config.json")]
    Missing {
        /// The field.
        field: String,
    },
    /// A field has an impossible value.
    #[error("field `{field}` is {found}; it must be {expected}")]
    Invalid {
        /// The field.
        field: String,
        /// As written.
        found: String,
        /// The expected value.
        expected: String,
    },
    /// A field asks for something that is not implemented.
    #[error("field `{field}` is {found}, which is not supported; {help}")]
    Unsupported {
        /// The field.
        field: String,
        /// As written.
        found: String,
        /// The supported alternative, or the remedy.
        help: String,
    },
    /// Fields that change a model's results, and that the architecture does not read.
    #[error(
        "{}, which changes what a model computes, but {class} does not read {}: if the model was trained with {}, it is of another architecture, which is not supported; \
         if {} left over from elsewhere, remove {} from config.json",
        list(fields), it(fields), it(fields), if fields.len() == 1 { "it is" } else { "they are" }, it(fields)
    )]
    Unread {
        /// Each as `name` is value.
        fields: Vec<String>,
        /// The architecture.
        class: &'static str,
    },
}

fn it(fields: &[String]) -> &'static str {
    if fields.len() == 1 { "it" } else { "them" }
}

/// `a, b and c`.
pub(crate) fn list(names: &[impl AsRef<str>]) -> String {
    let names: Vec<&str> = names.iter().map(AsRef::as_ref).collect();
    match names.as_slice() {
        [] => String::new(),
        [one] => (*one).to_string(),
        [first @ .., last] => format!("{} and {last}", first.join(", ")),
    }
}

/// A JSON value for a message, shortened.
pub(crate) fn show(v: &(impl serde::Serialize + ?Sized)) -> String {
    let text = serde_json::to_string(v).unwrap_or_default();
    match text.char_indices().nth(60) {
        Some((i, _)) => format!("{}…", &text[..i]),
        None => text,
    }
}
