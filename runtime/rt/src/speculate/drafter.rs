//! A model that guesses for another one, of another artifact: a smaller model of the same vocabulary.

use crate::candidates::{self, Want};
use crate::engine::{Batch, Engine, Row};
use crate::error::{Error, Result, Status};
use crate::kv::SeqId;
use crate::sample::{Sampling, sample};

/// A sequence of the model that guesses.
pub struct Drafter {
    seq: SeqId,
    /// Its tokens.
    known: Vec<i32>,
}

impl Drafter {
    /// A drafter with a sequence of its own until [`Drafter::close`].
    ///
    /// # Errors
    /// The model does not write text; there are too many sequences.
    pub fn new(engine: &mut Engine) -> Result<Drafter> {
        engine.need_text()?;
        Ok(Drafter { seq: engine.kv_mut().seq_new()?, known: Vec::new() })
    }

    /// Up to `n` tokens after `text`, each the most probable one.
    ///
    /// # Errors
    /// A token that this model does not have; the machine fails. Where cache or context are full, there are no guesses.
    pub fn guess(&mut self, engine: &mut Engine, text: &[i32], n: usize) -> Result<Vec<i32>> {
        let vocab = engine.image().desc().vocab;
        if let Some(token) = text.iter().find(|t| **t < 0 || **t as u64 >= vocab) {
            return Err(Error::invalid(format!(
                "token {token} is outside the vocabulary of {vocab} of the model that guesses: both need the same \
                 tokenizer"
            )));
        }
        match self.try_guess(engine, text, n) {
            Err(error) if matches!(error.status, Status::CacheFull | Status::ContextFull) => {
                engine.kv_mut().truncate(self.seq, 0)?;
                self.known.clear();
                Ok(Vec::new())
            }
            other => other,
        }
    }

    fn try_guess(&mut self, engine: &mut Engine, text: &[i32], n: usize) -> Result<Vec<i32>> {
        let room = engine.kv().max_context().saturating_sub(text.len());
        if text.is_empty() || n.min(room) == 0 {
            return Ok(Vec::new());
        }
        let same = self.known.iter().zip(text).take_while(|(a, b)| a == b).count();
        let kept = engine.kv().reusable(self.seq, same.min(text.len() - 1))?;
        engine.kv_mut().truncate(self.seq, kept)?;
        self.known.truncate(kept);
        let mut guesses = vec![append(engine, self.seq, &text[kept..])?];
        self.known.extend(&text[kept..]);
        while guesses.len() < n.min(room) {
            let last = guesses[guesses.len() - 1];
            guesses.push(append(engine, self.seq, &[last])?);
            self.known.push(last);
        }
        Ok(guesses)
    }

    /// Frees the sequence.
    ///
    /// # Errors
    /// Somebody else has freed it.
    pub fn close(self, engine: &mut Engine) -> Result<()> {
        engine.kv_mut().seq_free(self.seq)
    }
}

/// Appends tokens; the most probable token after them.
fn append(engine: &mut Engine, seq: SeqId, tokens: &[i32]) -> Result<i32> {
    let last = [tokens.len() as u32 - 1];
    let batch = Batch { tokens, seqs: &vec![seq; tokens.len()], out_rows: &last, ..Batch::default() };
    let vocab = engine.image().desc().vocab as usize;
    let mut best = Err(Error::new(Status::Internal, "the step produced no logits"));
    engine.step_for(&batch, &[Want::Best], &mut |_, row| best = most_probable(row, vocab))?;
    best
}

/// The most probable of `vocab` tokens.
fn most_probable(mut row: Row, vocab: usize) -> Result<i32> {
    let greedy = Sampling::default();
    if let Some(candidates) = row.candidates()
        && let Some(token) = candidates::choose(&candidates, &greedy, &[], vocab, 0)?
    {
        return Ok(token);
    }
    sample(row.values()?, &greedy, &[], 0)
}
