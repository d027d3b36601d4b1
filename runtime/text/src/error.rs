//! Errors of this crate.

use std::fmt;

/// The kind of an [`Error`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The caller's argument is wrong.
    Invalid,
    /// The model's text configuration or tokenizer is damaged.
    Damaged,
    /// The model has no such thing.
    Unsupported,
    /// A chat template refused its input or failed.
    Template,
    /// A bug.
    Internal,
}

/// A failure, and the remedy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    /// Class.
    pub kind: Kind,
    /// One sentence or two: what, where, what to do.
    pub message: String,
}

impl Error {
    pub(crate) fn new(kind: Kind, message: impl Into<String>) -> Error {
        Error { kind, message: message.into() }
    }

    pub(crate) fn damaged(what: impl fmt::Display) -> Error {
        Error::new(Kind::Damaged, format!("the artifact's text configuration is damaged ({what}); compile it again"))
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Error {}

/// Result of this crate.
pub type Result<T> = std::result::Result<T, Error>;
