//! Gemma (arXiv 2403.08295): Llama with gains that are the stored values plus one, tanh-GELU, and
//! embeddings times the root of their width.

use crate::arch::blocks::prelude::*;

pub(crate) const ARCH: Arch = Arch {
    model_type: "gemma",
    class: "GemmaForCausalLM",
    fields: &[IDENTITY, MODEL, ATTENTION, ROTARY, MLP, ATTENTION_BIAS, CAUSAL],
    // Both are for tanh-GELU, whatever the files of the first release say: see below.
    fixed: &[("hidden_activation", Neutral::Words(&["gelu", "gelu_pytorch_tanh"]))],
    goldens: &["gemma"],
    names: Names(&[HUGGING_FACE]),
    read: |f| {
        let bias = f.flag("attention_bias");
        let act = UnaryOp::GeluTanh;
        let defaults = defaults! { kv_heads: 16, head_dim: 256, max_position: 8192, tied: true, act, ..LLAMA };
        let mut d = Decoder::read(f, &defaults)?;
        d.norm.from_one = true;
        d.scales.embedding_root = true;
        let d = d.with_attention_bias(bias).both_ways_if_said(f);
        Ok(Box::new(d.with_mlp(|m| m.act = if m.act == UnaryOp::Gelu { act } else { m.act })))
    },
};
