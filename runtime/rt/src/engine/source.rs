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

    /// Gives a sequence its source; the sequence loses all that it had.
    ///
    /// # Errors
    /// The model takes none; no tokens, or more than one step takes; no room in the cache; the machine fails.
    pub fn encode(&mut self, seq: SeqId, source: &[i32]) -> Result<()> {
        let Some(entry) = self.image.source() else {
            let what = "this model goes on with its prompt: it takes no source (LLMCC_NEEDS_SOURCE)";
            return Err(Error::new(Status::Unsupported, what));
        };
        if source.is_empty() {
            return Err(Error::invalid("the source has no tokens; give at least one (an end-of-sequence token, say)"));
        }
        self.kv.truncate(seq, 0)?;
        let seqs = vec![seq; source.len()];
        let batch = Batch { tokens: source, seqs: &seqs, out_rows: &[], types: &[], hidden: &[] };
        self.run(entry, Io { batch: &batch, wants: &[], rows: Sink::Each(&mut |_, _| ()), keep: None, taps: None })
    }
}
