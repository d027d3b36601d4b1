//! How images stand in texts.

use serde_json::{Value, json};

/// Each marker of a text becomes the texts below, as the model's processor in Transformers has it.
#[derive(Clone, Debug)]
pub(crate) struct Expansion {
    /// Stands for an image in a prompt.
    pub marker: &'static str,
    /// The text before the tokens of an image.
    pub before: &'static str,
    /// The text of a token that stands for one of its rows.
    pub placeholder: &'static str,
    /// How many there are; 0: as many as the image has.
    pub count: usize,
    /// The text after them.
    pub after: &'static str,
    /// The id of the token.
    pub token: usize,
    /// The tokens of an image see each other, before and after.
    pub both_ways: bool,
}

impl Expansion {
    /// For the runtime.
    pub(crate) fn document(&self) -> Value {
        json!({
            "marker": self.marker,
            "before": self.before,
            "placeholder": self.placeholder,
            "count": self.count,
            "after": self.after,
            "token": self.token,
        })
    }
}
