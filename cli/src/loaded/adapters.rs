//! Adapters of an open model.

use super::Model;
use crate::Error;
use std::path::Path;

impl Model {
    /// Loads the adapter in a folder; the number that stands for it.
    ///
    /// # Errors
    /// Errors of the artifact.
    pub fn adapter_load(&self, folder: &Path) -> Result<i32, Error> {
        let path =
            folder.to_str().ok_or_else(|| Error::Usage(format!("{}: the path is not UTF-8", folder.display())))?;
        let mut adapter = 0;
        // SAFETY: the path has the length stated, `adapter` is valid.
        self.check(unsafe {
            (self.api.llmcc_adapter_load)(self.model, path.as_ptr().cast(), path.len(), &mut adapter)
        })?;
        Ok(adapter)
    }

    /// Unloads an adapter.
    ///
    /// # Errors
    /// Errors of the artifact.
    pub fn adapter_unload(&self, adapter: i32) -> Result<(), Error> {
        // SAFETY: any number may be passed.
        self.check(unsafe { (self.api.llmcc_adapter_unload)(self.model, adapter) })
    }

    /// Gives a sequence without tokens an adapter; 0: none.
    ///
    /// # Errors
    /// Errors of the artifact.
    pub fn seq_set_adapter(&self, seq: i32, adapter: i32) -> Result<(), Error> {
        // SAFETY: any numbers may be passed.
        self.check(unsafe { (self.api.llmcc_seq_set_adapter)(self.model, seq, adapter) })
    }
}
