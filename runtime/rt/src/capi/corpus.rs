//! Texts to guess from.

use std::sync::Arc;

use super::handles::{CORPORA, MODELS};
use super::{Out, array, guard, guard_freeing, llmcc_model};
use crate::speculate::corpus::Corpus;
use crate::unload::Alive;

/// Texts to guess from, as C sees them: a number of [`CORPORA`].
#[allow(non_camel_case_types)]
#[repr(C)]
pub struct llmcc_corpus {
    _opaque: [u8; 0],
}

/// The object behind a handle.
pub struct Indexed {
    /// Shared with generations, which may outlive the handle.
    pub corpus: Arc<Corpus>,
    _alive: Alive,
}

/// Makes a corpus of tokens of a model.
///
/// # Safety
/// `model` is open, `tokens` has `n` elements, `out` is writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llmcc_corpus_new(
    model: *const llmcc_model,
    tokens: *const i32,
    n: usize,
    out: *mut *mut llmcc_corpus,
) -> i32 {
    guard(|| {
        // SAFETY: the caller's promise.
        let (out, model, tokens) = unsafe { (Out::new(out, "out")?, MODELS.get(model)?, array(tokens, n, "tokens")?) };
        let corpus = Arc::new(Corpus::new(tokens, model.vocab())?);
        out.set(CORPORA.insert(Arc::new(Indexed { corpus, _alive: Alive::new() })).cast());
        Ok(())
    })
}

/// Frees a corpus; null is fine.
///
/// # Safety
/// None: any value may be passed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llmcc_corpus_free(corpus: *mut llmcc_corpus) {
    guard_freeing(|| {
        CORPORA.close(corpus, |_| ());
        Ok(())
    });
}
