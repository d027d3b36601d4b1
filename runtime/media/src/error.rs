//! Errors of reading media.

use std::fmt;

/// A fault of a file or a description, and a remedy, in words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error(pub String);

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Error {}

/// The result of reading media.
pub type Result<T> = std::result::Result<T, Error>;
