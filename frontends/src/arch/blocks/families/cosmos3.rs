//! Tensor names of the Cosmos 3 models (NVIDIA, 2026).

use crate::arch::blocks::names::{ATTN_K, ATTN_K_NORM, ATTN_OUT, ATTN_Q, ATTN_Q_NORM, ATTN_V, Table, names};

/// Attention as Cosmos 3 is published, beside a model that makes images and sound, and as Transformers has it
/// in memory. Before [`HUGGING_FACE`].
pub(crate) const COSMOS3: Table = names! {
    "model.layers.{}." {
        ATTN_Q => "self_attn.q_proj", ATTN_Q => "self_attn.to_q", ATTN_K => "self_attn.k_proj",
        ATTN_K => "self_attn.to_k", ATTN_V => "self_attn.v_proj", ATTN_V => "self_attn.to_v",
        ATTN_OUT => "self_attn.o_proj", ATTN_OUT => "self_attn.to_out", ATTN_Q_NORM => "self_attn.q_norm",
        ATTN_Q_NORM => "self_attn.norm_q", ATTN_K_NORM => "self_attn.k_norm", ATTN_K_NORM => "self_attn.norm_k",
    }
};
