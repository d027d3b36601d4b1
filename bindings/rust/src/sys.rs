//! The C API as it is: structures, and the entry points of one artifact.
//!
//! Structures are the runtime's own (`capi.rs` is its file), so the two cannot differ.
#![allow(missing_docs)]

pub use crate::capi::*;
use crate::error::{Error, Status};
use crate::version::Version;
use libloading::Library;
use std::ffi::{c_char, c_void};

/// Opaque `llmcc_model`.
pub type RawModel = c_void;
/// Opaque `llmcc_gen`.
pub type RawGeneration = c_void;
/// Opaque `llmcc_drafter`.
pub type RawDrafter = c_void;
/// Opaque `llmcc_corpus`.
pub type RawCorpus = c_void;
/// Opaque `llmcc_engine`.
pub type RawEngine = c_void;
/// `llmcc_status`.
pub type RawStatus = i32;

macro_rules! api {
    ($($name:ident: fn($($arg:ty),*) $(-> $result:ty)?;)*) => {
        /// Entry points of one artifact.
        pub struct Api { $(pub $name: unsafe extern "C" fn($($arg),*) $(-> $result)?,)* }

        impl Api {
            /// Looks up every entry point, once the version is known to be one that this crate speaks.
            ///
            /// # Errors
            /// No artifact, or one of another version of the API.
            ///
            /// # Safety
            /// `library` must be an artifact. The entry points are valid as long as it is loaded.
            pub unsafe fn load(library: &Library) -> Result<Api, Error> {
                // SAFETY: as promised to this function.
                let found = unsafe { version(library) }?;
                Ok(Api { $($name: {
                    // SAFETY: in this version of the API the symbol has this type.
                    *unsafe { library.get(stringify!($name)) }.map_err(|_| lacks(stringify!($name), found))?
                },)* })
            }
        }
    };
}

