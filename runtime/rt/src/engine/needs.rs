//! Requirements of a model on its caller, and of a caller on a model.

use super::{Batch, Engine};
use crate::error::{Error, Result, Status};
use crate::image::Entry;
use llmcc_abi::output::kind;
use llmcc_abi::{MAX_POSITION, PAGE_TOKENS};

impl Engine {
    /// Bytes that the arrays of the largest chunk take, and as much again while they grow.
    pub(super) fn inputs_bytes(&self, entry: &Entry, batch: &Batch, wanted: &[(usize, usize)]) -> usize {
        let tracks = || entry.reads.iter().chain([&entry.track]);
        let length = |at: usize| tracks().map(|track| self.kv.slot_len(at, *track)).max().unwrap_or(0);
        let longest = wanted.iter().map(|&(slot, extra)| length(slot) + extra).max().unwrap_or(0);
        let tables = self.kv.groups() * wanted.len() * (longest / PAGE_TOKENS + 1) * 4;
        let tokens = batch.tokens.len().min(self.limits.tokens);
        let given = if batch.hidden.is_empty() { 0 } else { entry.given };
        let each = 28 + 4 * self.kv.tracks() + 4 * given + 4 * entry.axes;
        // (Positions of their own are kept.)
        3 * (tables + tokens * each) + 256 * wanted.len() + 16 * batch.positions.len()
    }

    /// Fails unless the model has logits.
    pub fn need_logits(&self) -> Result<()> {
        match self.image.step().kind() {
            kind::LOGITS => Ok(()),
            kind::SCORES => Err(Error::new(
                Status::Unsupported,
                "this model scores classes and does not write text: use llmcc_embed \
                 (`Model.embed` in Python, `llmcc run --embed`)",
            )),
            _ => Err(Error::new(
                Status::Unsupported,
                "this model makes embeddings and does not write text: use llmcc_embed (`Model.embed` in Python, \
                 `llmcc run --embed`)",
            )),
        }
    }

    /// Fails unless the model writes text by itself.
    pub fn need_text(&self) -> Result<()> {
        let step = self.image.step();
        match step.given > 0 && step.placeholder.is_none() {
            false => self.need_logits(),
            true => Err(Error::new(
                Status::Unsupported,
                "tokens of this artifact come with hidden states of another model, so it does not generate by itself: \
                 use llmcc_step with batch.hidden (`hidden=` of `Model.step` in Python)",
            )),
        }
    }

    /// Fails unless the model has rows to pool.
    pub fn need_pooled(&self) -> Result<()> {
        self.pooled().map(|_| ())
    }

    /// The index of the entry that has rows to pool.
    pub fn pooled(&self) -> Result<usize> {
        self.image.pooled().ok_or_else(|| {
            Error::new(
                Status::Unsupported,
                "this artifact writes text and does not make embeddings: compile the model with --also-embed, or \
                 with --embed for embeddings alone",
            )
        })
    }

    /// Rows are asked for of an entry that has some, or that shows what makes them.
    pub(super) fn check_rows(&self, entry: &Entry, batch: &Batch) -> Result<()> {
        match entry.output.is_none() && entry.taps.is_empty() && !batch.out_rows.is_empty() {
            false => Ok(()),
            true => Err(Error::invalid(format!("entry `{}` has no rows to give: leave out_rows empty", entry.name))),
        }
    }

    /// Where an entry reads what another one stores, that is there: the source of a text.
    pub(super) fn check_sources(&self, entry: &Entry, counts: &[(usize, usize)]) -> Result<()> {
        let lacks = |at: usize| entry.reads.iter().any(|track| self.kv.slot_len(at, *track) == 0);
        match counts.iter().any(|&(slot, _)| lacks(slot)) {
            false => Ok(()),
            true if self.source_columns() > 0 => Err(Error::invalid(
                "this model writes what is said in a clip of sound, which the sequence does not have yet: give the \
                 clip first (llmcc_seq_encode_audio)",
            )),
            true => Err(Error::invalid(
                "this model writes a text about another one, its source, which the sequence does not have yet: give \
                 the source first (llmcc_seq_encode)",
            )),
        }
    }

    /// Rows come with tokens of an entry that takes them, and with no others.
    pub(crate) fn check_hidden(&self, entry: &Entry, hidden: &[f32], tokens: &[i32]) -> Result<()> {
        let n = tokens.len();
        match (entry.given, hidden.len()) {
            (_, 0) if entry.placeholder.is_some() => match tokens.iter().find(|t| entry.placeholder == Some(**t)) {
                None => Ok(()),
                Some(token) => Err(Error::invalid(format!(
                    "token {token} stands for a row of an image, but none are given: prompts with images come with the \
                     images' rows (llmcc_image_rows; `images=` in Python, --image)"
                ))),
            },
            (0, 0) => Ok(()),
            (0, _) => Err(Error::invalid(
                "this entry does not take rows with its tokens (LLMCC_NEEDS_HIDDEN): leave batch.hidden out",
            )),
            (cols, 0) if n > 0 => Err(Error::invalid(format!(
                "entry `{}` takes a row of {cols} numbers with each token (a draft head: hidden states of its model): \
                 give batch.hidden (`hidden=` in Python)",
                entry.name
            ))),
            (cols, len) if n.checked_mul(cols) == Some(len) => Ok(()),
            (cols, len) => Err(Error::invalid(format!("hidden has {len} numbers; {n} tokens need {cols} each"))),
        }
    }

    /// Positions along axes come with tokens that have such, and are in their limits.
    pub(super) fn check_positions(&self, entry: &Entry, positions: &[i32], n: usize) -> Result<()> {
        if positions.is_empty() {
            return Ok(());
        }
        if entry.axes == 0 {
            return Err(Error::invalid(format!(
                "positions of tokens of entry `{}` are their places in sequences (llmcc_entry_info.axes is 0): leave \
                 batch.positions out (`positions=` in Python)",
                entry.name
            )));
        }
        if n.checked_mul(entry.axes) != Some(positions.len()) {
            let (have, axes) = (positions.len(), entry.axes);
            return Err(Error::invalid(format!("{have} positions; {n} tokens need one along each of {axes} axes")));
        }
        match positions.iter().enumerate().find(|(_, p)| **p < 0 || **p > MAX_POSITION) {
            None => Ok(()),
            Some((i, position)) => {
                let token = i / entry.axes;
                Err(Error::invalid(format!("position {position} of token {token}: give 0 to {MAX_POSITION}")))
            }
        }
    }

    /// Taps are wanted of an entry that has some.
    pub(crate) fn check_taps(&self, entry: &Entry, wanted: bool) -> Result<()> {
        match wanted && entry.taps.is_empty() {
            false => Ok(()),
            true => Err(Error::invalid(format!(
                "entry `{}` of this artifact does not show the inputs of products: compile the model with --tap",
                entry.name
            ))),
        }
    }

    /// The index of the entry that shows the inputs of products.
    pub fn tapped(&self) -> Result<usize> {
        self.image.entries.iter().position(|e| !e.taps.is_empty()).ok_or_else(|| {
            Error::new(
                Status::Unsupported,
                "this artifact does not show the inputs of its products: compile the model with --tap",
            )
        })
    }

    /// Hidden states are wanted of an entry that leaves them.
    pub(crate) fn check_keeps(&self, entry: &Entry, wanted: bool) -> Result<()> {
        match wanted && entry.hidden.is_none() {
            false => Ok(()),
            true => Err(Error::invalid(
                "this entry does not return hidden states (LLMCC_HAS_HIDDEN): compile the model with --hidden-states",
            )),
        }
    }
}
