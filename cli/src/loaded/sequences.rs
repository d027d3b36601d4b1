//! Sequences of an open model.

use super::Model;
use crate::Error;

impl Model {
    /// A new sequence.
    ///
    /// # Errors
    /// Errors of the artifact.
    pub fn seq_new(&self) -> Result<i32, Error> {
        let mut seq = -1;
        // SAFETY: `seq` is valid.
        self.check(unsafe { (self.api.llmcc_seq_new)(self.model, &mut seq) })?;
        Ok(seq)
    }

    /// Ends a sequence.
    ///
    /// # Errors
    /// Errors of the artifact.
    pub fn seq_free(&self, seq: i32) -> Result<(), Error> {
        // SAFETY: any number may be passed.
        self.check(unsafe { (self.api.llmcc_seq_free)(self.model, seq) })
    }

    /// A second sequence with the same tokens.
    ///
    /// # Errors
    /// Errors of the artifact.
    pub fn seq_fork(&self, seq: i32) -> Result<i32, Error> {
        let mut copy = -1;
        // SAFETY: any number may be passed, `copy` is valid.
        self.check(unsafe { (self.api.llmcc_seq_fork)(self.model, seq, &mut copy) })?;
        Ok(copy)
    }

    /// Gives a sequence its source, of a model that writes about sources; it loses all that it had.
    ///
    /// # Errors
    /// Errors of the artifact.
    pub fn seq_encode(&self, seq: i32, source: &[i32]) -> Result<(), Error> {
        // SAFETY: the array has this length.
        self.check(unsafe { (self.api.llmcc_seq_encode)(self.model, seq, source.as_ptr(), source.len()) })
    }

    /// Forgets all tokens of a sequence but the first `len`.
    ///
    /// # Errors
    /// A window has moved on, or a recurrent state is not kept: it stays as it is.
    pub fn seq_truncate(&self, seq: i32, len: usize) -> Result<(), Error> {
        // SAFETY: any numbers may be passed.
        self.check(unsafe { (self.api.llmcc_seq_truncate)(self.model, seq, len) })
    }
}
