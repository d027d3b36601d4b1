//! Qwen2 and Qwen2.5 (arXiv 2407.10671, 2412.15115): Llama with biases on Q, K and V, and windows
//! in the upper layers if asked for.

use crate::arch::blocks::families::dual_chunk::CHUNKS;
use crate::arch::blocks::families::qwen2_decoder::decoder;
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
