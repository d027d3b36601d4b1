//! The cache as the rules of steps see it: sequences whose beginnings others share, and pages that are free.

use llmcc_steps::plan::Room;
use llmcc_steps::prefix::Sequences;

use super::{Kv, SeqId};
use crate::error::{Error, Result};

impl Sequences for Kv {
    type Error = Error;

    fn tokens(&self, seq: SeqId) -> Result<&[i32]> {
        Kv::tokens(self, seq)
    }

    fn held_bytes(&self, seq: SeqId) -> Result<usize> {
        Kv::held_bytes(self, seq)
    }

    fn reusable(&self, seq: SeqId, len: usize) -> Result<usize> {
        Kv::reusable(self, seq, len)
    }

    fn free(&mut self, seq: SeqId) -> Result<()> {
        self.seq_free(seq)
    }

    fn by_chunks(&self) -> bool {
        Kv::by_chunks(self, 0)
    }
}

/// Pages for the track of an entry, in steps of some tokens. (Pages of other tracks are in use already.)
pub struct RoomFor<'a> {
    /// The cache.
    pub kv: &'a Kv,
    /// Track of the entry.
    pub track: usize,
    /// Tokens of the largest step.
    pub chunk: usize,
}

impl Room for RoomFor<'_> {
    fn groups(&self) -> usize {
        self.kv.groups()
    }

    fn free(&self, group: usize) -> usize {
        self.kv.free_pages(group)
    }

    fn pages(&self, group: usize, tokens: usize) -> usize {
        match self.kv.layout().groups[group].track == self.track {
            true => self.kv.pages_for(group, tokens, self.chunk),
            false => 0,
        }
    }
}
