//! A model that guesses for generations of another artifact.

use std::ffi::c_void;
use std::sync::{Arc, Mutex, PoisonError};

use super::handles::{DRAFTERS, MODELS};
use super::{Model, Out, array, array_mut, guard, guard_freeing, llmcc_model};
use crate::error::{Error, Result, Status};
use crate::reserve::need;
use crate::speculate::drafter::Drafter;
use crate::unload::Alive;

/// A model that guesses, as C sees it: a number of [`DRAFTERS`].
#[allow(non_camel_case_types)]
#[repr(C)]
pub struct llmcc_drafter {
    _opaque: [u8; 0],
}

/// The object behind a handle.
pub struct Guessing {
    model: Arc<Model>,
    /// Taken on drop.
    drafter: Mutex<Option<Drafter>>,
    _alive: Alive,
}

impl Drop for Guessing {
    fn drop(&mut self) {
        let drafter = self.drafter.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(drafter) = drafter.filter(|_| !self.model.forked()) {
            // The caller may have freed the sequence already.
            let _ = drafter.close(&mut self.model.engine());
        }
    }
}

/// Makes a drafter of a model.
///
/// # Safety
/// `model` is open, `out` is writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llmcc_drafter_new(model: *const llmcc_model, out: *mut *mut llmcc_drafter) -> i32 {
    guard(|| {
        // SAFETY: the caller's promise.
        let (out, model) = unsafe { (Out::new(out, "out")?, MODELS.get(model)?) };
        let drafter = Drafter::new(&mut model.engine())?;
        let made = Guessing { model: model.clone(), drafter: Mutex::new(Some(drafter)), _alive: Alive::new() };
        out.set(DRAFTERS.insert(Arc::new(made)).cast());
        Ok(())
    })
}

/// Guesses tokens after `tokens`: a function of type `llmcc_guess`.
///
/// # Safety
/// `drafter` is alive; `tokens` has `n` elements, `out` room for `capacity`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llmcc_drafter_guess(
    drafter: *mut c_void,
    tokens: *const i32,
    n: usize,
    out: *mut i32,
    capacity: usize,
) -> i32 {
    let mut made = 0;
    let status = guard(|| {
        // SAFETY: the caller's promise.
        let (drafter, tokens, out) = unsafe {
            (
                DRAFTERS.get(drafter.cast_const().cast::<llmcc_drafter>())?,
                array(tokens, n, "tokens")?,
                array_mut(out, capacity, "out")?,
            )
        };
        need(8 * (tokens.len() + capacity))?;
        let guesses = drafter.guess(tokens, capacity)?;
        out[..guesses.len()].copy_from_slice(&guesses);
        made = guesses.len() as i32;
        Ok(())
    });
    if status == 0 { made } else { -status }
}

impl Guessing {
    fn guess(&self, tokens: &[i32], most: usize) -> Result<Vec<i32>> {
        let mut drafter = self.drafter.lock().unwrap_or_else(PoisonError::into_inner);
        let drafter = drafter.as_mut().ok_or_else(|| Error::new(Status::Internal, "the drafter has been freed"))?;
        drafter.guess(&mut self.model.engine(), tokens, most)
    }
}

/// Frees a drafter; null is fine.
///
/// # Safety
/// None: any value may be passed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llmcc_drafter_free(drafter: *mut llmcc_drafter) {
    guard_freeing(|| {
        DRAFTERS.close(drafter, |_| ());
        Ok(())
    });
}
