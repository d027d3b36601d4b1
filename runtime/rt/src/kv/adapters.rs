//! Adapters of sequences.

use super::{Kv, SeqId};
use crate::error::{Error, Result};

impl Kv {
    /// Gives a sequence without tokens an adapter, or with 0 none.
    ///
    /// # Errors
    /// The sequence has tokens, whose keys and values depend on its current adapter.
    pub fn set_adapter(&mut self, seq: SeqId, adapter: u32) -> Result<()> {
        let slot = self.slot(seq)?;
        let len = (0..self.tracks()).map(|track| self.slot_len(slot, track)).max().unwrap_or(0);
        if len > 0 && self.seqs[slot].adapter != adapter {
            return Err(Error::invalid(format!(
                "the sequence has {len} tokens, which were computed with another adapter: truncate it to 0 before, or \
                 start a new one"
            )));
        }
        self.seqs[slot].adapter = adapter;
        Ok(())
    }

    /// The adapter of a sequence; 0: none.
    ///
    /// # Errors
    /// The sequence does not exist.
    pub fn adapter(&self, seq: SeqId) -> Result<u32> {
        Ok(self.seqs[self.slot(seq)?].adapter)
    }

    /// Live sequences with an adapter.
    pub fn users(&self, adapter: u32) -> usize {
        self.seqs.iter().filter(|s| s.adapter == adapter).count()
    }

    /// Adapters there is room for.
    pub fn adapters(&self) -> usize {
        self.layout.groups.iter().map(|g| g.adapters).max().unwrap_or(0)
    }

    /// Writes the matrix of an adapter into a state's slot for it. No step is running.
    ///
    /// # Errors
    /// It is of another size, or the memory cannot be written.
    pub fn write_adapter(&mut self, state: usize, adapter: u32, bytes: &[u8]) -> Result<()> {
        self.store.write(state, adapter, bytes)
    }
}
