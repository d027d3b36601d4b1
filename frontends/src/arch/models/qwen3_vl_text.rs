//! Qwen3-VL (arXiv 2511.21631), its text model: Qwen3. Pairs of its rotation turn along time,
//! height and width by turns, and nothing is added to the first layers without images.

use crate::arch::blocks::families::cosmos3::COSMOS3;
use crate::arch::blocks::prelude::*;
use crate::config::sections::Form;

pub(crate) const ARCH: Arch = Arch {
    model_type: "qwen3_vl_text",
    class: "Qwen3VLForConditionalGeneration",
    fields: &[IDENTITY, MODEL, ATTENTION, ROTARY, MLP, ATTENTION_BIAS],
    fixed: &[("use_qk_norm", Neutral::On), ("qk_norm", Neutral::On), ("qk_layernorm", Neutral::On)],
    // Cosmos 3 is one of these.
    names: Names(&[COSMOS3, HUGGING_FACE]),
    goldens: &["qwen3_vl_text", "qwen3_vl"],
    read: |f| {
        let bias = f.flag("attention_bias");
        let defaults = defaults! {
            vocab: 151_936, heads: 32, kv_heads: 32, head_dim: 128, max_position: 128_000, theta: 5e5, ..LLAMA
        };
        let d = Decoder::read(f, &defaults)?.with_sections(f, Form::Interleaved, [24, 20, 20])?;
        Ok(Box::new(d.with_heads(|_, _, h| (h.qkv_bias, h.out_bias, h.qk_norm) = (bias, bias, Some(QkNorm::Head)))))
    },
};
