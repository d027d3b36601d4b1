//! Entry points of `include/llmcc.h` that the command line uses, looked up in an artifact.
#![allow(missing_docs)]

use llmcc_abi::capi::{
    llmcc_batch, llmcc_embed_rows, llmcc_gen_params, llmcc_gen_stats_t, llmcc_model_info, llmcc_options, llmcc_pair,
    llmcc_piece, llmcc_sampling,
};
use std::ffi::{c_char, c_void};

/// Opaque `llmcc_model`.
pub type Model = c_void;
/// Opaque `llmcc_gen`.
pub type Gen = c_void;
/// `llmcc_status`.
pub type Status = i32;

macro_rules! api {
    ($($name:ident: $ty:ty,)*) => {
        /// Entry points of one artifact.
        pub struct Api { $(pub $name: $ty,)* }

        impl Api {
            /// Looks up every entry point.
            ///
            /// # Errors
            /// The name of the first that is missing.
            ///
            /// # Safety
            /// `library` must be an artifact of the ABI version this file describes.
            pub unsafe fn load(library: &libloading::Library) -> Result<Api, &'static str> {
                Ok(Api { $($name: {
                    // SAFETY: the symbol has this type by include/llmcc.h.
                    *unsafe { library.get::<$ty>(stringify!($name)) }.map_err(|_| stringify!($name))?
                },)* })
            }
        }
    };
}

api! {
    llmcc_abi_version: unsafe extern "C" fn() -> u32,
    llmcc_last_error: unsafe extern "C" fn() -> *const c_char,
    llmcc_open: unsafe extern "C" fn(*const llmcc_options, *mut *mut Model) -> Status,
    llmcc_close: unsafe extern "C" fn(*mut Model),
    llmcc_info: unsafe extern "C" fn(*const Model, *mut llmcc_model_info) -> Status,
    llmcc_manifest: unsafe extern "C" fn(*const Model) -> *const c_char,
    llmcc_stats: unsafe extern "C" fn(*const Model, *mut c_char, usize, *mut usize) -> Status,
    llmcc_seq_new: unsafe extern "C" fn(*const Model, *mut i32) -> Status,
    llmcc_seq_free: unsafe extern "C" fn(*const Model, i32) -> Status,
    llmcc_seq_fork: unsafe extern "C" fn(*const Model, i32, *mut i32) -> Status,
    llmcc_seq_truncate: unsafe extern "C" fn(*const Model, i32, usize) -> Status,
    llmcc_adapter_load: unsafe extern "C" fn(*const Model, *const c_char, usize, *mut i32) -> Status,
    llmcc_adapter_unload: unsafe extern "C" fn(*const Model, i32) -> Status,
    llmcc_seq_set_adapter: unsafe extern "C" fn(*const Model, i32, i32) -> Status,
    llmcc_step: unsafe extern "C" fn(*const Model, *const llmcc_batch, *mut f32, usize) -> Status,
    llmcc_embed: unsafe extern "C" fn(*const Model, *const llmcc_embed_rows, *mut f32, usize) -> Status,
    llmcc_tokenize_pair:
        unsafe extern "C" fn(*const Model, *const llmcc_pair, usize, *mut i32, *mut i32, usize, *mut usize) -> Status,
    llmcc_score_pairs: unsafe extern "C" fn(*const Model, *const llmcc_pair, usize, u32, *mut f32, usize) -> Status,
    llmcc_sample: unsafe extern "C" fn(*const f32, usize, *const llmcc_sampling, *const i32, usize, u64, *mut i32) -> Status,
    llmcc_tokenize: unsafe extern "C" fn(*const Model, *const c_char, usize, u32, *mut i32, usize, *mut usize) -> Status,
    llmcc_apply_chat_template: unsafe extern "C" fn(*const Model, *const c_char, usize, *mut c_char, usize, *mut usize) -> Status,
    llmcc_gen_new: unsafe extern "C" fn(*const Model, i32, *const i32, usize, *const llmcc_gen_params, *mut *mut Gen) -> Status,
    llmcc_gen_next: unsafe extern "C" fn(*mut Gen, *mut llmcc_piece) -> Status,
    llmcc_gen_take: unsafe extern "C" fn(*mut Gen, *const f32, usize, *mut llmcc_piece) -> Status,
    llmcc_gen_stats: unsafe extern "C" fn(*const Gen, *mut llmcc_gen_stats_t) -> Status,
    llmcc_gen_free: unsafe extern "C" fn(*mut Gen),
}
