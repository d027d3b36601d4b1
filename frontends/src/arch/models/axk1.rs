//! A.X K1 (SK Telecom, 2026): DeepSeek-V3 with a norm of the experts' output.

use crate::arch::blocks::experts::{CORRECTION_IF_ANY, EXPERTS_POST_NORM, sparse_by_types_or_every};
use crate::arch::blocks::families::latent_experts::{EXPERTS, experts, sigmoids_in_groups};
use crate::arch::blocks::prelude::*;

const NAMES: Table = names! {
    "model.layers.{}." {
        CORRECTION_IF_ANY => "mlp.gate.e_score_correction_bias", EXPERTS_POST_NORM => "post_mlp_layernorm",
        EXPERTS_POST_NORM => "mlp.post_mlp_layernorm",
    }
};

pub(crate) const ARCH: Arch = Arch {
    model_type: "axk1",
    class: "AXK1ForCausalLM",
    fields: &[IDENTITY, MODEL, ATTENTION, ROTARY, MLP, ATTENTION_BIAS, LATENT, EXPERTS, OWN],
    fixed: &[("scoring_func", Neutral::Words(&["sigmoid"])), ("topk_method", Neutral::Words(&["noaux_tc", "none"]))],
    goldens: &["axk1", "axk1_corrected"],
    names: Names(&[NAMES, DEEPSEEK_EXPERTS, latent_attention::NAMES, HUGGING_FACE]),
    read: |f| {
        let defaults = defaults! { vocab: 163_840, heads: 64, max_position: 32_768, ..LLAMA };
        let latent = Latent::of(f);
        Latent::short_queries(f)?;
        let d = latent_decoder::decoder(f, defaults, latent)?;
        let router = sigmoids_in_groups(f, 8, 2.5)?;
        let experts = Experts {
            correction: Some(CORRECTION_IF_ANY),
            place: Place { out_norm: true, ..Place::default() },
            ..experts(f, &d, router, [192, 1, 2048])?
        };
        let sparse = sparse_by_types_or_every(f, d.facts.layers)?;
        Ok(Box::new(d.with_experts(|i| sparse[i].then_some(experts))))
    },
};

const OWN: &[Field] = fields! { rope_interleave, mlp_layer_types, moe_layer_freq };
