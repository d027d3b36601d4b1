//! Prompts made shorter: tokens that a model foresees are left out.

use crate::Token;
use crate::error::{Error, Result, Status};
use crate::model::Model;

/// A prompt whose tokens were judged.
#[derive(Clone, Debug, PartialEq)]
pub struct Compressed {
    /// Whether each token is kept.
    pub kept: Vec<bool>,
    /// How little the model foresaw each token, `-ln p` in nats; infinite for a first one, 0 in the context.
    pub information: Vec<f32>,
}

impl Model {
    /// Decides which tokens of a prompt are kept, for a prompt of any model (LLMLingua, arXiv 2310.05736): `share` of
    /// them, those that this model foresees least after the kept ones, and all that `forced` is true for. The first
    /// `context` tokens are kept and do not count.
    ///
    /// # Errors
    /// A share that is not above 0 and up to 1; a token outside the vocabulary; a model that writes no text; a full
    /// cache.
    pub fn compress(&self, tokens: &[Token], context: usize, share: f64, forced: &[bool]) -> Result<Compressed> {
        let n = tokens.len();
        if forced.len() != n {
            return Err(Error::new(Status::Invalid, "there must be as many forced as tokens"));
        }
        let mut keep: Vec<u8> = forced.iter().map(|forced| u8::from(*forced)).collect();
        let mut information = vec![0.0; n];
        // SAFETY: the model is open, the arrays have their lengths.
        self.check(unsafe {
            let (start, keep, nats) = (tokens.as_ptr(), keep.as_mut_ptr(), information.as_mut_ptr());
            (self.api().llmcc_compress)(self.handle(), start, n, context, share, keep, nats)
        })?;
        Ok(Compressed { kept: keep.into_iter().map(|byte| byte == 1).collect(), information })
    }
}
