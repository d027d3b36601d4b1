//! Opening checkpoints: the readers of files, with the fields that architectures declare at hand.

use crate::arch;
use crate::checkpoint::{Adapter, Checkpoint, adapter};
use crate::error::FrontendError;
use std::path::Path;

impl Checkpoint {
    /// Opens a directory with `config.json` and `model.safetensors` or `pytorch_model.bin` (or the
    /// index of either and its shards), or one such file with `config.json` beside it; a GGUF file, or
    /// the first of several that a model is split into; `consolidated.*` with `params.json`, as Meta
    /// and Mistral have it; a `.bin` of llama2.c or rwkv.cpp.
    ///
    /// # Errors
    /// When files are missing, unreadable or malformed.
    pub fn open(path: &Path) -> Result<Checkpoint, FrontendError> {
        Checkpoint::open_declared(path, declares)
    }

    /// Opens a checkpoint with adapters, whose weights are added to its own one after the other.
    ///
    /// # Errors
    /// As [`Checkpoint::open`]; an adapter is malformed, or belongs to another base.
    pub fn open_with(path: &Path, adapters: &[Adapter]) -> Result<Checkpoint, FrontendError> {
        let mut checkpoint = Checkpoint::open(path)?;
        // (A configuration that cannot be read is said when the model is made.)
        let turned = !adapters.is_empty() && arch::config(&checkpoint).is_ok_and(|model| model.is_turned());
        adapters.iter().try_for_each(|adapter| adapter::merge(&mut checkpoint, adapter, turned))?;
        Ok(checkpoint)
    }
}

/// Whether the architecture with a `model_type` declares a field of `config.json`.
pub(crate) fn declares(model_type: &str, field: &str) -> bool {
    arch::by_model_type(model_type).is_some_and(|arch| arch.field(field).is_some())
}
