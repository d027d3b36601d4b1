//! OLMoE (arXiv 2409.02060): Llama with norms of the whole rows of queries and keys, and a mixture
//! of experts in every layer.

use crate::arch::blocks::families::olmo_experts::{EXPERTS, FIXED, with_experts};
use crate::arch::blocks::prelude::*;

pub(crate) const ARCH: Arch = Arch {
    model_type: "olmoe",
    class: "OlmoeForCausalLM",
    fields: &[IDENTITY, MODEL, ATTENTION, ROTARY, MLP, ATTENTION_BIAS, EXPERTS, fields! { clip_qkv }],
    fixed: FIXED,
    goldens: &["olmoe"],
    names: Names(&[QWEN_EXPERTS, HUGGING_FACE]),
    read: |f| {
        let d = Decoder::read(f, &defaults! { max_position: 4096, eps: 1e-5, ..LLAMA })?;
        let clip = common::limit(f, "clip_qkv")?;
        let d = d.with_heads(|_, _, h| h.with_dot(|s| s.clip = clip));
        with_experts(f, d, 8, 64)
    },
};
