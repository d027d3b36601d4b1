//! Stands in for the module `text` when the runtime is built without that feature.

use std::path::Path;
use std::sync::Arc;

use crate::engine::Matrices;
use crate::error::{Error, Result, Status};
use crate::grammar::{Grammar, Language};
use crate::image::Image;
use crate::rules::Defaults;

/// Cannot exist: the runtime has no tokenizer.
pub enum Text {}

/// Stands for the tokenizer in a runtime without text.
pub enum Tokenizer {}

/// Stands for the configuration in a runtime without text.
pub enum Config {}

impl Text {
    /// No artifact has text for this runtime.
    pub fn new(_: &Arc<Image>) -> Result<Option<Text>> {
        Ok(None)
    }

    /// Never called.
    pub fn config(&self) -> &Config {
        match *self {}
    }

    /// Never called.
    pub fn tokenizer_bytes(&self) -> usize {
        match *self {}
    }

    /// Never called.
    pub fn tokenizer(&self) -> Result<&Tokenizer> {
        match *self {}
    }

    /// Never called.
    pub fn types_alone(&self, _: &[i32], _: &[usize]) -> Option<Vec<i32>> {
        match *self {}
    }

    /// Never called.
    pub fn grammar(&self, _: Language, _: &str) -> Result<Grammar> {
        match *self {}
    }

    /// Never called.
    pub fn apply_template(&self, _: &str) -> Result<String> {
        match *self {}
    }
}

impl Config {
    /// Never called.
    pub fn eos_ids(&self) -> &[i32] {
        match *self {}
    }

    /// Never called.
    pub fn bos_id(&self) -> Option<i32> {
        match *self {}
    }

    /// Never called.
    pub fn has_template(&self) -> bool {
        match *self {}
    }
}

impl Tokenizer {
    /// Never called.
    pub fn encode_pair(&self, _: &str, _: &str, _: Option<usize>) -> Result<(Vec<i32>, Vec<i32>)> {
        match *self {}
    }

    /// Never called.
    pub fn encode(&self, _: &str, _: bool) -> Result<Vec<i32>> {
        match *self {}
    }

    /// Never called.
    pub fn encode_whole(&self, _: &str, _: bool) -> Result<Vec<i32>> {
        match *self {}
    }

    /// Never called.
    pub fn decode(&self, _: &[i32], _: bool) -> Result<String> {
        match *self {}
    }

    /// Never called.
    pub fn vocab_size(&self) -> usize {
        match *self {}
    }

    /// Never called.
    pub fn token_id(&self, _: &str) -> Option<i32> {
        match *self {}
    }

    /// Never called.
    pub fn is_special(&self, _: i32) -> bool {
        match *self {}
    }

    /// Never called.
    pub fn byte(&self, _: i32) -> Option<u8> {
        match *self {}
    }

    /// Never called.
    pub fn bytes(&self, _: i32) -> Result<Vec<u8>> {
        match *self {}
    }

    /// Never called.
    pub fn piece(&self, _: i32) -> Option<String> {
        match *self {}
    }
}

/// A runtime without text is for models that have no defaults.
///
/// # Errors
/// None.
pub fn defaults(_: &Image) -> Result<Defaults> {
    Ok(Defaults::default())
}

/// The error of every text function.
pub fn no_tokenizer() -> Error {
    Error::new(
        Status::Unsupported,
        "the artifact has no tokenizer (its checkpoint had none, or it was compiled without text); use tokens instead of text",
    )
}

/// Nothing is read.
///
/// # Errors
/// Always.
pub fn read_adapter(_: &str, _: &Path) -> Result<Matrices> {
    Err(Error::new(Status::Unsupported, "the artifact has no room for adapters: compile the model with `--lora-slots`"))
}
