//! Why a template does not parse or render.

use std::fmt;

/// The local time, for `strftime_now`.
pub type Clock = fn() -> libc::tm;

/// The kind of an [`Error`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The source is no template.
    Syntax,
    /// The template called `raise_exception`.
    Raised,
    /// Too large, too deep or too long.
    Limit,
    /// An operation failed, as in Python.
    Runtime,
}

/// Why a template does not parse or render.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    /// Class.
    pub kind: Kind,
    /// The failure.
    pub message: String,
    /// Line of the template, from 1; 0 where it is not known.
    pub line: u32,
}

impl Error {
    pub(super) fn new(kind: Kind, message: impl Into<String>) -> Error {
        Error { kind, message: message.into(), line: 0 }
    }

    pub(super) fn runtime(message: impl Into<String>) -> Error {
        Error::new(Kind::Runtime, message)
    }

    pub(super) fn limit(message: impl Into<String>) -> Error {
        Error::new(Kind::Limit, message)
    }

    pub(super) fn at(mut self, line: u32) -> Error {
        if self.line == 0 {
            self.line = line;
        }
        self
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => f.write_str(&self.message),
            line => write!(f, "line {line}: {}", self.message),
        }
    }
}

pub(super) type Result<T> = std::result::Result<T, Error>;
