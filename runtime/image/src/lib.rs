//! The prebuilt runtime object, as bytes, for the compiler to append a model to.
//!
//! This crate's build script builds it from `runtime/rt`; `llmcc_codegen::link` appends the model.

/// With readers of sounds and images beside all that [`FULL`] has: for models with an encoder for them.
pub const MEDIA: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/rt-media.so"));
/// With tokenizer, chat template and text generation.
pub const FULL: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/rt-full.so"));
/// Licences of the software in all of them, which artifacts carry. `llmcc-dist notices` writes it from Cargo's graph.
pub const NOTICES: &str = include_str!("../third-party.txt");
/// Token level only: for checkpoints without a tokenizer.
pub const CORE: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/rt-core.so"));

/// Largest sizes in bytes of [`FULL`] and of [`CORE`] in a compiler that is handed out. A debug build of the compiler
/// has runtimes without optimisation at link time, which are larger by a twentieth.
pub const LIMITS: [usize; 2] = [17 << 19, 4 << 20];

/// The name of the file of a runtime of another architecture: `machine` as Linux names it, `kind` one of `core`, `full`
/// and `media`. The interface of artifacts and runtime is in it, so that a compiler takes no runtime of another one.
pub fn file_name(machine: &str, kind: &str) -> String {
    format!("llmcc-rt-{machine}-{kind}-{}.so", llmcc_abi::ABI_VERSION)
}
