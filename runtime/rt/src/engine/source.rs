//! The source of a text: tokens that a model reads first, to write a text about them.

use super::{Batch, Engine, Io, Sink};
use crate::error::{Error, Result, Status};
use crate::kv::SeqId;

impl Engine {
    /// Whether the model writes texts about sources.
    pub fn has_source(&self) -> bool {
        self.image.source().is_some()
    }

    /// Whether a sequence has these tokens as its source.
    ///
    /// # Errors
    /// There is no such sequence.
    pub fn has_encoded(&self, seq: SeqId, source: &[i32]) -> Result<bool> {
        let Some(entry) = self.image.source() else { return Ok(false) };
        Ok(self.kv.track_tokens(seq, self.image.entries[entry].track)? == source)
    }

    /// Columns of the rows that sources are of; 0: they are tokens, or there are none.
    pub fn source_columns(&self) -> usize {
        self.image.source().map_or(0, |entry| self.image.entries[entry].given)
    }

    /// Gives a sequence a source of tokens; the sequence loses all that it had.
    ///
    /// # Errors
    /// The model takes none; no tokens, or more than one step takes; no room in the cache; the machine fails.
    pub fn encode(&mut self, seq: SeqId, source: &[i32]) -> Result<()> {
        let Some(entry) = self.image.source() else {
            let what = "this model goes on with its prompt: it takes no source (LLMCC_NEEDS_SOURCE)";
            return Err(Error::new(Status::Unsupported, what));
        };
        if self.source_columns() > 0 {
            let what = "this model writes about sounds (LLMCC_HEARS), not about tokens: give the sequence a clip \
                        (llmcc_seq_encode_audio)";
            return Err(Error::new(Status::Unsupported, what));
        }
        if source.is_empty() {
            return Err(Error::invalid("the source has no tokens; give at least one (an end-of-sequence token, say)"));
        }
        self.kv.truncate(seq, 0)?;
        let seqs = vec![seq; source.len()];
        let batch = Batch { tokens: source, seqs: &seqs, out_rows: &[], ..Batch::default() };
        self.run(entry, Io { batch: &batch, wants: &[], rows: Sink::Each(&mut |_, _| ()), keep: None, taps: None })
    }

    /// Forgets all but the first `len` tokens of a sequence, which keeps its source, if it has one.
    ///
    /// # Errors
    /// As for [`crate::kv::Kv::truncate`].
    pub fn cut_text(&mut self, seq: SeqId, len: usize) -> Result<()> {
        if self.has_source() { self.kv.truncate_track(seq, 0, len) } else { self.kv.truncate(seq, len) }
    }

    /// Gives a sequence a source of rows, `[n, source_columns]`; the sequence loses all that it had.
    ///
    /// # Errors
    /// The model takes none; no rows, parts of one, or more than one step takes; a number that is not finite; no room
    /// in the cache; the machine fails.
    pub fn encode_rows(&mut self, seq: SeqId, rows: &[f32]) -> Result<()> {
        let (entry, columns) = match (self.image.source(), self.source_columns()) {
            (Some(entry), columns) if columns > 0 => (entry, columns),
            _ => {
                let what = "the encoder of this model reads no rows (LLMCC_HEARS): it has none, or one for tokens";
                return Err(Error::new(Status::Unsupported, what));
            }
        };
        if rows.is_empty() || !rows.len().is_multiple_of(columns) {
            let what = format!("{} numbers; the encoder reads rows of {columns}, at least one", rows.len());
            return Err(Error::invalid(what));
        }
        if let Some(i) = rows.iter().position(|x| !x.is_finite()) {
            return Err(Error::invalid(format!("number {i} of the rows is {}, which is not finite", rows[i])));
        }
        self.kv.truncate(seq, 0)?;
        self.run_rows(entry, (seq, rows.len() / columns), (rows, &[]), (&[], Sink::Each(&mut |_, _| ())))
    }
}
