//! Mistral (arXiv 2310.06825): Llama with a sliding window.

use crate::arch::blocks::prelude::*;

pub(crate) const ARCH: Arch = Arch {
    model_type: "mistral",
    class: "MistralForCausalLM",
    fields: &[IDENTITY, MODEL, ATTENTION, ROTARY, MLP, WINDOW, CAUSAL],
    fixed: &[("use_sliding_window", Neutral::WindowsOn), ("max_window_layers", Neutral::WindowsOn)],
    goldens: &["mistral", "mistral_both_ways"],
    names: Names(&[HUGGING_FACE]),
    read: |f| {
        let defaults = defaults! { kv_heads: 8, max_position: 131_072, window: AllLayers(4096), ..LLAMA };
        let d = Decoder::read(&f.by_default(SIZES), &defaults)?;
        Ok(Box::new(d.both_ways_if_said(f)))
    },
};

/// Sizes that files of LLaVA 1.6 omit.
const SIZES: &[(&str, usize)] = &[
    ("vocab_size", 32_000),
    ("hidden_size", 4096),
    ("intermediate_size", 14_336),
    ("num_hidden_layers", 32),
    ("num_attention_heads", 32),
];
