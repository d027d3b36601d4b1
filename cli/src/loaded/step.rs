//! Steps of a model, token by token.

use super::Model;
use crate::Error;
use crate::numbers::split_mix;
use llmcc_model::sys::*;
use std::ptr;

impl Model {
    /// Appends `tokens[i]` to `seqs[i]`; returns f32 rows `[out_rows.len(), columns]`.
    ///
    /// # Errors
    /// Errors of the artifact.
    pub fn step(&self, tokens: &[i32], seqs: &[i32], out_rows: &[u32]) -> Result<Vec<f32>, Error> {
        Ok(self.run(0, (tokens, &[]), seqs, out_rows)?.0)
    }

    /// [`Model::step`] by entry `entry`, with [`stand_ins`] where tokens come with hidden states: their values do not
    /// matter.
    ///
    /// # Errors
    /// Errors of the artifact.
    pub fn trial(&self, entry: usize, tokens: &[i32], seqs: &[i32], out_rows: &[u32]) -> Result<Vec<f32>, Error> {
        let hidden = stand_ins(tokens, self.entry(entry)?.given);
        Ok(self.run(entry, (tokens, &hidden), seqs, out_rows)?.0)
    }

    /// A new sequence for trials: of a model that writes about sources it has [`stand_in_source`].
    ///
    /// # Errors
    /// Errors of the artifact.
    pub fn trial_seq(&self) -> Result<i32, Error> {
        let seq = self.seq_new()?;
        if self.info.needs_source {
            let source = stand_in_source(self.info.vocab, self.info.max_context);
            match self.info.hears {
                true => self.seq_encode_rows(seq, &stand_ins(&source, self.clip()?.columns))?,
                false => self.seq_encode(seq, &source)?,
            }
        }
        Ok(seq)
    }

    /// [`Model::step`] by entry `entry`, with a row for each token, `[tokens.len(), given]`, as draft heads take hidden
    /// states (empty: none), and with the states that the step leaves, if the entry does.
    ///
    /// # Errors
    /// Errors of the artifact.
    pub fn run(
        &self,
        entry: usize,
        (tokens, hidden): (&[i32], &[f32]),
        seqs: &[i32],
        out_rows: &[u32],
    ) -> Result<(Vec<f32>, Vec<f32>), Error> {
        self.run_at(entry, (tokens, hidden), &[], seqs, out_rows)
    }

    /// [`Model::run`] where tokens have positions along axes, `[tokens, 3]`; none: as in texts.
    ///
    /// # Errors
    /// Errors of the artifact.
    ///
    /// # Panics
    /// As there; or there are not as many positions.
    pub fn run_at(
        &self,
        entry: usize,
        (tokens, hidden): (&[i32], &[f32]),
        positions: &[i32],
        seqs: &[i32],
        out_rows: &[u32],
    ) -> Result<(Vec<f32>, Vec<f32>), Error> {
        assert_eq!(tokens.len(), seqs.len(), "a sequence for each token");
        let axes = LLMCC_AXES as usize;
        assert!(positions.is_empty() || positions.len() == axes * tokens.len(), "positions for each token");
        let (width, of) = (self.info.hidden, self.entry(entry)?);
        // (An entry that takes no rows refuses some, and reads none.)
        let fits = of.given == 0 || hidden.len() == tokens.len() * of.given;
        assert!(hidden.is_empty() || fits, "a row for each token");
        let mut rows = vec![0f32; out_rows.len() * of.columns];
        let mut kept = vec![0f32; if of.keeps_hidden { tokens.len() * width } else { 0 }];
        let batch = llmcc_batch {
            size: size_of::<llmcc_batch>(),
            n_tokens: tokens.len(),
            tokens: tokens.as_ptr(),
            seqs: seqs.as_ptr(),
            n_out: out_rows.len(),
            out_rows: out_rows.as_ptr(),
            hidden: if hidden.is_empty() { ptr::null() } else { hidden.as_ptr() },
            hidden_out: if kept.is_empty() { ptr::null_mut() } else { kept.as_mut_ptr() },
            positions: if positions.is_empty() { ptr::null() } else { positions.as_ptr() },
        };
        let entry = u32::try_from(entry).unwrap_or(u32::MAX);
        // SAFETY: arrays have the lengths stated.
        self.check(unsafe { (self.api.llmcc_run)(self.model, entry, &batch, rows.as_mut_ptr(), rows.len()) })?;
        Ok((rows, kept))
    }
}

/// Tokens of the source that sequences of trials have.
const SOURCE: usize = 20;

/// A source for trials, where the values do not matter: tokens that follow from these sizes.
pub fn stand_in_source(vocab: usize, max_context: usize) -> Vec<i32> {
    (0..SOURCE.min(max_context)).map(|i| ((i * 7919 + 13) % vocab.max(1)) as i32).collect()
}

/// Rows `[tokens.len(), width]` in place of hidden states: numbers between -1 and 1 that follow from each token alone.
pub fn stand_ins(tokens: &[i32], width: usize) -> Vec<f32> {
    let row = |token: &i32| {
        let mut state = *token as u64;
        // The 24 upper bits, which an f32 has as they are.
        (0..width).map(move |_| (split_mix(&mut state) >> 40) as f32 / (1 << 23) as f32 - 1.0)
    };
    tokens.iter().flat_map(row).collect()
}
