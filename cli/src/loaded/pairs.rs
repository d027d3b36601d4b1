//! Pairs of texts, scored by a model that compares them.

use super::Model;
use crate::Error;
use llmcc_model::sys::{LLMCC_PAIR_TRUNCATE, llmcc_pair};
use std::ptr;

impl Model {
    /// Scores of classes of pairs of texts, before any activation: `[pairs.len(), columns]`.
    /// `truncate`: pairs that are too long are cut, the longer text first.
    ///
    /// # Errors
    /// Errors of the artifact.
    pub fn score_pairs(&self, pairs: &[(&str, &str)], truncate: bool) -> Result<Vec<f32>, Error> {
        let mut out = vec![0f32; pairs.len() * self.info.embed_columns];
        let given: Vec<llmcc_pair> = pairs.iter().map(pair).collect();
        let flags = if truncate { LLMCC_PAIR_TRUNCATE } else { 0 };
        // SAFETY: arrays and texts have the lengths stated.
        self.check(unsafe {
            (self.api.llmcc_score_pairs)(self.model, given.as_ptr(), given.len(), flags, out.as_mut_ptr(), out.len())
        })?;
        Ok(out)
    }

    /// Tokens and types of a pair of texts, no more than `most` (0: whole).
    ///
    /// # Errors
    /// No tokenizer in the artifact, or one without a form for pairs.
    pub fn tokenize_pair(&self, texts: (&str, &str), most: usize) -> Result<(Vec<i32>, Vec<i32>), Error> {
        let (given, mut needed) = (pair(&texts), 0);
        let call = |tokens: *mut i32, types: *mut i32, capacity, needed: &mut usize| {
            // SAFETY: the texts have the lengths stated, `tokens` and `types` room for `capacity`.
            unsafe { (self.api.llmcc_tokenize_pair)(self.model, &given, most, tokens, types, capacity, needed) }
        };
        self.check(call(ptr::null_mut(), ptr::null_mut(), 0, &mut needed))?;
        let (mut tokens, mut types) = (vec![0; needed], vec![0; needed]);
        self.check(call(tokens.as_mut_ptr(), types.as_mut_ptr(), needed, &mut needed))?;
        Ok((tokens, types))
    }
}

/// Two texts as the C API has them.
fn pair((first, second): &(&str, &str)) -> llmcc_pair {
    llmcc_pair {
        first: first.as_ptr().cast(),
        first_len: first.len(),
        second: second.as_ptr().cast(),
        second_len: second.len(),
    }
}