api! {
    llmcc_abi_version: fn() -> u32;
    llmcc_version: fn() -> *const c_char;
    llmcc_last_error: fn() -> *const c_char;
    llmcc_open: fn(*const llmcc_options, *mut *mut RawModel) -> RawStatus;
    llmcc_close: fn(*mut RawModel);
    llmcc_interrupt: fn(*const RawModel) -> RawStatus;
    llmcc_info: fn(*const RawModel, *mut llmcc_model_info) -> RawStatus;
    llmcc_entry:
        fn(*const RawModel, u32, *mut llmcc_entry_info, *mut c_char, usize, *mut usize) -> RawStatus;
    llmcc_manifest: fn(*const RawModel) -> *const c_char;
    llmcc_stats: fn(*const RawModel, *mut c_char, usize, *mut usize) -> RawStatus;
    llmcc_seq_new: fn(*const RawModel, *mut i32) -> RawStatus;
    llmcc_seq_free: fn(*const RawModel, i32) -> RawStatus;
    llmcc_seq_truncate: fn(*const RawModel, i32, usize) -> RawStatus;
    llmcc_seq_fork: fn(*const RawModel, i32, *mut i32) -> RawStatus;
    llmcc_seq_encode: fn(*const RawModel, i32, *const i32, usize) -> RawStatus;
    llmcc_audio: fn(*const RawModel, *mut llmcc_audio_info) -> RawStatus;
    llmcc_audio_samples:
        fn(*const RawModel, *const c_void, usize, u32, *mut f32, usize, *mut usize) -> RawStatus;
    llmcc_seq_encode_audio: fn(*const RawModel, i32, *const f32, usize) -> RawStatus;
    llmcc_seq_encode_rows: fn(*const RawModel, i32, *const f32, usize) -> RawStatus;
    llmcc_audio_prompt:
        fn(*const RawModel, i32, *const c_char, usize, *const c_char, usize, *mut i32, usize, *mut usize) -> RawStatus;
    llmcc_seq_len: fn(*const RawModel, i32, *mut usize) -> RawStatus;
    llmcc_seq_tokens: fn(*const RawModel, i32, *mut i32, usize, *mut usize) -> RawStatus;
    llmcc_seq_save: fn(*const RawModel, i32, *mut u8, usize, *mut usize) -> RawStatus;
    llmcc_seq_load: fn(*const RawModel, *const u8, usize, *mut i32) -> RawStatus;
    llmcc_seq_set_adapter: fn(*const RawModel, i32, i32) -> RawStatus;
    llmcc_adapter_load: fn(*const RawModel, *const c_char, usize, *mut i32) -> RawStatus;
    llmcc_adapter_unload: fn(*const RawModel, i32) -> RawStatus;
    llmcc_step: fn(*const RawModel, *const llmcc_batch, *mut f32, usize) -> RawStatus;
    llmcc_embed: fn(*const RawModel, *const llmcc_embed_rows, *mut f32, usize) -> RawStatus;
    llmcc_taps: fn(*const RawModel, *mut usize) -> RawStatus;
    llmcc_tap: fn(*const RawModel, usize, *mut llmcc_tap_info) -> RawStatus;
    llmcc_tap_weight:
        fn(*const RawModel, usize, usize, *mut i32, *mut c_char, usize, *mut usize) -> RawStatus;
    llmcc_tap_moments:
        fn(*const RawModel, *const llmcc_embed_rows, *const llmcc_moments, usize) -> RawStatus;
    llmcc_tokenize_pair:
        fn(*const RawModel, *const llmcc_pair, usize, *mut i32, *mut i32, usize, *mut usize) -> RawStatus;
    llmcc_score_pairs: fn(*const RawModel, *const llmcc_pair, usize, u32, *mut f32, usize) -> RawStatus;
    llmcc_logprobs: fn(*const f32, usize, *const i32, usize, *mut f64, usize, *mut i32, *mut f64) -> RawStatus;
    llmcc_step_logprobs:
        fn(*const RawModel, *const llmcc_batch, *const i32, *mut f64, usize, *mut i32, *mut f64) -> RawStatus;
    llmcc_sample: fn(*const f32, usize, *const llmcc_sampling, *const i32, usize, u64, *mut i32) -> RawStatus;
    llmcc_tokenize: fn(*const RawModel, *const c_char, usize, u32, *mut i32, usize, *mut usize) -> RawStatus;
    llmcc_detokenize: fn(*const RawModel, *const i32, usize, u32, *mut c_char, usize, *mut usize) -> RawStatus;
    llmcc_apply_chat_template: fn(*const RawModel, *const c_char, usize, *mut c_char, usize, *mut usize) -> RawStatus;
    llmcc_image_rows:
        fn(*const RawModel, *const c_void, usize, u32, u32, *mut f32, usize, *mut usize) -> RawStatus;
    llmcc_image_prompt:
        fn(*const RawModel, *const c_char, usize, usize, *mut c_char, usize, *mut usize) -> RawStatus;
    llmcc_image_grid: fn(*const RawModel, *const c_void, usize, u32, u32, *mut u32) -> RawStatus;
    llmcc_image_prompt_of:
        fn(*const RawModel, *const c_char, usize, *const u32, usize, *mut c_char, usize, *mut usize) -> RawStatus;
    llmcc_token_piece: fn(*const RawModel, i32, *mut c_char, usize, *mut usize) -> RawStatus;
    llmcc_piece_token: fn(*const RawModel, *const c_char, usize, *mut i32) -> RawStatus;
    llmcc_token_bytes: fn(*const RawModel, i32, *mut u8, usize, *mut usize) -> RawStatus;
    llmcc_token_flags: fn(*const RawModel, i32, *mut u32) -> RawStatus;
    llmcc_tokenizer_size: fn(*const RawModel, *mut usize) -> RawStatus;
    llmcc_eos_tokens: fn(*const RawModel, *mut i32, usize, *mut usize) -> RawStatus;
    llmcc_gen_new:
        fn(*const RawModel, i32, *const i32, usize, *const llmcc_gen_params, *mut *mut RawGeneration) -> RawStatus;
    llmcc_gen_next: fn(*mut RawGeneration, *mut llmcc_piece) -> RawStatus;
    llmcc_gen_take: fn(*mut RawGeneration, *const f32, usize, *mut llmcc_piece) -> RawStatus;
    llmcc_gen_next_batch: fn(*const *mut RawGeneration, usize, *mut llmcc_piece) -> RawStatus;
    llmcc_gen_stats: fn(*const RawGeneration, *mut llmcc_gen_stats_t) -> RawStatus;
    llmcc_gen_free: fn(*mut RawGeneration);
    llmcc_run: fn(*const RawModel, u32, *const llmcc_batch, *mut f32, usize) -> RawStatus;
    llmcc_run_tree:
        fn(*const RawModel, u32, *const llmcc_batch, *const i32, *mut f32, usize, *mut i32, usize, *mut usize)
            -> RawStatus;
    llmcc_drafter_new: fn(*const RawModel, *mut *mut RawDrafter) -> RawStatus;
    llmcc_drafter_guess: fn(*mut c_void, *const i32, usize, *mut i32, usize) -> i32;
    llmcc_drafter_free: fn(*mut RawDrafter);
    llmcc_corpus_new: fn(*const RawModel, *const i32, usize, *mut *mut RawCorpus) -> RawStatus;
    llmcc_corpus_free: fn(*mut RawCorpus);
    llmcc_compress: fn(*const RawModel, *const i32, usize, usize, f64, *mut u8, *mut f32) -> RawStatus;
    llmcc_engine_open: fn(*const RawModel, *const llmcc_engine_options, *mut *mut RawEngine) -> RawStatus;
    llmcc_engine_submit: fn(*const RawEngine, *const llmcc_request, *mut u64) -> RawStatus;
    llmcc_engine_poll: fn(*const RawEngine, *mut llmcc_event, usize, *mut usize, i64) -> RawStatus;
    llmcc_engine_cancel: fn(*const RawEngine, u64) -> RawStatus;
    llmcc_engine_stats: fn(*const RawEngine, *mut c_char, usize, *mut usize) -> RawStatus;
    llmcc_engine_fd: fn(*const RawEngine, *mut i32) -> RawStatus;
    llmcc_engine_close: fn(*mut RawEngine);
    llmcc_generate:
        fn(*const RawModel, *const c_char, usize, *const llmcc_gen_params, llmcc_callback, *mut c_void,
            *mut llmcc_gen_stats_t) -> RawStatus;
}

