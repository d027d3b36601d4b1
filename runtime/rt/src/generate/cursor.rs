//! The sequence of a generation: its text, and how far the model has read it.

use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::kv::SeqId;

/// A text and the sequence of the engine that has the first tokens of it.
pub(crate) struct Cursor {
    /// The sequence.
    pub seq: SeqId,
    /// Whether it is freed with the generation; else it is the caller's.
    pub owned: bool,
    /// Prompt and generated tokens; with a source the tokens that texts begin with, and generated ones.
    pub history: Vec<i32>,
    /// Tokens of `history` the model has seen.
    pub evaluated: usize,
}

impl Cursor {
    /// Tokens that the model has not seen; at least one.
    pub fn pending(&self) -> &[i32] {
        &self.history[self.evaluated..]
    }

    /// After a failed step: the sequence may have gone back to a snapshot, or kept tokens its
    /// window has moved over. Its tokens are the first of the text in any case.
    pub fn resume(&mut self, engine: &Engine) {
        if let Ok(tokens) = engine.kv().tokens(self.seq) {
            self.evaluated = tokens.len();
        }
    }

    /// Fails if somebody else has changed the sequence.
    pub fn check(&self, engine: &Engine) -> Result<()> {
        if engine.kv().tokens(self.seq)?.len() != self.evaluated {
            return Err(Error::invalid(
                "the sequence was changed while a generation was using it; start a new generation",
            ));
        }
        Ok(())
    }

    /// Leaves one token to evaluate, so that a further try is a step again.
    pub fn take_back(&mut self, engine: &mut Engine) -> Result<()> {
        self.evaluated = engine.kv().reusable(self.seq, self.evaluated - 1)?;
        engine.cut_text(self.seq, self.evaluated)
    }

    /// Makes the sequence forget tokens from number `right` on that it has. Returns how many it had.
    pub fn cut(&mut self, engine: &mut Engine, right: usize) -> Result<usize> {
        let seen = engine.kv().tokens(self.seq)?.len();
        self.evaluated = if seen > right { engine.kv().reusable(self.seq, right)? } else { seen };
        if self.evaluated < seen {
            engine.cut_text(self.seq, self.evaluated)?;
        }
        Ok(seen)
    }

    /// Gives the cache of a sequence of its own back; its tokens will be evaluated again. Returns whether there was
    /// any.
    pub fn suspend(&mut self, engine: &mut Engine) -> Result<bool> {
        if !self.owned || self.evaluated == 0 {
            return Ok(false);
        }
        engine.kv_mut().truncate(self.seq, 0)?;
        self.evaluated = 0;
        Ok(true)
    }
}
