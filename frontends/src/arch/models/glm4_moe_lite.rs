//! GLM-4.7-Flash (arXiv 2508.06471): latent attention and experts as DeepSeek-V3 has them.
//!
//! The layers after the last, which predict further tokens, are draft heads and no part of the model.

use crate::arch::blocks::families::latent_experts::{MIXTURE, experts, sigmoids};
use crate::arch::blocks::prelude::*;

pub(crate) const ARCH: Arch = Arch {
    model_type: "glm4_moe_lite",
    class: "Glm4MoeLiteForCausalLM",
    fields: &[IDENTITY, MODEL, ATTENTION, ROTARY, MLP, ATTENTION_BIAS, LATENT, MIXTURE, OWN],
    fixed: fixed! {
        Words(&["noaux_tc"]) => topk_method;
        Words(&["sigmoid"]) => scoring_func;
        One => first_k_dense_replace;
    },
    goldens: &["glm4_moe_lite"],
    names: Names(&[DEEPSEEK_CORRECTION, DEEPSEEK_EXPERTS, latent_attention::NAMES, HUGGING_FACE]),
    read: |f| {
        let defaults = defaults! { vocab: 154_880, heads: 20, max_position: 202_752, eps: 1e-5, ..LLAMA };
        let latent = Latent { q_rank: Some(768), kv_rank: 512, nope: 192, rope: 64, value: 256, ..Latent::of(f) };
        let d = latent_decoder::decoder(f, defaults, latent)?;
        let router = sigmoids(f, 4, 1.8)?;
        let experts = Experts { correction: Some(CORRECTION), ..experts(f, &d, router, [64, 1, 1536])? };
        Ok(Box::new(d.with_sparse(f, 1, experts)?.with_numbered_drafts()))
    },
};

const OWN: &[Field] = fields! { rope_interleave, mlp_layer_types };
