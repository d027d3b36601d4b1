//! DeepSeek-V3 and R1 (arXiv 2412.19437): V2 with experts chosen by sigmoids and a correction of
//! them. Layers that predict further tokens (section 2.2) are draft heads, and no part of the model.

use crate::arch::blocks::families::latent_experts::{EXPERTS, experts, sigmoids_in_groups, with_dense};
use crate::arch::blocks::prelude::*;

pub(crate) const ARCH: Arch = Arch {
    model_type: "deepseek_v3",
    class: "DeepseekV3ForCausalLM",
    fields: &[IDENTITY, MODEL, ATTENTION, ROTARY, MLP, ATTENTION_BIAS, LATENT, EXPERTS, fields! { rope_interleave }],
    fixed: fixed! { One => moe_layer_freq; Words(&["sigmoid"]) => scoring_func; Words(&["noaux_tc"]) => topk_method; },
    goldens: &["deepseek_v3"],
    names: Names(&[DEEPSEEK_CORRECTION, DEEPSEEK_EXPERTS, latent_attention::NAMES, HUGGING_FACE]),
    read: |f| {
        let defaults = defaults! { vocab: 129_280, heads: 128, max_position: 4096, ..LLAMA };
        let latent = Latent::of(f);
        let d = latent_decoder::decoder(f, defaults, latent)?;
        let router = Router { pairs: true, ..sigmoids_in_groups(f, 8, 2.5)? };
        let experts = Experts { correction: Some(CORRECTION), ..experts(f, &d, router, [256, 1, 2048])? };
        Ok(Box::new(with_dense(f, d, experts, 3).with_numbered_drafts()))
    },
};
