//! DeepSeek-V3.2 (arXiv 2512.02556): V3 whose attention reads the tokens that an indexer selects.

use crate::arch::blocks::families::indexer::{FIXED, INDEXER, indexed};
use crate::arch::blocks::families::latent_experts::{EXPERTS, experts, sigmoids_in_groups};
use crate::arch::blocks::indexer::{self, Indexer};
use crate::arch::blocks::prelude::*;

pub(crate) const ARCH: Arch = Arch {
    model_type: "deepseek_v32",
    class: "DeepseekV32ForCausalLM",
    fields: &[IDENTITY, MODEL, ATTENTION, ROTARY, MLP, ATTENTION_BIAS, LATENT, EXPERTS, INDEXER, OWN],
    fixed: FIXED,
    goldens: &["deepseek_v32", "deepseek_v32_select"],
    names: Names(&[DEEPSEEK_CORRECTION, DEEPSEEK_EXPERTS, indexer::NAMES, latent_attention::NAMES, HUGGING_FACE]),
    read: |f| {
        let defaults = defaults! { vocab: 129_280, heads: 128, max_position: 163_840, ..LLAMA };
        let latent = Latent::of(f);
        // Its indexer rotates halves.
        let d = indexed(f, latent_decoder::decoder(f, defaults, latent)?, Indexer::DEEPSEEK)?;
        let router = sigmoids_in_groups(f, 8, 2.5)?;
        let experts = Experts { correction: Some(CORRECTION), ..experts(f, &d, router, [256, 1, 2048])? };
        let first = f.count("first_k_dense_replace").unwrap_or(3);
        Ok(Box::new(d.with_sparse(f, first, experts)?.with_numbered_drafts()))
    },
};

const OWN: &[Field] = fields! { mlp_layer_types };