/// The flags that are on, together.
pub(crate) fn flags<const N: usize>(given: [(bool, u32); N]) -> u32 {
    given.into_iter().filter(|(on, _)| *on).map(|(_, flag)| flag).sum()
}

/// The version of an artifact's API, which is one that this crate speaks.
///
/// # Safety
/// As [`Api::load`].
unsafe fn version(library: &Library) -> Result<Version, Error> {
    // SAFETY: in all versions of the API the function has this type.
    let ask = unsafe { library.get::<unsafe extern "C" fn() -> u32>("llmcc_abi_version") };
    let ask = ask
        .map_err(|_| Error::new(Status::Artifact, "it is not an artifact of llmcc (make one with `llmcc compile`)"))?;
    // SAFETY: it takes nothing.
    let found = Version::of(unsafe { ask() });
    if found.major == Version::OWN.major {
        return Ok(found);
    }
    Err(Error::new(
        Status::Artifact,
        format!(
            "it speaks version {found} of llmcc's C API, and this program version {}: compile the model again with the \
                llmcc that this program is for, or build the program for the one that made the model",
            Version::OWN
        ),
    ))
}

/// An artifact of an older minor version, without an entry point that came later.
fn lacks(name: &str, found: Version) -> Error {
    Error::new(
        Status::Artifact,
        format!(
            "it speaks version {found} of llmcc's C API and lacks {name}, and this program is for version {}: compile \
                the model again",
            Version::OWN
        ),
    )
}
