//! Structures of the C API and their requirements.

use super::Sized0;
pub use llmcc_abi::capi::*;

macro_rules! sized {
    ($($name:ident)*) => {$(
        // SAFETY: repr(C), size first, integers, floats and raw pointers only.
        unsafe impl Sized0 for $name {
            const NAME: &str = stringify!($name);
        }
    )*};
}

sized!(llmcc_options llmcc_model_info llmcc_entry_info llmcc_batch llmcc_embed_rows llmcc_gen_params llmcc_piece);
sized!(llmcc_gen_stats_t llmcc_tap_info llmcc_audio_info llmcc_engine_options llmcc_request llmcc_event);
