//! Sequences as bytes, between processes with the same artifact.

use llmcc_abi::tree::Hash;

use super::Engine;
use crate::error::{Error, Result, Status};
use crate::kv::{Packed, SeqId, pack, unpack};

impl Engine {
    /// The artifact, whatever machine runs it. (Zeros stand for one that was not loaded from a file.)
    fn origin(&self) -> Hash {
        self.image.root().unwrap_or_default()
    }

    /// Bytes that [`Engine::save`] gives.
    ///
    /// # Errors
    /// As there.
    pub fn saved_len(&self, seq: SeqId) -> Result<usize> {
        let len = self.kv.packed_len(seq)?;
        let why = if self.has_source() {
            "has a source, which is not among its tokens: give the bytes' reader the source, too"
        } else if self.kv.adapter(seq)? != 0 {
            "has an adapter, whose number belongs to this process: evaluate its tokens there"
        } else {
            return Ok(len);
        };
        Err(Error::new(Status::Unsupported, format!("the sequence cannot be saved: it {why}")))
    }

    /// A sequence as bytes.
    ///
    /// # Errors
    /// It does not exist, has a source or an adapter; there is no memory; the cache cannot be read.
    pub fn save(&mut self, seq: SeqId) -> Result<Vec<u8>> {
        self.saved_len(seq)?;
        let len = self.kv.tokens(seq)?.len();
        let part = self.kv.save(seq, (0, len), true)?;
        pack(&Packed { identity: self.origin(), part, ..Packed::default() })
    }

    /// A new sequence from bytes.
    ///
    /// # Errors
    /// They were damaged, or are of another artifact; the cache is full.
    pub fn load(&mut self, bytes: &[u8]) -> Result<SeqId> {
        let Packed { identity, part, .. } = unpack(bytes, true)?;
        if identity != self.origin() {
            return Err(Error::artifact(
                "the saved sequence is of another artifact: load it into the one that wrote it, or evaluate its tokens",
            ));
        }
        let vocab = self.image.desc().vocab;
        let known = |token: i32| token < 0 && self.image.step().placeholder.is_some() || (token as u64) < vocab;
        if part.from != 0 || !part.tokens.iter().all(|token| known(*token)) {
            return Err(Error::artifact("the saved sequence has tokens outside the vocabulary"));
        }
        let seq = self.kv.seq_new()?;
        if part.tokens.is_empty() {
            return Ok(seq);
        }
        match self.kv.restore(seq, &[part]) {
            Ok(()) => Ok(seq),
            Err(error) => {
                self.kv.seq_free(seq)?;
                Err(error)
            }
        }
    }
}
