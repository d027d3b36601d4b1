//! Qwen3-Omni (arXiv 2509.17765), the text model of its thinker: Qwen3 with experts. Positions of texts are the same in
//! all three sections of its rotation, and nothing is added to the first layers without images.

use crate::arch::blocks::families::qwen_experts::{EXPERTS, NORMALIZED, experts, in_layers};
use crate::arch::blocks::prelude::*;

pub(crate) const ARCH: Arch = Arch {
    model_type: "qwen3_omni_moe_text",
    class: "Qwen3OmniMoeThinkerForConditionalGeneration",
    fields: &[IDENTITY, MODEL, ATTENTION, ROTARY, MLP, ATTENTION_BIAS, EXPERTS, NORMALIZED],
    fixed: &[("use_qk_norm", Neutral::On), ("qk_norm", Neutral::On), ("qk_layernorm", Neutral::On)],
    goldens: &["qwen3_omni_moe_text"],
    names: Names(&[QWEN_EXPERTS, HUGGING_FACE]),
    read: |f| {
        let bias = f.flag("attention_bias");
        let defaults = defaults! { vocab: 3584, heads: 28, kv_heads: 4, max_position: 32_768, theta: 1e6, ..LLAMA };
        let d = Decoder::read(f, &defaults)?;
        let d = d.with_heads(|_, _, h| (h.qkv_bias, h.out_bias, h.qk_norm) = (bias, bias, Some(QkNorm::Head)));
        let experts = experts(f, &d, [8, 768, 128], f.flag_or("norm_topk_prob", true));
        in_layers(f, d, experts)
    },
};
