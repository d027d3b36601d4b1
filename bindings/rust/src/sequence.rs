//! Sequences: tokens with their cached keys and values.

use crate::Token;
use crate::adapter::Adapter;
use crate::capi::{LLMCC_AXES, llmcc_batch};
use crate::error::{Error, Result, Status};
use crate::generation::Generation;
use crate::model::Model;
use crate::params::Params;
use std::ptr;

/// A sequence of a model. It is freed when it is dropped, and cannot outlive the model:
///
/// ```compile_fail,E0597
/// # use llmcc_model::{Model, Options};
/// let sequence;
/// {
///     let model = unsafe { Model::open("tiny.so", &Options::default()) }.unwrap();
///     sequence = model.sequence().unwrap();
/// }
/// drop(sequence);
/// ```
#[derive(Debug)]
pub struct Sequence<'m> {
    pub(crate) model: &'m Model,
    pub(crate) seq: i32,
}

impl Model {
    /// A new sequence without tokens.
    ///
    /// # Errors
    /// The system refuses memory.
    pub fn sequence(&self) -> Result<Sequence<'_>> {
        let mut seq = -1;
        // SAFETY: `seq` is valid.
        self.check(unsafe { (self.api().llmcc_seq_new)(self.handle(), &mut seq) })?;
        Ok(Sequence { model: self, seq })
    }

    /// Appends each token to its sequence, in one step. Returns the rows `[rows.len(), columns]` of the
    /// output after the tokens of these indices: logits, mostly.
    ///
    /// # Errors
    /// A sequence of another model, a token outside the vocabulary, a full cache or context.
    pub fn step(&self, tokens: &[(&Sequence<'_>, Token)], rows: &[u32]) -> Result<Vec<f32>> {
        self.step_at(tokens, &[], rows)
    }

    /// The same, where tokens have positions along three axes (time, height, width), `[tokens, 3]`; none: along all of
    /// them one more than the largest before it in its sequence.
    ///
    /// # Errors
    /// As [`Model::step`]; the model's tokens have no such positions, or there are not as many.
    pub fn step_at(&self, tokens: &[(&Sequence<'_>, Token)], positions: &[i32], rows: &[u32]) -> Result<Vec<f32>> {
        let axes = LLMCC_AXES as usize;
        if !positions.is_empty() && positions.len() != axes * tokens.len() {
            let (have, n) = (positions.len(), tokens.len());
            let message = format!("{have} positions; {n} tokens need one along each of {axes} axes");
            return Err(Error::new(Status::Invalid, message));
        }
        if tokens.iter().any(|(s, _)| !ptr::eq(s.model, self)) {
            return Err(Error::new(Status::Invalid, "a sequence belongs to another model"));
        }
        let (seqs, ids): (Vec<i32>, Vec<Token>) = tokens.iter().map(|(s, token)| (s.seq, *token)).unzip();
        let mut out = vec![0f32; rows.len() * self.info().columns];
        let batch = llmcc_batch {
            size: size_of::<llmcc_batch>(),
            n_tokens: ids.len(),
            tokens: ids.as_ptr(),
            seqs: seqs.as_ptr(),
            n_out: rows.len(),
            out_rows: rows.as_ptr(),
            hidden: ptr::null(),
            hidden_out: ptr::null_mut(),
            positions: if positions.is_empty() { ptr::null() } else { positions.as_ptr() },
        };
        // SAFETY: the arrays have these lengths.
        self.check(unsafe { (self.api().llmcc_step)(self.handle(), &batch, out.as_mut_ptr(), out.len()) })?;
        Ok(out)
    }
}

impl Model {
    /// A sequence from bytes that [`Sequence::save`] has made.
    ///
    /// # Errors
    /// They were damaged, or are of another artifact; the cache is full.
    pub fn load_sequence(&self, bytes: &[u8]) -> Result<Sequence<'_>> {
        let mut seq = -1;
        // SAFETY: the bytes have their length, and `seq` is valid.
        self.check(unsafe { (self.api().llmcc_seq_load)(self.handle(), bytes.as_ptr(), bytes.len(), &mut seq) })?;
        Ok(Sequence { model: self, seq })
    }
}

impl<'m> Sequence<'m> {
    /// How many tokens it has.
    ///
    /// # Errors
    /// Errors of the artifact.
    pub fn len(&self) -> Result<usize> {
        let mut len = 0;
        // SAFETY: `len` is valid.
        self.check(unsafe { (self.model.api().llmcc_seq_len)(self.model.handle(), self.seq, &mut len) })?;
        Ok(len)
    }

    /// Whether it has no tokens.
    ///
    /// # Errors
    /// Errors of the artifact.
    pub fn is_empty(&self) -> Result<bool> {
        self.len().map(|len| len == 0)
    }

    /// Its tokens.
    ///
    /// # Errors
    /// Errors of the artifact.
    pub fn tokens(&self) -> Result<Vec<Token>> {
        let model = self.model;
        // SAFETY: `out` has room for `capacity` tokens.
        model.fetch(256, |out, capacity, needed| unsafe {
            (model.api().llmcc_seq_tokens)(model.handle(), self.seq, out, capacity, needed)
        })
    }

    /// The sequence as bytes, for [`Model::load_sequence`] of another process with the same artifact, or later. The
    /// last page may have rows of sequences that had it before.
    ///
    /// # Errors
    /// It has an adapter or a source; the system refuses memory.
    pub fn save(&self) -> Result<Vec<u8>> {
        let model = self.model;
        // SAFETY: `out` has room for `capacity` bytes.
        model.fetch(0, |out, capacity, needed| unsafe {
            (model.api().llmcc_seq_save)(model.handle(), self.seq, out, capacity, needed)
        })
    }

    /// Forgets all tokens but the first `len`.
    ///
    /// # Errors
    /// It has fewer; or a window has moved on, or a recurrent state is not kept, so that the next token
    /// would lack something.
    pub fn truncate(&mut self, len: usize) -> Result<()> {
        // SAFETY: any values may be passed.
        self.check(unsafe { (self.model.api().llmcc_seq_truncate)(self.model.handle(), self.seq, len) })
    }

    /// A second sequence with the same tokens, which share their cache.
    ///
    /// # Errors
    /// The system refuses memory.
    pub fn fork(&self) -> Result<Sequence<'m>> {
        let mut seq = -1;
        // SAFETY: `seq` is valid.
        self.check(unsafe { (self.model.api().llmcc_seq_fork)(self.model.handle(), self.seq, &mut seq) })?;
        Ok(Sequence { model: self.model, seq })
    }

    /// Gives the sequence of a model that writes about sources its source, whose tokens later ones attend to; the
    /// sequence loses all tokens that it had.
    ///
    /// # Errors
    /// The model takes no source; no tokens, or more than a step takes.
    pub fn encode(&mut self, source: &[Token]) -> Result<()> {
        let (tokens, n) = (source.as_ptr(), source.len());
        // SAFETY: the array has this length.
        self.check(unsafe { (self.model.api().llmcc_seq_encode)(self.model.handle(), self.seq, tokens, n) })
    }

    /// Gives a sequence without tokens an adapter, or none.
    ///
    /// # Errors
    /// It has tokens, or the adapter is not of this model.
    pub fn set_adapter(&mut self, adapter: Option<Adapter>) -> Result<()> {
        let adapter = adapter.map_or(0, |a| a.0);
        // SAFETY: any values may be passed.
        self.check(unsafe { (self.model.api().llmcc_seq_set_adapter)(self.model.handle(), self.seq, adapter) })
    }

    /// Generates after `prompt`, the whole sequence from its first token: tokens that it has are not
    /// computed again, others are forgotten. So a conversation passes its growing prompt each turn. An
    /// adapter is the sequence's ([`Sequence::set_adapter`]), not that of `params`. The sequence stays as it is
    /// while it generates:
    ///
    /// ```compile_fail,E0499
    /// # use llmcc_model::{Error, Params, Sequence};
    /// # fn f(mut sequence: Sequence<'_>) -> Result<(), Error> {
    /// let generation = sequence.generate(&[1, 2], &Params::default())?;
    /// sequence.truncate(0)?;
    /// drop(generation);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Model::generate`].
    pub fn generate(&mut self, prompt: &[Token], params: &Params) -> Result<Generation<'_>> {
        Generation::start(self.model, self.seq, prompt, params)
    }

    pub(crate) fn check(&self, status: i32) -> Result<()> {
        self.model.check(status)
    }
}

impl Drop for Sequence<'_> {
    fn drop(&mut self) {
        // SAFETY: any value may be passed.
        unsafe { (self.model.api().llmcc_seq_free)(self.model.handle(), self.seq) };
    }
}
