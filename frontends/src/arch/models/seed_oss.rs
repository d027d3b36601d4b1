//! Seed-OSS: Llama with a switch of its own for the bias of attention's output.

use crate::arch::blocks::prelude::*;

pub(crate) const ARCH: Arch = Arch {
    model_type: "seed_oss",
    class: "SeedOssForCausalLM",
    fields: &[IDENTITY, MODEL, ATTENTION, ROTARY, MLP, ATTENTION_BIAS, MLP_BIAS, fields! { attention_out_bias }],
    fixed: &[],
    goldens: &["seed_oss"],
    names: Names(&[HUGGING_FACE]),
    read: |f| {
        let (qkv, out, mlp) = (f.flag_or("attention_bias", true), f.flag("attention_out_bias"), f.flag("mlp_bias"));
        let d = Decoder::read(f, &defaults! { kv_heads: 8, head_dim: 128, max_position: 524_288, ..LLAMA })?;
        let d = d.with_heads(|_, _, h| (h.qkv_bias, h.out_bias) = (qkv, out));
        Ok(Box::new(d.with_mlp(|m| m.bias = mlp)))
    },
};
