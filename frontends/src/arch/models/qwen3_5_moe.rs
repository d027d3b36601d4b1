//! Qwen3.5 with experts, the text models: Qwen3.5 with mixtures of experts, beside an MLP for all
//! tokens that each takes a share of.

use crate::arch::blocks::families::qwen_gated_delta::{
    DELTA, EXPERTS, GATE, LAYERS, NAMES, decoder, delta, drafted, experts,
};
use crate::arch::blocks::prelude::*;

pub(crate) const ARCH: Arch = Arch {
    model_type: "qwen3_5_moe_text",
    class: "Qwen3_5MoeForCausalLM",
    fields: &[IDENTITY, MODEL, ATTENTION, PARTIAL_ROTARY, ATTENTION_BIAS, DELTA, LAYERS, EXPERTS, OWN],
    fixed: &[
        ("norm_topk_prob", Neutral::On),
        ("attn_output_gate", Neutral::On),
        GATE,
        ("intermediate_size", Neutral::Any),
    ],
    goldens: &["qwen3_5_moe"],
    names: Names(&[NAMES, QWEN_EXPERTS, HUGGING_FACE]),
    read: |f| {
        let defaults = defaults! {
            vocab: 248_320, heads: 16, kv_heads: 2, head_dim: 256, max_position: 32_768, partial: 0.25,
            // The experts are the only MLPs.
            ffn: 1, ..LLAMA
        };
        let d = decoder(f, &defaults, delta(f)?)?;
        let experts = experts(f, &d, [256, 8], true)?;
        Ok(Box::new(drafted(d.with_experts(|_| Some(experts)))))
    },
};

const OWN: &[Field] = fields! { rms_norm_eps, hidden_act };
