//! Mistral (arXiv 2310.06825): Llama with a sliding window.

use super::Arch;
use super::blocks::{AttentionSpec, decoder};
use crate::config::fields::{DECODER, IDENTITY, WINDOW};
use crate::config::known::Neutral;
use crate::config::{Defaults, WindowRule};

pub(super) const ARCH: Arch = Arch {
    model_type: "mistral",
    class: "MistralForCausalLM",
    fields: &[IDENTITY, DECODER, WINDOW],
    fixed: &[("use_sliding_window", Neutral::WindowsOn), ("max_window_layers", Neutral::WindowsOn)],
    defaults: Defaults { kv_heads: Some(8), head_dim: None, max_position: 131_072, window: WindowRule::AllLayers(4096) },
    lift: |l| {
        let config = l.config;
        decoder(l, |i| AttentionSpec { window: config.windows[i], ..Default::default() })
    },
};
