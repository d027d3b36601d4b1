//! GLM-4.5V and 4.6V (arXiv 2507.01006), their text model: GLM-4.5 without norms of queries and
//! keys. Positions of texts are the same in all three sections of its rotation.

use crate::arch::blocks::families::latent_experts::{EXPERTS, experts, sigmoids, with_dense};
use crate::arch::blocks::prelude::*;

pub(crate) const ARCH: Arch = Arch {
    model_type: "glm4v_moe_text",
    class: "Glm4vMoeForConditionalGeneration",
    fields: &[IDENTITY, MODEL, ATTENTION, PARTIAL_ROTARY, MLP, ATTENTION_BIAS, EXPERTS],
    fixed: fixed! { Off => use_qk_norm; Words(&["sigmoid"]) => scoring_func; Words(&["noaux_tc"]) => topk_method; },
    goldens: &["glm4v_moe_text"],
    names: Names(&[DEEPSEEK_CORRECTION, DEEPSEEK_EXPERTS, HUGGING_FACE]),
    read: |f| {
        let defaults = defaults! {
            vocab: 151_424, heads: 96, kv_heads: 8, max_position: 65_536, eps: 1e-5, partial: 0.5, ..LLAMA
        };
        let bias = f.flag_or("attention_bias", true);
        let d = Decoder::read(f, &defaults)?.with_heads(|_, _, h| h.qkv_bias = bias);
        let experts = experts(f, &d, sigmoids(f, 8, 1.0)?, [128, 1, 1408])?;
        let experts = Experts { correction: Some(CORRECTION), ..experts };
        Ok(Box::new(with_dense(f, d, experts, 1).with_numbered_drafts()))
    },
};
