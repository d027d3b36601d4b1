//! Requirements of comparing pairs of texts on a model: scores of classes, types of tokens.

use super::Engine;
use crate::error::{Error, Result, Status};
use crate::image::Entry;
use llmcc_abi::output::kind;

impl Engine {
    /// Fails unless the model has scores of classes.
    pub fn need_scores(&self) -> Result<()> {
        match self.image.pooled().map(|entry| self.image.entries[entry].kind()) {
            Some(kind::SCORES) => Ok(()),
            _ => Err(Error::new(
                Status::Unsupported,
                "this artifact does not compare pairs of texts: use a model with a head that scores classes \
                    (`...ForSequenceClassification`)",
            )),
        }
    }

    /// Most tokens of a row that is embedded.
    pub fn longest_row(&self) -> usize {
        let whole = self.image.pooled().is_some_and(|entry| self.image.entries[entry].whole);
        self.kv.max_context().min(if whole { self.limits.tokens } else { usize::MAX })
    }

    /// Types of `n` tokens are types that the entry takes.
    pub(crate) fn check_types(&self, entry: &Entry, types: &[i32], n: usize) -> Result<()> {
        if !types.is_empty() && types.len() != n {
            return Err(Error::invalid(format!("{n} tokens, but {} types; give one for each token", types.len())));
        }
        let known = entry.types;
        // Type 0 is that of all tokens where there are no types.
        match types.iter().enumerate().find(|(_, t)| **t < 0 || **t as u64 >= known.max(1)) {
            Some((i, t)) if known == 0 => Err(Error::invalid(format!(
                "type {t} of the token at index {i}: tokens of this model have no types (LLMCC_HAS_TYPES); \
                    leave types out"
            ))),
            Some((i, t)) => Err(Error::invalid(format!(
                "type {t} of the token at index {i} is out of range: the model has {known} types, counted from 0"
            ))),
            None => Ok(()),
        }
    }
}
