//! Images: a tower makes rows of their patches, which steps take in place of tokens.

use super::runs::whole_runs;
use super::{Batch, Engine, Io, STEP, Sink};
use crate::error::{Error, Result, Status};
use crate::image::Entry;
use crate::kv::SeqId;
use crate::reserve::need;
use llmcc_abi::output::kind;
use std::mem::MaybeUninit;

impl Engine {
    /// How many of the first `count` of `tokens` may be a step of the first entry: as many, unless the rows of an image
    /// see each other, and these were cut.
    pub(crate) fn step_of(&self, tokens: &[i32], count: usize) -> usize {
        let step = &self.image().entries[STEP];
        match step.placeholder.filter(|_| step.runs) {
            Some(of) => whole_runs(tokens, of, count.min(tokens.len())),
            None => count.min(tokens.len()),
        }
    }

    /// Whether tokens of an image see each other.
    pub(crate) fn has_runs(&self) -> bool {
        let step = &self.image().entries[STEP];
        step.placeholder.is_some() && step.runs
    }

    /// Tokens of images that see each other come in one step, which has room for them.
    ///
    /// # Errors
    /// They are more than a step has room for, or the first ones of an image were in a step before.
    pub(super) fn check_runs(&self, entry: &Entry, batch: &Batch) -> Result<()> {
        let Some(of) = entry.placeholder.filter(|_| entry.runs) else { return Ok(()) };
        self.check_room_of_runs(entry, batch.tokens)?;
        let mut known = vec![];
        for (seq, token) in batch.seqs.iter().zip(batch.tokens) {
            if known.contains(seq) {
                continue;
            }
            known.push(*seq);
            let last = self.kv().track_tokens(*seq, entry.track)?.last().copied();
            if *token == of && last.is_some_and(|last| last < 0) {
                return Err(Error::invalid("the tokens of an image see each other: give all of them in one step"));
            }
        }
        Ok(())
    }

    /// A step has room for each image among the tokens of a prompt, where the tokens of an image see each other.
    ///
    /// # Errors
    /// It has not.
    pub(crate) fn check_room_of_runs(&self, entry: &Entry, tokens: &[i32]) -> Result<()> {
        let Some(of) = entry.placeholder.filter(|_| entry.runs) else { return Ok(()) };
        let longest = tokens.chunk_by(|a, b| a == b).filter(|run| run[0] == of).map(<[i32]>::len).max().unwrap_or(0);
        let most = self.limits.tokens;
        if longest > most {
            return Err(Error::invalid(format!(
                "the {longest} tokens of an image see each other, and so go through the model at once: open it with a \
                 larger max_batch_tokens (it is {most})"
            )));
        }
        Ok(())
    }

    /// Rows of an image are given at once.
    ///
    /// # Errors
    /// They are more than a step has room for.
    pub(super) fn check_rows_at_once(&self, entry: &Entry, batch: &Batch) -> Result<()> {
        let (rows, most) = (batch.out_rows.len(), self.limits.rows);
        match entry.kind() == kind::IMAGE && rows > most {
            false => Ok(()),
            true => Err(Error::invalid(format!(
                "a step gives {most} rows of images at most, not {rows}: give fewer images"
            ))),
        }
    }

    /// The token that stands for a row of an image, of a model that takes some.
    pub fn placeholder(&self) -> Option<i32> {
        self.image().entries[STEP].placeholder
    }

    /// The index of the entry that makes rows of images.
    ///
    /// # Errors
    /// The model has none.
    pub fn tower(&self) -> Result<usize> {
        self.image().tower().ok_or_else(sees_nothing)
    }

    /// The rows of an image, `[chosen.len(), hidden]`, by the rows of its patches, and their positions along axes
    /// where the tower takes such: the rows with the numbers `chosen` are asked for.
    ///
    /// # Errors
    /// The model sees no images, or others; no room in the cache; the machine fails.
    pub fn see(&mut self, (patches, positions): (&[f32], &[i32]), chosen: &[u32]) -> Result<Vec<f32>> {
        let at = self.tower()?;
        let entry = &self.image().entries[at];
        let (tokens, columns) = (patches.len() / entry.given.max(1), entry.columns());
        need(4 * (patches.len() + chosen.len() * columns) + 8 * tokens)?;
        let mut rows = vec![MaybeUninit::new(0.0); chosen.len() * columns];
        let seq = self.kv_mut().seq_new()?;
        let done = self.run_rows(at, (seq, tokens), (patches, positions), (chosen, Sink::Memory(&mut rows)));
        self.kv_mut().seq_free(seq)?;
        done?;
        // SAFETY: all were written, before the step and by it.
        Ok(rows.into_iter().map(|x| unsafe { x.assume_init() }).collect())
    }

    /// Appends `n` given rows to a sequence by an entry that reads rows and no tokens: any token will do.
    ///
    /// # Errors
    /// As [`Engine::run`].
    pub(super) fn run_rows(
        &mut self,
        entry: usize,
        (seq, n): (SeqId, usize),
        (given, positions): (&[f32], &[i32]),
        (out_rows, rows): (&[u32], Sink),
    ) -> Result<()> {
        let (tokens, seqs) = (vec![0; n], vec![seq; n]);
        let batch = Batch { tokens: &tokens, seqs: &seqs, out_rows, hidden: given, positions, ..Batch::default() };
        self.run(entry, Io { batch: &batch, wants: &[], rows, keep: None, taps: None })
    }
}

/// The error of a model that sees no images.
pub(crate) fn sees_nothing() -> Error {
    Error::new(
        Status::Unsupported,
        "this artifact sees no images (LLMCC_SEES): compile a model that does with --with-image",
    )
}
