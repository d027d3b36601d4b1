//! Requirements of a model on its caller, and of a caller on a model.

use super::{Batch, Engine};
use crate::error::{Error, Result, Status};
use llmcc_abi::PAGE_TOKENS;
use llmcc_abi::output::kind;

impl Engine {
    /// Bytes that the arrays of the largest chunk take, and as much again while they grow.
    pub(super) fn inputs_bytes(&self, batch: &Batch, wanted: &[(usize, usize)]) -> usize {
        let longest = wanted.iter().map(|&(slot, extra)| self.kv.slot_len(slot) + extra).max().unwrap_or(0);
        let tables = self.kv.groups() * wanted.len() * (longest / PAGE_TOKENS + 1) * 4;
        let tokens = batch.tokens.len().min(self.limits.tokens);
        3 * (tables + tokens * (32 + 4 * self.image.desc().given as usize)) + 256 * wanted.len()
    }

    /// Fails unless the model has logits.
    pub fn need_logits(&self) -> Result<()> {
        match self.image.desc().output {
            kind::LOGITS => Ok(()),
            kind::SCORES => Err(Error::new(
                Status::Unsupported,
                "this model gives scores of classes, not logits of tokens, and writes no text: use llmcc_embed \
                 (`Model.embed` in Python, `llmcc run --embed`)",
            )),
            _ => Err(Error::new(
                Status::Unsupported,
                "this model makes embeddings and writes no text: use llmcc_embed (`Model.embed` in Python, \
                 `llmcc run --embed`)",
            )),
        }
    }

    /// Fails unless the model writes text by itself.
    pub fn need_text(&self) -> Result<()> {
        match self.image.desc().given {
            0 => self.need_logits(),
            _ => Err(Error::new(
                Status::Unsupported,
                "this artifact is a draft head, whose tokens come with rows of the model that it drafts for, and \
                 generates nothing by itself: run that model with it (`llmcc run MODEL --draft`, `Model.speculate` in \
                 Python), or use llmcc_step with batch.hidden (`hidden=` of `Model.step`)",
            )),
        }
    }

    /// Fails unless the model has rows to pool.
    pub fn need_pooled(&self) -> Result<()> {
        match self.image.desc().output {
            kind::LOGITS => Err(Error::new(
                Status::Unsupported,
                "this artifact writes text and makes no embeddings: compile the model with --embed for those",
            )),
            _ => Ok(()),
        }
    }

    /// Rows come with `n` tokens of a model that takes them, and with no others.
    pub(crate) fn check_hidden(&self, hidden: &[f32], n: usize) -> Result<()> {
        match (self.image.desc().given as usize, hidden.len()) {
            (0, 0) => Ok(()),
            (0, _) => Err(Error::invalid(
                "this model takes no rows with its tokens (LLMCC_NEEDS_HIDDEN): leave batch.hidden out",
            )),
            (_, 0) if n > 0 => Err(Error::invalid(
                "this model is a draft head, which takes with each token a row of the model that it drafts for: give \
                 batch.hidden (`hidden=` in Python)",
            )),
            (cols, len) if n.checked_mul(cols) == Some(len) => Ok(()),
            (cols, len) => Err(Error::invalid(format!("{len} numbers in rows of {n} tokens, of {cols} each"))),
        }
    }

    /// Hidden states are wanted of a model that leaves them.
    pub(crate) fn check_keeps(&self, wanted: bool) -> Result<()> {
        match wanted && self.image.desc().kept == 0 {
            false => Ok(()),
            true => Err(Error::invalid(
                "this artifact leaves no hidden states (LLMCC_HAS_HIDDEN): compile it with --hidden-states",
            )),
        }
    }
}
