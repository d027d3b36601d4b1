//! Qwen3, dense (arXiv 2505.09388): no biases, RMSNorm over each head of Q and K.

use crate::arch::blocks::prelude::*;

pub(crate) const ARCH: Arch = Arch {
    model_type: "qwen3",
    class: "Qwen3ForCausalLM",
    fields: &[IDENTITY, MODEL, ATTENTION, ROTARY, MLP, ATTENTION_BIAS, OPTIONAL_WINDOWS, CAUSAL],
    fixed: &[("use_qk_norm", Neutral::On), ("qk_norm", Neutral::On), ("qk_layernorm", Neutral::On)],
    goldens: &["qwen3", "qwen3_embedding", "qwen3_classes"],
    names: Names(&[HUGGING_FACE]),
    read: |f| {
        let bias = f.flag("attention_bias");
        let defaults = defaults! { kv_heads: 32, head_dim: 128, max_position: 32_768, window: Optional, ..LLAMA };
        let d = Decoder::read(f, &defaults)?;
        let d = d.with_heads(|_, _, h| (h.qkv_bias, h.out_bias, h.qk_norm) = (bias, bias, Some(QkNorm::Head)));
        Ok(Box::new(d.both_ways_if_said(f)))
    },
};
