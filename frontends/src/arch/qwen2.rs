//! Qwen2 and Qwen2.5 (arXiv 2407.10671, 2412.15115): Llama with biases on Q, K and V, and windows in the upper layers if asked for.

use super::Arch;
use super::blocks::{AttentionSpec, decoder};
use crate::config::fields::{DECODER, IDENTITY, OPTIONAL_WINDOWS};
use crate::config::known::Neutral;
use crate::config::{Defaults, WindowRule};

pub(super) const ARCH: Arch = Arch {
    model_type: "qwen2",
    class: "Qwen2ForCausalLM",
    fields: &[IDENTITY, DECODER, OPTIONAL_WINDOWS],
    // The biases of Q, K and V are always there.
    fixed: &[("attention_bias", Neutral::On), ("qkv_bias", Neutral::On), ("use_qkv_bias", Neutral::On), ("add_qkv_bias", Neutral::On)],
    defaults: Defaults { kv_heads: Some(32), head_dim: None, max_position: 32_768, window: WindowRule::Optional },
    lift: |l| {
        let config = l.config;
        decoder(l, |i| AttentionSpec { qkv_bias: true, window: config.windows[i], ..Default::default() })
    },
};
