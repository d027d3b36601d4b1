//! A finding of `llmcc verify`.

use serde_json::Value;

/// A finding: lines of text, and the same as JSON.
pub struct Said {
    /// Lines.
    pub text: String,
    /// JSON.
    pub facts: Value,
}
