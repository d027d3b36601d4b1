//! Log-probabilities of tokens.

use super::handles::MODELS;
use super::model::{hidden_out, hidden_rows, positions};
use super::types::llmcc_batch;
use super::{array, guard, llmcc_model, null, read_struct};
use crate::engine::{Batch, Keep, STEP};
use crate::error::{Error, Result};
use crate::logprob::{LogProb, LogProbs};
use crate::reserve::need;

/// Where the results of rows go: `[rows]` and twice `[rows, n_top]`.
#[derive(Clone, Copy)]
struct Out {
    logprobs: *mut f64,
    n_top: usize,
    top_tokens: *mut i32,
    top_logprobs: *mut f64,
}

impl Out {
    /// `judged` log-probabilities and `rows` lists of the most probable tokens can be stored, of a
    /// vocabulary of `vocab`.
    fn check(&self, judged: usize, rows: usize, vocab: usize) -> Result<()> {
        if self.n_top > vocab {
            return Err(Error::invalid(format!("n_top is {}, but the vocabulary has {vocab} tokens", self.n_top)));
        }
        if judged > 0 && self.logprobs.is_null() {
            return Err(null("logprobs"));
        }
        if rows > 0 && self.n_top > 0 && (self.top_tokens.is_null() || self.top_logprobs.is_null()) {
            return Err(null("top_tokens or top_logprobs"));
        }
        if !(self.logprobs.is_aligned() && self.top_tokens.is_aligned() && self.top_logprobs.is_aligned()) {
            return Err(Error::invalid("logprobs, top_tokens or top_logprobs is misaligned"));
        }
        Ok(())
    }

    /// Stores the most probable tokens of row `row`.
    ///
    /// # Safety
    /// The arrays have this row.
    unsafe fn put_top(&self, row: usize, top: &[LogProb]) {
        for (i, t) in top.iter().enumerate().take(self.n_top) {
            // SAFETY: the caller's promise.
            unsafe {
                self.top_tokens.add(row * self.n_top + i).write(t.token);
                self.top_logprobs.add(row * self.n_top + i).write(t.logprob);
            }
        }
    }
}

/// Log-probabilities of tokens by a row of logits, and the most probable tokens.
///
/// # Safety
/// `logits` has `n_logits` elements, `tokens` and `logprobs` have `n_tokens`, `top_tokens` and
/// `top_logprobs` have `n_top`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llmcc_logprobs(
    logits: *const f32,
    n_logits: usize,
    tokens: *const i32,
    n_tokens: usize,
    logprobs: *mut f64,
    n_top: usize,
    top_tokens: *mut i32,
    top_logprobs: *mut f64,
) -> i32 {
    guard(|| {
        let out = Out { logprobs, n_top, top_tokens, top_logprobs };
        out.check(n_tokens, 1, n_logits)?;
        need(n_tokens.saturating_add(n_logits).saturating_mul(64))?;
        // SAFETY: the caller's promise.
        unsafe {
            let tokens = array(tokens, n_tokens, "tokens")?;
            let row = LogProbs::new(array(logits, n_logits, "logits")?)?;
            let found =
                tokens.iter().map(|&t| row.of(t).ok_or_else(|| outside(t, n_logits))).collect::<Result<Vec<f64>>>()?;
            found.iter().enumerate().for_each(|(i, x)| out.logprobs.add(i).write(*x));
            out.put_top(0, &row.top(n_top));
        }
        Ok(())
    })
}

/// As `llmcc_step`, with the log-probability of a token for each wanted row, instead of the logits.
///
/// # Safety
/// `model` is open, `batch` valid; `targets` and `logprobs` have `n_out` elements, `top_tokens` and
/// `top_logprobs` have `n_out * n_top`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llmcc_step_logprobs(
    model: *const llmcc_model,
    batch: *const llmcc_batch,
    targets: *const i32,
    logprobs: *mut f64,
    n_top: usize,
    top_tokens: *mut i32,
    top_logprobs: *mut f64,
) -> i32 {
    guard(|| {
        // SAFETY: the caller's promise.
        let (model, given) = unsafe { (MODELS.get(model)?, read_struct(batch)?) };
        if batch.is_null() {
            return Err(null("batch"));
        }
        // SAFETY: the caller's promise.
        let (batch, targets) = unsafe {
            let tokens = array(given.tokens, given.n_tokens, "batch.tokens")?;
            let seqs = array(given.seqs, given.n_tokens, "batch.seqs")?;
            let out_rows = array(given.out_rows, given.n_out, "batch.out_rows")?;
            let hidden = hidden_rows(&model, STEP, &given)?;
            (
                Batch { tokens, seqs, out_rows, hidden, positions: positions(&given)?, ..Batch::default() },
                array(targets, given.n_out, "targets")?,
            )
        };
        // SAFETY: the caller's promise.
        let mut keep = unsafe { hidden_out(&model, &given)? };
        let keep = keep.as_mut().map(|keep| keep as Keep);
        let mut engine = model.engine();
        engine.need_logits()?;
        let vocab = engine.image().desc().vocab as usize;
        let out = Out { logprobs, n_top, top_tokens, top_logprobs };
        need(vocab * 64)?;
        out.check(targets.len(), targets.len(), vocab)?;
        if let Some(&bad) = targets.iter().find(|&&t| t < 0 || t as usize >= vocab) {
            return Err(outside(bad, vocab));
        }
        let mut sink = |row: usize, logits: &[f32]| {
            // The step is done; the results report rows that are no distribution.
            let found = LogProbs::new(logits);
            let nothing = || vec![LogProb { token: -1, logprob: f64::NAN }; n_top];
            let logprob = found.as_ref().ok().and_then(|f| f.of(targets[row])).unwrap_or(f64::NAN);
            // SAFETY: `row < n_out`.
            unsafe {
                out.logprobs.add(row).write(logprob);
                out.put_top(row, &found.as_ref().map_or_else(|_| nothing(), |f| f.top(n_top)));
            }
        };
        engine.run_each(STEP, &batch, &mut sink, keep)
    })
}

fn outside(token: i32, vocab: usize) -> Error {
    Error::invalid(format!("token {token} is outside the vocabulary of {vocab}"))
}
