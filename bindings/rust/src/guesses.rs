//! Guesses of the next tokens, which make generations faster and change no token.

use crate::capi::*;
use crate::error::Result;
use crate::model::Model;
use crate::sys::RawDrafter;
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
}

/// A model that guesses for generations of another one, each the most probable token. It is for one generation at a
/// time, and keeps its model open.
#[derive(Clone)]
pub struct Drafter {
    inner: Arc<Inner>,
}

struct Inner {
    handle: *mut RawDrafter,
    /// Lives as long as the handle.
    model: Arc<Model>,
}

// SAFETY: the C API may be called from any thread, and locks what it uses.
unsafe impl Send for Inner {}
// SAFETY: as above.
unsafe impl Sync for Inner {}

impl Drafter {
    /// A drafter with a sequence of its own.
    ///
    /// # Errors
    /// The model writes no text.
    pub fn new(model: &Arc<Model>) -> Result<Drafter> {
        let mut handle = ptr::null_mut();
        // SAFETY: the model is open, the handle is written.
        model.check(unsafe { (model.api().llmcc_drafter_new)(model.handle(), &mut handle) })?;
        Ok(Drafter { inner: Arc::new(Inner { handle, model: model.clone() }) })
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        // SAFETY: freed once; the model is still open.
        unsafe { (self.model.api().llmcc_drafter_free)(self.handle) }
    }
}

impl PartialEq for Drafter {
    fn eq(&self, other: &Drafter) -> bool {
        Arc::ptr_eq(&self.inner, &other.inner)
    }
}

impl fmt::Debug for Drafter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Drafter").finish_non_exhaustive()
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
        };
    }

    /// The other model, which a generation keeps open.
    pub(crate) fn drafter(&self) -> Option<Drafter> {
        match self {
            Guesses::Model(drafter) => Some(drafter.clone()),
            Guesses::Own | Guesses::None | Guesses::Heads | Guesses::Lookup => None,
        }
    }
}
