//! What the models of Cosmos 3 (NVIDIA, 2026) call their tensors.

use crate::arch::blocks::names::{ATTN_K, ATTN_K_NORM, ATTN_OUT, ATTN_Q, ATTN_Q_NORM, ATTN_V, Table};

/// Attention as Cosmos 3 is published, beside a model that makes images and sound, and as Transformers has it
/// in memory. Before [`HUGGING_FACE`].
pub(crate) const COSMOS3: Table = &[
    (ATTN_Q, "model.layers.{}.self_attn.q_proj"),
    (ATTN_Q, "model.layers.{}.self_attn.to_q"),
    (ATTN_K, "model.layers.{}.self_attn.k_proj"),
    (ATTN_K, "model.layers.{}.self_attn.to_k"),
    (ATTN_V, "model.layers.{}.self_attn.v_proj"),
    (ATTN_V, "model.layers.{}.self_attn.to_v"),
    (ATTN_OUT, "model.layers.{}.self_attn.o_proj"),
    (ATTN_OUT, "model.layers.{}.self_attn.to_out"),
    (ATTN_Q_NORM, "model.layers.{}.self_attn.q_norm"),
    (ATTN_Q_NORM, "model.layers.{}.self_attn.norm_q"),
    (ATTN_K_NORM, "model.layers.{}.self_attn.k_norm"),
    (ATTN_K_NORM, "model.layers.{}.self_attn.norm_k"),
];
