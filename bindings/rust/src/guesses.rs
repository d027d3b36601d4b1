//! Guesses of the next tokens, which make generations faster and change no token.

use crate::Token;
use crate::capi::*;
use crate::error::Result;
use crate::model::Model;
use crate::sys::{RawCorpus, RawDrafter};
use std::fmt;
use std::ptr;
use std::sync::Arc;

/// Where guesses come from.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Guesses {
    /// From the model's draft heads, if it has any.
    #[default]
    Own,
    /// Nowhere: each step makes one token.
    None,
    /// From the model's draft heads, which it must have.
    Heads,
    /// From the text so far: what followed where its last tokens stood before.
    Lookup,
    /// From another model of the same vocabulary.
    Model(Drafter),
    /// From given texts, and where these have nothing from the text so far.
    Corpus(Corpus),
    /// From the model's own predictions behind the last step's wrong guesses.
    Jacobi,
    /// From n-grams of all these predictions.
    Lookahead,
}

/// A model that guesses for generations of another one, each the most probable token. It is for one generation at a
/// time, and keeps its model open.
#[derive(Clone, PartialEq)]
pub struct Drafter {
    inner: Arc<Owned<RawDrafter>>,
}

/// A handle of the C API, which is freed once.
struct Owned<T> {
    handle: *mut T,
    /// Lives as long as the handle.
    model: Arc<Model>,
    free: unsafe extern "C" fn(*mut T),
}

// SAFETY: the C API may be called from any thread; it locks a drafter that it uses, and a corpus does not change.
unsafe impl<T> Send for Owned<T> {}
// SAFETY: as above.
unsafe impl<T> Sync for Owned<T> {}

impl Drafter {
    /// A drafter with a sequence of its own.
    ///
    /// # Errors
    /// The model writes no text.
    pub fn new(model: &Arc<Model>) -> Result<Drafter> {
        let mut handle = ptr::null_mut();
        // SAFETY: the model is open, the handle is written.
        model.check(unsafe { (model.api().llmcc_drafter_new)(model.handle(), &mut handle) })?;
        let free = model.api().llmcc_drafter_free;
        Ok(Drafter { inner: Arc::new(Owned { handle, model: model.clone(), free }) })
    }
}

impl<T> Drop for Owned<T> {
    fn drop(&mut self) {
        // SAFETY: freed once; the model is still open.
        unsafe { (self.free)(self.handle) }
    }
}

impl<T> PartialEq for Owned<T> {
    fn eq(&self, other: &Owned<T>) -> bool {
        ptr::eq(self.handle, other.handle)
    }
}

impl fmt::Debug for Drafter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Drafter").finish_non_exhaustive()
    }
}

/// Texts that any number of generations of a model guess from, also of engines: the tokens that most often followed the
/// longest ending of a text, of 2 to 16 tokens (REST, arXiv 2311.08252). It takes 8 bytes a token.
#[derive(Clone, PartialEq)]
pub struct Corpus {
    inner: Arc<Owned<RawCorpus>>,
}

impl Corpus {
    /// A corpus of the tokens of texts.
    ///
    /// # Errors
    /// More than 2^26 tokens, one for the border between two texts included; a token outside the vocabulary.
    pub fn new<T: AsRef<[Token]>>(model: &Arc<Model>, texts: &[T]) -> Result<Corpus> {
        // A negative number stands between two texts.
        let tokens: Vec<Token> = texts.iter().flat_map(|text| text.as_ref().iter().copied().chain([-1])).collect();
        let mut handle = ptr::null_mut();
        let new = model.api().llmcc_corpus_new;
        // SAFETY: the model is open, the array has its length, the handle is written.
        model.check(unsafe { new(model.handle(), tokens.as_ptr(), tokens.len(), &mut handle) })?;
        let free = model.api().llmcc_corpus_free;
        Ok(Corpus { inner: Arc::new(Owned { handle, model: model.clone(), free }) })
    }
}

impl fmt::Debug for Corpus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Corpus").finish_non_exhaustive()
    }
}

impl Guesses {
    /// Writes them to the C structure, which is used while `self` lives.
    pub(crate) fn write(&self, raw: &mut llmcc_gen_params) {
        raw.guesses = match self {
            Guesses::Own => LLMCC_GUESS_OWN,
            Guesses::None => LLMCC_GUESS_NONE,
            Guesses::Heads => LLMCC_GUESS_HEADS,
            Guesses::Lookup => LLMCC_GUESS_LOOKUP,
            Guesses::Model(drafter) => {
                raw.guess = Some(drafter.inner.model.api().llmcc_drafter_guess);
                raw.guess_user = drafter.inner.handle;
                LLMCC_GUESS_CALLER
            }
            Guesses::Corpus(corpus) => {
                raw.guess_user = corpus.inner.handle;
                LLMCC_GUESS_CORPUS
            }
            Guesses::Jacobi => LLMCC_GUESS_JACOBI,
            Guesses::Lookahead => LLMCC_GUESS_LOOKAHEAD,
        };
    }

    /// The other model, which a generation keeps open.
    pub(crate) fn drafter(&self) -> Option<Drafter> {
        match self {
            Guesses::Model(drafter) => Some(drafter.clone()),
            Guesses::Own
            | Guesses::None
            | Guesses::Heads
            | Guesses::Lookup
            | Guesses::Corpus(_)
            | Guesses::Jacobi
            | Guesses::Lookahead => None,
        }
    }
}
