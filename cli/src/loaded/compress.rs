//! Prompts made shorter by an open model.

use super::Model;
use crate::Error;

impl Model {
    /// Decides which tokens of a prompt are kept: `share` of them, those with the most self-information after the kept
    /// ones, and all that `keep` is true for. The first `context` ones are kept and do not count. Returns the
    /// self-information of each token in nats.
    ///
    /// # Errors
    /// Errors of the artifact.
    pub fn compress(
        &self,
        tokens: &[i32],
        context: usize,
        share: f64,
        keep: &mut Vec<bool>,
    ) -> Result<Vec<f32>, Error> {
        let n = tokens.len();
        let mut kept: Vec<u8> = keep.iter().map(|forced| u8::from(*forced)).collect();
        kept.resize(n, 0);
        let mut information = vec![0.0; n];
        // SAFETY: the arrays have their lengths.
        self.check(unsafe {
            let (keep, nats) = (kept.as_mut_ptr(), information.as_mut_ptr());
            (self.api.llmcc_compress)(self.model, tokens.as_ptr(), n, context, share, keep, nats)
        })?;
        *keep = kept.into_iter().map(|byte| byte == 1).collect();
        Ok(information)
    }

    /// The bytes that a token adds in the middle of a text; of a special token its name.
    ///
    /// # Errors
    /// No tokenizer in the artifact, or a token outside the vocabulary.
    pub fn token_bytes(&self, token: i32) -> Result<Vec<u8>, Error> {
        self.fetch(16, |out: *mut u8, capacity, needed| {
            // SAFETY: `out` has room for `capacity` bytes.
            unsafe { (self.api.llmcc_token_bytes)(self.model, token, out, capacity, needed) }
        })
    }
}
