//! Errors of reading PTX text.

use std::fmt;

/// Why PTX text was refused: the line, its text, and the fault.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    /// Line of the PTX text, from 1.
    pub line: u32,
    /// That line's text.
    pub text: String,
    /// The fault.
    pub what: String,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PTX line {}: {}", self.line, self.what)?;
        if !self.text.is_empty() {
            write!(f, "\n    {}", self.text)?;
        }
        Ok(())
    }
}

impl std::error::Error for Error {}

/// An error at `line`; the line's text is added by `Module::parse`.
pub(crate) fn at(line: u32, what: String) -> Error {
    Error { line, text: String::new(), what }
}
