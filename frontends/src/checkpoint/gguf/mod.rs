//! The header of a GGUF file, read without trusting it.
//!
//! Format: `GGUF`, a `u32` version (2 or 3), `u64` numbers of tensors and of metadata, the metadata
//! (key, type, value), the tensors (name, dimensions with the columns first, type, offset), padding
//! to `general.alignment`, data; all little-endian. See
//! <https://github.com/ggml-org/ggml/blob/master/docs/gguf.md>.

mod bits;
pub mod blocks;
mod cut;
mod families;
mod file;
mod grids;
mod header;
mod keys;
mod kinds;
pub(super) mod model;
pub(super) mod names;
pub(super) mod parts;
mod rope;
mod vectors;

use super::safetensors::TensorInfo;
pub(super) use header::AGAIN;
pub(crate) use header::Declares;
pub use header::{GgufError, Header, Metadata, Value, parse};
use std::collections::BTreeSet;

/// Names of models of this `model_type` in `general.architecture` of GGUF files.
pub fn architectures(model_type: &str) -> impl Iterator<Item = &'static str> {
    let of_type: BTreeSet<&str> = families::all().filter(|f| f.model_type.0 == model_type).map(|f| f.name).collect();
    of_type.into_iter()
}

/// The `config.json` of the model in a file of one part, if there is one.
pub(crate) fn config(header: &Header, file: &[u8], declares: Declares) -> Option<serde_json::Value> {
    let tensors = header.tensors.iter().map(|(name, info)| (name.clone(), (0, info.clone()))).collect();
    let bytes = |_, info: &TensorInfo| file.get(info.bytes.clone()).unwrap_or_default().to_vec();
    model::describe(&header.metadata, tensors, &bytes, declares).ok().map(|model| model.config)
}

#[cfg(test)]
mod tests;
