//! The part of `include/llmcc.h` that the command line uses, as Rust types; field meanings are documented there.
#![allow(missing_docs)]

use std::ffi::{c_char, c_void};

/// Opaque `llmcc_model`.
pub type Model = c_void;
/// Opaque `llmcc_gen`.
pub type Gen = c_void;
/// `llmcc_status`.
pub type Status = i32;

/// `llmcc_options`
#[repr(C)]
pub struct Options {
    pub size: usize,
    pub threads: u32,
    pub flags: u32,
    pub max_tokens: u64,
    pub max_batch_tokens: u64,
}

/// `LLMCC_OPEN_PROFILE`
pub const OPEN_PROFILE: u32 = 1;
/// `LLMCC_HAS_CHAT_TEMPLATE`
pub const HAS_CHAT_TEMPLATE: u32 = 2;
/// `LLMCC_ADD_SPECIAL`
pub const ADD_SPECIAL: u32 = 1;
/// `LLMCC_GEN_IGNORE_EOS`
pub const GEN_IGNORE_EOS: u32 = 1;
/// `LLMCC_GEN_NO_TEXT`
pub const GEN_NO_TEXT: u32 = 2;

/// `llmcc_model_info`
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct ModelInfo {
    pub size: usize,
    pub vocab: u64,
    pub hidden: u64,
    pub layers: u64,
    pub max_context: u64,
    pub weights_bytes: u64,
    pub code_bytes: u64,
    pub kv_bytes_per_token: u64,
    pub max_tokens: u64,
    pub max_batch_tokens: u64,
    pub activation_bytes: u64,
    pub threads: u32,
    pub isa: u32,
    pub bos_token: i32,
    pub flags: u32,
}

/// `llmcc_batch`
#[repr(C)]
pub struct Batch {
    pub size: usize,
    pub n_tokens: usize,
    pub tokens: *const i32,
    pub seqs: *const i32,
    pub n_out: usize,
    pub out_rows: *const u32,
}

/// `llmcc_sampling`
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct Sampling {
    pub temperature: f32,
    pub top_k: u32,
    pub top_p: f32,
    pub min_p: f32,
    pub repetition_penalty: f32,
    pub repetition_window: u32,
    pub seed: u64,
    pub reserved: [u32; 4],
}

/// `llmcc_gen_params`
#[repr(C)]
pub struct GenParams {
    pub size: usize,
    pub max_tokens: u64,
    pub sampling: Sampling,
    pub stop: *const *const c_char,
    pub n_stop: usize,
    pub stop_tokens: *const i32,
    pub n_stop_tokens: usize,
    pub flags: u32,
    pub reserved: u32,
}

/// `llmcc_piece`
#[repr(C)]
pub struct Piece {
    pub size: usize,
    pub text: *const c_char,
    pub text_len: usize,
    pub token: i32,
    pub finish: i32,
}

/// `llmcc_gen_stats_t`
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct GenStats {
    pub size: usize,
    pub prompt_tokens: u64,
    pub reused_tokens: u64,
    pub generated_tokens: u64,
    pub prefill_ns: u64,
    pub decode_ns: u64,
    pub finish: i32,
    pub reserved: u32,
}

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
    llmcc_open: unsafe extern "C" fn(*const Options, *mut *mut Model) -> Status,
    llmcc_close: unsafe extern "C" fn(*mut Model),
    llmcc_info: unsafe extern "C" fn(*const Model, *mut ModelInfo) -> Status,
    llmcc_manifest: unsafe extern "C" fn(*const Model) -> *const c_char,
    llmcc_stats: unsafe extern "C" fn(*const Model, *mut c_char, usize, *mut usize) -> Status,
    llmcc_seq_new: unsafe extern "C" fn(*const Model, *mut i32) -> Status,
    llmcc_seq_free: unsafe extern "C" fn(*const Model, i32) -> Status,
    llmcc_step: unsafe extern "C" fn(*const Model, *const Batch, *mut f32, usize) -> Status,
    llmcc_tokenize: unsafe extern "C" fn(*const Model, *const c_char, usize, u32, *mut i32, usize, *mut usize) -> Status,
    llmcc_apply_chat_template: unsafe extern "C" fn(*const Model, *const c_char, usize, *mut c_char, usize, *mut usize) -> Status,
    llmcc_gen_new: unsafe extern "C" fn(*const Model, i32, *const i32, usize, *const GenParams, *mut *mut Gen) -> Status,
    llmcc_gen_next: unsafe extern "C" fn(*mut Gen, *mut Piece) -> Status,
    llmcc_gen_stats: unsafe extern "C" fn(*const Gen, *mut GenStats) -> Status,
    llmcc_gen_free: unsafe extern "C" fn(*mut Gen),
}
