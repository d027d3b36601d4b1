//! Texts that generations of a model guess from.

use super::Model;
use crate::Error;
use crate::documents::Document;
use libloading::Library;
use llmcc_model::sys::RawCorpus;
use serde_json::{Value, json};
use std::ptr;
use std::sync::Arc;

/// Texts to guess from; they may outlive the model.
pub struct Corpus {
    pub(super) handle: *mut RawCorpus,
    free: unsafe extern "C" fn(*mut RawCorpus),
    // Dropped last: the code of the above.
    _library: Arc<Library>,
}

impl Model {
    /// A corpus of documents.
    ///
    /// # Errors
    /// No tokenizer in the artifact, or no chat template for a document; too many tokens.
    pub fn corpus(&self, documents: &[Document]) -> Result<Corpus, Error> {
        let mut tokens = vec![];
        for document in documents {
            match document {
                Document::Text(text) => tokens.extend(self.tokenize(text, false)?),
                Document::Chat(messages) => {
                    let messages: Value = serde_json::from_str(messages).unwrap_or_default();
                    // (No answer comes after the last message.)
                    let chat = json!({ "messages": messages, "add_generation_prompt": false });
                    tokens.extend(self.tokenize(&self.apply_chat_template(&chat.to_string())?, false)?);
                }
            }
            // A negative number stands between two texts.
            tokens.push(-1);
        }
        let mut handle = ptr::null_mut();
        // SAFETY: the model is open, the array has its length, the handle is written.
        self.check(unsafe { (self.api.llmcc_corpus_new)(self.model, tokens.as_ptr(), tokens.len(), &mut handle) })?;
        Ok(Corpus { handle, free: self.api.llmcc_corpus_free, _library: self.library.clone() })
    }
}

impl Drop for Corpus {
    fn drop(&mut self) {
        // SAFETY: freed once, while the library is loaded.
        unsafe { (self.free)(self.handle) }
    }
}

impl std::fmt::Debug for Corpus {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Corpus").finish_non_exhaustive()
    }
}
