//! Ministral (Mistral AI, 2024): Mistral with windows in some layers.

use crate::arch::blocks::prelude::*;

pub(crate) const ARCH: Arch = Arch {
    model_type: "ministral",
    class: "MinistralForCausalLM",
    fields: &[IDENTITY, MODEL, ATTENTION, ROTARY, MLP, WINDOW],
    fixed: &[("use_sliding_window", Neutral::WindowsOn), ("max_window_layers", Neutral::WindowsOn)],
    goldens: &["ministral"],
    names: Names(&[HUGGING_FACE]),
    read: |f| {
        // All of them where nothing else is said.
        let defaults = defaults! {
            vocab: 32_000, heads: 32, kv_heads: 8, max_position: 131_072, window: Most(4096, usize::MAX), ..LLAMA
        };
        Ok(Box::new(Decoder::read(f, &defaults)?))
    },
};
