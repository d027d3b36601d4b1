//! GLM-5 (arXiv 2602.15763): DeepSeek-V3.2 with other sizes, whose indexer rotates neighbours, and whose
//! layers may read the tokens that an earlier one has selected (arXiv 2603.12201).

use crate::arch::blocks::families::indexer::{FIXED_NEIGHBOURS, INDEXER, INDEXERS, indexed, shared};
use crate::arch::blocks::families::latent_experts::{EXPERTS, experts, sigmoids};
use crate::arch::blocks::indexer::{self, Indexer};
use crate::arch::blocks::prelude::*;

pub(crate) const ARCH: Arch = Arch {
    model_type: "glm_moe_dsa",
    class: "GlmMoeDsaForCausalLM",
    fields: &[IDENTITY, MODEL, ATTENTION, ROTARY, MLP, ATTENTION_BIAS, LATENT, EXPERTS, INDEXER, INDEXERS, OWN],
    fixed: FIXED_NEIGHBOURS,
    goldens: &["glm_moe_dsa", "glm_moe_dsa_select"],
    names: Names(&[DEEPSEEK_CORRECTION, DEEPSEEK_EXPERTS, indexer::NAMES, latent_attention::NAMES, HUGGING_FACE]),
    read: |f| {
        let defaults = defaults! { vocab: 154_880, heads: 64, max_position: 202_752, eps: 1e-5, ..LLAMA };
        let latent = Latent { q_rank: Some(2048), nope: 192, value: 256, ..Latent::of(f) };
        let indexer = Indexer { heads: 32, interleaved: true, ..Indexer::DEEPSEEK };
        let d = shared(f, indexed(f, latent_decoder::decoder(f, defaults, latent)?, indexer)?, 1)?;
        let router = sigmoids(f, 8, 2.5)?;
        let experts = Experts { correction: Some(CORRECTION), ..experts(f, &d, router, [256, 1, 2048])? };
        let first = f.count("first_k_dense_replace").unwrap_or(3);
        Ok(Box::new(d.with_sparse(f, first, experts)?.with_numbered_drafts()))
    },
};

const OWN: &[Field] = fields! { mlp_layer_types };
