//! A checkpoint on disk: config files and memory-mapped tensors.

pub mod adapter;
pub(crate) mod blank;
mod consolidated;
mod draft;
mod draft_files;
pub mod gguf;
mod llama2c;
mod load;
mod opened;
pub mod pytorch;
mod quantized;
mod requantized;
mod rwkv_cpp;
mod rwkv_forms;
pub mod safetensors;
mod shard;
mod stored;
mod views;
mod wanted;

use crate::error::FrontendError;
use opened::file_name;
use serde_json::Value;
use std::path::Path;
use stored::Entry;

pub(crate) use draft_files::{DRAFT, DraftFiles};
pub use opened::{Adapter, Checkpoint, SourceFile, TensorView};
pub(crate) use rwkv_cpp::is_rwkv;
pub use stored::{GAIN, InputRounding, InputScale};
pub(crate) use wanted::{Wanted, WantedRole};

impl Checkpoint {
    /// Opens a checkpoint, see [`Checkpoint::open`]. Files that have no `config.json` get the fields that their
    /// architectures declare.
    pub(crate) fn open_declared(path: &Path, declares: gguf::Declares) -> Result<Checkpoint, FrontendError> {
        adapter::not_alone(path)?;
        load::open(path, declares)
    }
}

/// Fuzz target: a file of rwkv.cpp; the configuration that it makes, if any.
pub(crate) fn fuzz_rwkv_cpp(file: &[u8]) -> Option<Value> {
    in_file(file, rwkv_cpp::describe(file, 0))
}

/// Fuzz target: a file of llama2.c; the configuration that it makes, if any.
pub(crate) fn fuzz_llama2c(file: &[u8]) -> Option<Value> {
    in_file(file, llama2c::describe(file, 0))
}

/// The configuration from a file's own description of a model, if it has one; its tensors lie in
/// the file.
fn in_file(file: &[u8], described: Option<Result<consolidated::Described, quantized::Wrong>>) -> Option<Value> {
    let model = described?.ok()?;
    let ranges = model.index.values().flat_map(Entry::parts);
    ranges.for_each(|(_, range)| assert!(file.get(range).is_some(), "a tensor leaves the file"));
    Some(model.config)
}

/// Fuzz target: an `adapter_config.json`.
pub(crate) fn fuzz_adapter(config: &Value) {
    adapter::fuzz(config);
}

#[cfg(test)]
mod tests;
