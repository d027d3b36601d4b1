//! Qwen1.5 and Qwen2 with experts (arXiv 2407.10671): Qwen2 with mixtures of experts in most
//! layers, beside an MLP for all tokens that each takes a share of.

use crate::arch::blocks::families::qwen_experts::{EXPERTS, NORMALIZED, experts, in_layers};
use crate::arch::blocks::prelude::*;

pub(crate) const ARCH: Arch = Arch {
    model_type: "qwen2_moe",
    class: "Qwen2MoeForCausalLM",
    fields: &[IDENTITY, MODEL, ATTENTION, ROTARY, MLP, EXPERTS, NORMALIZED, OWN],
    fixed: &[("attention_bias", Neutral::On), ("use_qkv_bias", Neutral::On), ("add_qkv_bias", Neutral::On)],
    goldens: &["qwen2_moe"],
    names: Names(&[QWEN_EXPERTS, HUGGING_FACE]),
    read: |f| {
        let bias = f.flag_or("qkv_bias", true);
        let d = Decoder::read(f, &defaults! { kv_heads: 16, max_position: 32_768, ..LLAMA })?;
        let d = d.with_heads(|_, _, h| h.qkv_bias = bias);
        let shared = Shared { mixed: true, ..Shared::plain(f.size("shared_expert_intermediate_size").or(5632)) };
        let experts = experts(f, &d, [4, 1408, 60], f.flag("norm_topk_prob"));
        in_layers(f, d, Experts { shared: Some(shared), ..experts })
    },
};

const OWN: &[Field] = fields! { qkv_bias, shared_expert_intermediate_size };
