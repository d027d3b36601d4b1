//! From a checkpoint to the graph level of the IR.
//!
//! [`checkpoint`] reads the bytes, [`config`] and [`rope`] the numbers, [`arch`] builds the
//! [`Module`](llmcc_ir::graph::Module), [`tokenizer`] collects the parts for text generation,
//! [`embedding`] how rows become embeddings, [`unused`] the unread tensors of the file, [`slots`]
//! makes room for adapters, [`input`] opens files. Everything read here is untrusted: sizes are
//! checked before they are used, and a broken file ends in a [`FrontendError`] that names the
//! fault, its place and the remedy; never in a panic.
//!
//! Invariant: tensors are checked (presence, type, shape) before a function is built, so the typing
//! rules of the graph cannot fail on a checkpoint.

pub mod arch;
pub mod checkpoint;
pub mod config;
pub mod embedding;
mod error;
pub mod fixtures;
pub mod fuzz;
mod generation;
mod hashing;
mod image;
pub mod input;
mod json;
mod media;
mod opening;
pub mod rope;
pub mod slots;
mod spelling;
#[cfg(test)]
mod testing;
pub mod tokenizer;
pub mod unused;
pub mod wildcard;

pub use arch::{DraftHeads, Options, image_document, lift};
pub use checkpoint::{Adapter, Checkpoint};
pub use error::FrontendError;
pub use tokenizer::TextAssets;
