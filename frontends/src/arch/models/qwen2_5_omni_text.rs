//! Qwen2.5-Omni (arXiv 2503.20215), the text model of its thinker: that of Qwen2-VL, with other sizes
//! where the file says nothing.

use crate::arch::blocks::prelude::*;

pub(crate) const ARCH: Arch = Arch {
    model_type: "qwen2_5_omni_text",
    class: "Qwen2_5OmniThinkerForConditionalGeneration",
    fields: &[IDENTITY, MODEL, ATTENTION, ROTARY, MLP, OPTIONAL_WINDOWS],
    // The biases of Q, K and V are always there.
    fixed: &[("attention_bias", Neutral::On), ("qkv_bias", Neutral::On)],
    goldens: &["qwen2_5_omni_text"],
    names: Names(&[HUGGING_FACE]),
    read: |f| {
        let defaults = defaults! {
            vocab: 152_064, heads: 28, kv_heads: 4, max_position: 32_768, theta: 1e6, window: Optional, ..LLAMA
        };
        let d = Decoder::read(f, &defaults)?;
        Ok(Box::new(d.with_heads(|_, _, h| h.qkv_bias = true)))
    },
};
