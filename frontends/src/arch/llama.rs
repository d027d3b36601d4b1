//! Llama 1 to 3 (arXiv 2302.13971, 2307.09288, 2407.21783) and the many models of that shape.

use super::Arch;
use super::blocks::{AttentionSpec, decoder};
use crate::config::fields::{ATTENTION_BIAS, DECODER, IDENTITY, MLP_BIAS};
use crate::config::{Defaults, WindowRule};

pub(super) const ARCH: Arch = Arch {
    model_type: "llama",
    class: "LlamaForCausalLM",
    fields: &[IDENTITY, DECODER, ATTENTION_BIAS, MLP_BIAS],
    fixed: &[],
    defaults: Defaults { kv_heads: None, head_dim: None, max_position: 2048, window: WindowRule::None },
    lift: |l| {
        let bias = l.config.attention_bias;
        decoder(l, |_| AttentionSpec { qkv_bias: bias, out_bias: bias, ..Default::default() })
    },
};
