//! GLM-4.5 to 4.7 (arXiv 2508.06471): rotation of half of each head, dense layers first, then
//! mixtures of experts in groups, ranked with a correction, beside an MLP for all tokens.
//!
//! The layers after the last, which predict further tokens, are draft heads and no part of the model.

use crate::arch::blocks::families::latent_experts::sigmoids;
use crate::arch::blocks::prelude::*;

pub(crate) const ARCH: Arch = Arch {
    model_type: "glm4_moe",
    class: "Glm4MoeForCausalLM",
    fields: &[IDENTITY, MODEL, ATTENTION, PARTIAL_ROTARY, MLP, ATTENTION_BIAS, OWN],
    fixed: &[],
    goldens: &["glm4_moe"],
    names: Names(&[NAMES, QWEN_EXPERTS, HUGGING_FACE]),
    read: |f| {
        let bias = f.flag("attention_bias");
        let qk_norm = f.flag("use_qk_norm").then_some(QkNorm::Head);
        let defaults = defaults! { kv_heads: 8, max_position: 131_072, eps: 1e-5, partial: 0.5, ..LLAMA };
        let d = Decoder::read(f, &defaults)?.with_heads(|_, _, h| (h.qkv_bias, h.qk_norm) = (bias, qk_norm));
        let router = sigmoids(f, 8, 1.0)?;
        let ffn = f.size("moe_intermediate_size").or(1408);
        let beside = f.count("n_shared_experts").unwrap_or(1).min(1 << 12);
        let experts = Experts {
            ffn,
            correction: Some(CORRECTION),
            shared: (beside > 0).then_some(Shared::plain(ffn * beside)),
            ..Experts::like(&d, router, f.size("n_routed_experts").or(128))
        };
        let experts = experts.checked(f, ["n_routed_experts", "num_experts_per_tok"])?;
        let dense = f.count("first_k_dense_replace").unwrap_or(1);
        Ok(Box::new(d.with_experts(|i| (i >= dense).then_some(experts)).with_numbered_drafts()))
    },
};

const OWN: &[Field] = fields! {
    use_qk_norm, n_routed_experts | num_local_experts | num_experts, num_experts_per_tok, moe_intermediate_size,
    n_shared_experts: Accepts::Count, routed_scaling_factor, n_group, topk_group, first_k_dense_replace, norm_topk_prob,
};

const NAMES: Table = names! {
    "model.layers.{}." {
        CORRECTION => "mlp.gate.e_score_correction_bias", SHARED_GATE => "mlp.shared_experts.gate_proj",
        SHARED_UP => "mlp.shared_experts.up_proj", SHARED_DOWN => "mlp.shared_experts.down_proj",
    }
};
