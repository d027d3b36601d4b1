//! Qwen3.5, the dense text models: the gated delta rule in most layers, attention with gates in the
//! others, gains from one.

use crate::arch::blocks::families::qwen_gated_delta::{DELTA, GATE, LAYERS, NAMES, decoder, delta, drafted};
use crate::arch::blocks::prelude::*;

pub(crate) const ARCH: Arch = Arch {
    model_type: "qwen3_5_text",
    class: "Qwen3_5ForCausalLM",
    fields: &[IDENTITY, MODEL, ATTENTION, PARTIAL_ROTARY, MLP, ATTENTION_BIAS, DELTA, LAYERS],
    fixed: &[("attn_output_gate", Neutral::On), GATE],
    goldens: &["qwen3_5"],
    names: Names(&[NAMES, HUGGING_FACE]),
    read: |f| {
        let defaults = Defaults {
            vocab: Some(248_320),
            heads: Some(16),
            kv_heads: Some(4),
            head_dim: Some(256),
            max_position: 32_768,
            partial: 0.25,
            ..Defaults::LLAMA
        };
        Ok(Box::new(drafted(decoder(f, &defaults, delta(f)?)?)))
    },
};
