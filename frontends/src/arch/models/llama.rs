//! Llama 1 to 3 (arXiv 2302.13971, 2307.09288, 2407.21783) and the many models of that shape.

use crate::arch::blocks::prelude::*;

pub(crate) const ARCH: Arch = Arch {
    model_type: "llama",
    class: "LlamaForCausalLM",
    fields: &[IDENTITY, MODEL, ATTENTION, ROTARY, MLP, ATTENTION_BIAS, MLP_BIAS, CAUSAL],
    fixed: &[],
    goldens: &[
        "llama3",
        "llama3_sharded",
        "llama",
        "llama_linear",
        "llama_yarn",
        "llama_bias",
        "llama_bf16",
        "llama_f16",
        "smolvlm",
        "llava",
    ],
    names: Names(&[HUGGING_FACE]),
    read: |f| {
        let d = Decoder::read(&f.by_default(SIZES), &Defaults::LLAMA)?;
        Ok(Box::new(d.with_biases(f).both_ways_if_said(f)))
    },
};

/// Sizes that LLaVA's first files omit.
const SIZES: &[(&str, usize)] = &[
    ("vocab_size", 32_000),
    ("hidden_size", 4096),
    ("intermediate_size", 11_008),
    ("num_hidden_layers", 32),
    ("num_attention_heads", 32),
];
