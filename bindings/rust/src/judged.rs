//! Texts as a model sees them: the log-probability of each token.

use crate::Token;
use crate::capi::llmcc_batch;
use crate::error::{Error, Result, Status};
use crate::model::Model;
use std::ptr;

/// Tokens that are judged in a step, before others have their turn.
const TOGETHER: usize = 512;

/// A token of a text.
#[derive(Clone, Debug, PartialEq)]
pub struct Judged {
    /// The token.
    pub token: Token,
    /// Its log-probability after all tokens before it.
    pub logprob: f64,
    /// The most probable tokens in its place, with their log-probabilities, the most probable first.
    pub top: Vec<(Token, f64)>,
}

impl Model {
    /// The tokens of a text from the second on, each with its log-probability and the `top` most probable tokens in its
    /// place.
    ///
    /// # Errors
    /// A model that writes no text, a token outside the vocabulary, a full cache or context.
    pub fn judge(&self, tokens: &[Token], top: usize) -> Result<Vec<Judged>> {
        let sequence = self.sequence()?;
        let mut out = Vec::with_capacity(tokens.len());
        let rest = tokens.len().saturating_sub(1);
        for first in (0..rest).step_by(TOGETHER) {
            let end = (first + TOGETHER).min(rest);
            self.judge_some(sequence.seq, &tokens[first..end], &tokens[first + 1..=end], top, &mut out)?;
        }
        Ok(out)
    }

    /// Appends tokens to a sequence, and judges the one after each.
    fn judge_some(
        &self,
        seq: i32,
        tokens: &[Token],
        targets: &[Token],
        top: usize,
        out: &mut Vec<Judged>,
    ) -> Result<()> {
        let n = tokens.len();
        let (seqs, rows): (Vec<i32>, Vec<u32>) = (vec![seq; n], (0..n as u32).collect());
        let batch = llmcc_batch {
            size: size_of::<llmcc_batch>(),
            n_tokens: n,
            tokens: tokens.as_ptr(),
            seqs: seqs.as_ptr(),
            n_out: n,
            out_rows: rows.as_ptr(),
            hidden: ptr::null(),
            hidden_out: ptr::null_mut(),
            positions: ptr::null(),
        };
        let (mut logprobs, mut top_logprobs) = (vec![0f64; n], vec![0f64; n * top]);
        let mut top_tokens = vec![0; n * top];
        // SAFETY: the arrays have these lengths.
        self.check(unsafe {
            let (targets, top_tokens) = (targets.as_ptr(), top_tokens.as_mut_ptr());
            let (logprobs, top_logprobs) = (logprobs.as_mut_ptr(), top_logprobs.as_mut_ptr());
            let judge = self.api().llmcc_step_logprobs;
            judge(self.handle(), &batch, targets, logprobs, top, top_tokens, top_logprobs)
        })?;
        if logprobs.iter().any(|logprob| logprob.is_nan()) {
            let message = "the logits hold NaN: the model's weights or inputs are damaged";
            return Err(Error::new(Status::Numeric, message));
        }
        for (i, (token, logprob)) in targets.iter().zip(logprobs).enumerate() {
            let places = i * top..(i + 1) * top;
            let top = top_tokens[places.clone()].iter().copied().zip(top_logprobs[places].iter().copied());
            out.push(Judged { token: *token, logprob, top: top.collect() });
        }
        Ok(())
    }
}
