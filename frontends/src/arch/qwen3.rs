//! Qwen3, dense (arXiv 2505.09388): no biases, RMSNorm over each head of Q and K.

use super::Arch;
use super::blocks::{AttentionSpec, decoder};
use crate::config::fields::{ATTENTION_BIAS, DECODER, IDENTITY, OPTIONAL_WINDOWS};
use crate::config::known::Neutral;
use crate::config::{Defaults, WindowRule};

pub(super) const ARCH: Arch = Arch {
    model_type: "qwen3",
    class: "Qwen3ForCausalLM",
    fields: &[IDENTITY, DECODER, ATTENTION_BIAS, OPTIONAL_WINDOWS],
    fixed: &[("use_qk_norm", Neutral::On), ("qk_norm", Neutral::On), ("qk_layernorm", Neutral::On)],
    defaults: Defaults { kv_heads: Some(32), head_dim: Some(128), max_position: 32_768, window: WindowRule::Optional },
    lift: |l| {
        let config = l.config;
        let bias = config.attention_bias;
        decoder(l, |i| AttentionSpec { qkv_bias: bias, out_bias: bias, qk_norm: true, window: config.windows[i] })
    },
};
