//! Regular expressions in settings of files, that names of modules are held against.

use crate::check::pattern;
use tokenizers::utils::SysRegex;

/// An expression of whole texts, or of how they begin.
#[derive(Debug)]
pub struct Expression(SysRegex);

impl Expression {
    /// Matches whole texts (Python's `fullmatch`).
    ///
    /// # Errors
    /// It is none, or one that takes exponential time.
    pub fn whole(text: &str) -> Result<Expression, String> {
        Expression::read(text, &format!("^(?:{text})$"))
    }

    /// Matches the beginnings of texts (Python's `match`).
    ///
    /// # Errors
    /// See [`Expression::whole`].
    pub fn beginning(text: &str) -> Result<Expression, String> {
        Expression::read(text, &format!("^(?:{text})"))
    }

    fn read(text: &str, anchored: &str) -> Result<Expression, String> {
        pattern::check(text)?;
        SysRegex::new(anchored).map(Expression).map_err(|e| e.to_string())
    }

    /// Whether a text is one of these.
    pub fn is(&self, text: &str) -> bool {
        self.0.find_iter(text).next().is_some()
    }
}
