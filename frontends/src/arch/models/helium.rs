//! Helium (Kyutai, 2025): Llama with rotation of neighbours.

use crate::arch::blocks::prelude::*;

pub(crate) const ARCH: Arch = Arch {
    model_type: "helium",
    class: "HeliumForCausalLM",
    fields: &[IDENTITY, MODEL, ATTENTION, ROTARY, MLP, ATTENTION_BIAS, MLP_BIAS],
    fixed: &[],
    goldens: &["helium"],
    names: Names(&[HUGGING_FACE]),
    read: |f| {
        let defaults = defaults! {
            vocab: 48_000, heads: 20, kv_heads: 20, head_dim: 128, max_position: 4096, eps: 1e-8, theta: 1e5, ..LLAMA
        };
        let (attention, mlp) = (f.flag("attention_bias"), f.flag("mlp_bias"));
        let d = Decoder::read(f, &defaults)?;
        let d = d.with_heads(|_, a, h| (h.qkv_bias, h.neighbours) = (attention, a.heads.dim));
        Ok(Box::new(d.with_mlp(|m| m.bias = mlp)))
    },
};
