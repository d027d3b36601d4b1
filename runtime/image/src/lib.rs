//! The prebuilt runtime object, as bytes, for the compiler to append a model to.
//!
//! It is built by this crate's build script from `runtime/rt`; see `llmcc_codegen::link` for what
//! happens to it.

/// With tokenizer, chat template and text generation.
pub const FULL: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/rt-full.so"));
/// Token level only: for checkpoints without a tokenizer. About a megabyte.
pub const CORE: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/rt-core.so"));
