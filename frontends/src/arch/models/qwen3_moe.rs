//! Qwen3 with experts (arXiv 2505.09388): Qwen3 with mixtures of experts in most layers.

use crate::arch::blocks::families::qwen_experts::{EXPERTS, NORMALIZED, experts, in_layers};
use crate::arch::blocks::prelude::*;

pub(crate) const ARCH: Arch = Arch {
    model_type: "qwen3_moe",
    class: "Qwen3MoeForCausalLM",
    fields: &[IDENTITY, MODEL, ATTENTION, ROTARY, MLP, ATTENTION_BIAS, EXPERTS, NORMALIZED],
    fixed: &[("use_qk_norm", Neutral::On), ("qk_norm", Neutral::On), ("qk_layernorm", Neutral::On)],
    goldens: &["qwen3_moe", "qwen3_moe_narrow"],
    names: Names(&[QWEN_EXPERTS, HUGGING_FACE]),
    read: |f| {
        let bias = f.flag("attention_bias");
        let d = Decoder::read(f, &defaults! { kv_heads: 4, max_position: 32_768, ..LLAMA })?;
        let d = d.with_heads(|_, _, h| (h.qkv_bias, h.out_bias, h.qk_norm) = (bias, bias, Some(QkNorm::Head)));
        let experts = experts(f, &d, [8, 768, 128], f.flag("norm_topk_prob"));
        in_layers(f, d, experts)
    },
};
