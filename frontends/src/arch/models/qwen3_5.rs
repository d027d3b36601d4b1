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
        let defaults = defaults! {
            vocab: 248_320, heads: 16, kv_heads: 4, head_dim: 256, max_position: 32_768, partial: 0.25, ..LLAMA
        };
        Ok(Box::new(drafted(decoder(f, &defaults, delta(f)?)?)))
    },
};
