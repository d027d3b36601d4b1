//! Adapters that are loaded while the model runs.

use crate::error::{Error, Result, Status};
use crate::model::Model;
use std::path::Path;

/// A loaded adapter. It stays until [`Model::unload_adapter`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Adapter(pub(crate) i32);

impl Model {
    /// Loads the adapter (LoRA, rsLoRA) in a folder that PEFT saved. The model must have been compiled
    /// with `--lora-slots`.
    ///
    /// # Errors
    /// No room, or an adapter that does not fit the model.
    pub fn load_adapter(&self, folder: impl AsRef<Path>) -> Result<Adapter> {
        let folder = folder.as_ref();
        let path = folder
            .to_str()
            .ok_or_else(|| Error::new(Status::Invalid, format!("{}: the path is not UTF-8", folder.display())))?;
        let mut id = 0;
        // SAFETY: the path has this length, `id` is valid.
        self.check(unsafe {
            (self.api().llmcc_adapter_load)(self.handle(), path.as_ptr().cast(), path.len(), &mut id)
        })?;
        Ok(Adapter(id))
    }

    /// Unloads an adapter.
    ///
    /// # Errors
    /// A sequence uses it, or it is no adapter of this model.
    pub fn unload_adapter(&self, adapter: Adapter) -> Result<()> {
        // SAFETY: any value may be passed.
        self.check(unsafe { (self.api().llmcc_adapter_unload)(self.handle(), adapter.0) })
    }
}
