//! Qwen2 and Qwen2.5 (arXiv 2407.10671, 2412.15115): Llama with biases on Q, K and V, and windows
//! in the upper layers if asked for.

use crate::arch::blocks::families::dual_chunk::{CHUNKS, within_chunk};
use crate::arch::blocks::prelude::*;

pub(crate) const ARCH: Arch = Arch {
    model_type: "qwen2",
    class: "Qwen2ForCausalLM",
    fields: &[IDENTITY, MODEL, ATTENTION, ROTARY, MLP, OPTIONAL_WINDOWS, CAUSAL, CHUNKS],
    // The biases of Q, K and V are always there.
    fixed: fixed! { On => attention_bias qkv_bias use_qkv_bias add_qkv_bias; },
    goldens: &["qwen2"],
    names: Names(&[HUGGING_FACE]),
    read: |f| Ok(Box::new(decoder(f)?)),
};

pub(crate) fn decoder(f: &Fields) -> Result<Decoder, ConfigError> {
    let defaults = defaults! { kv_heads: 32, max_position: 32_768, window: Optional, ..LLAMA };
    let mut d = Decoder::read(f, &defaults)?;
    within_chunk(f, &mut d.facts)?;
    Ok(d.with_heads(|_, _, h| h.qkv_bias = true).both_ways_if_said(f))
}
