//! Positions of the tokens of sequences.

use super::{Kv, SeqId};
use crate::error::Result;

impl Kv {
    /// One more than the largest position of the tokens in a track of the sequence at a place (`Kv::slot`).
    pub fn next_position(&self, at: usize, track: usize) -> i32 {
        self.seqs[at].tracks.get(track).map_or(0, |t| t.places.next(t.tokens.len()))
    }

    /// The next token that is committed has these positions.
    pub fn place(&mut self, place: usize, track: usize, at: &[i32]) {
        if let (Some(track), Some(at)) = (self.seqs[place].tracks.get_mut(track), at.first_chunk()) {
            track.places.push(track.tokens.len(), *at);
        }
    }

    /// How many of a sequence's first `len` tokens have the positions `given`, `[tokens, AXES]`; tokens beyond these
    /// are expected to have the usual ones.
    ///
    /// # Errors
    /// The sequence does not exist.
    pub fn agreeing(&self, seq: SeqId, given: &[i32], len: usize) -> Result<usize> {
        let places = self.seqs[self.slot(seq)?].tracks.first().map(|t| &t.places);
        Ok(places.map_or(len, |places| places.agree(given, len)))
    }
}
