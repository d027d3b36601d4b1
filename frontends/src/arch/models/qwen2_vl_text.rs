//! Qwen2-VL (arXiv 2409.12191), its text model: Qwen2. Pairs of its rotation turn
//! along time, height and width, in three sections.

use crate::arch::blocks::prelude::*;
use crate::config::sections::Form;

pub(crate) const ARCH: Arch = Arch {
    model_type: "qwen2_vl_text",
    class: "Qwen2VLForConditionalGeneration",
    fields: &[IDENTITY, MODEL, ATTENTION, ROTARY, MLP, OPTIONAL_WINDOWS],
    fixed: &[("attention_bias", Neutral::On), ("qkv_bias", Neutral::On)],
    goldens: &["qwen2_vl_text", "qwen2_vl", "qwen2_5_vl"],
    names: Names(&[HUGGING_FACE]),
    read: |f| {
        let defaults = defaults! {
            vocab: 152_064, heads: 64, kv_heads: 8, max_position: 32_768, eps: 1e-5, theta: 1e6, window: Optional,
            ..LLAMA
        };
        let d = Decoder::read(f, &defaults)?.with_sections(f, Form::Apart, [16, 24, 24])?;
        Ok(Box::new(d.with_heads(|_, _, h| h.qkv_bias = true)))
    },
};
