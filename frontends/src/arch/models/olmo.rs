//! OLMo (arXiv 2402.00838): Llama with a LayerNorm that has neither gain nor bias.

use crate::arch::blocks::prelude::*;

pub(crate) const ARCH: Arch = Arch {
    model_type: "olmo",
    class: "OlmoForCausalLM",
    fields: &[IDENTITY, MODEL, ATTENTION, ROTARY, ATTENTION_BIAS, fields! { intermediate_size, hidden_act, clip_qkv }],
    fixed: &[],
    goldens: &["olmo"],
    names: Names(&[HUGGING_FACE]),
    read: |f| {
        let bias = f.flag("attention_bias");
        let mut d = Decoder::read(f, &defaults! { eps: 1e-5, ..LLAMA })?;
        d.norm = Norm { gain: false, bias: false, ..Norm::layer(d.norm.eps) };
        let clip = common::limit(f, "clip_qkv")?;
        Ok(Box::new(d.with_heads(|_, _, h| {
            (h.qkv_bias, h.out_bias) = (bias, bias);
            h.with_dot(|s| s.clip = clip);
        })))
    },
};
