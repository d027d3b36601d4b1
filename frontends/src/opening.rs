//! Opening checkpoints: the readers of files, with the fields that architectures declare at hand.

use crate::arch::{self, Model};
use crate::checkpoint::{Adapter, Checkpoint, adapter, blank};
use crate::error::FrontendError;
use serde_json::Value;
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
        merged(Checkpoint::open(path)?, adapters)
    }

    /// Opens a checkpoint whose numbers are not needed. Of a folder with `config.json` and no tensors, names,
    /// shapes and types are those that the architecture asks for, or that `quantization_config` gives; types
    /// that these do not say are the configuration's (`dtype`), or bf16.
    ///
    /// # Errors
    /// As [`Checkpoint::open_with`]; the tensors of its method of quantization do not follow from its settings.
    pub fn open_without_data(path: &Path, adapters: &[Adapter]) -> Result<Checkpoint, FrontendError> {
        match blank::config(path)? {
            Some(config) => merged(imagined(path, config)?, adapters),
            None => Checkpoint::open_with(path, adapters),
        }
    }
}

/// A checkpoint with adapters.
fn merged(mut checkpoint: Checkpoint, adapters: &[Adapter]) -> Result<Checkpoint, FrontendError> {
    // (A configuration that cannot be read is said when the model is made.)
    let turned = !adapters.is_empty() && arch::config(&checkpoint).is_ok_and(|model| model.is_turned());
    adapters.iter().try_for_each(|adapter| adapter::merge(&mut checkpoint, adapter, turned))?;
    Ok(checkpoint)
}

/// A checkpoint of a configuration alone.
fn imagined(dir: &Path, config: Value) -> Result<Checkpoint, FrontendError> {
    let wrong = |source| FrontendError::Config { path: dir.join("config.json"), source };
    let model = Model::parse(&blank::unquantized(&config)).map_err(wrong)?;
    let wanted = match blank::by_expert(&config) {
        // Architectures without names for single experts have them in stacks, whatever the method.
        true => model.wanted(&config, true).or_else(|_| model.wanted(&config, false))?,
        false => model.wanted(&config, false)?,
    };
    blank::checkpoint(dir, config, wanted)
}

/// Whether the architecture with a `model_type` declares a field of `config.json`.
pub(crate) fn declares(model_type: &str, field: &str) -> bool {
    arch::by_model_type(model_type).is_some_and(|arch| arch.field(field).is_some())
}
