//! Jais 2 (Inception and MBZUAI, 2025): Llama with LayerNorm, biases, and squared ReLU without gate.

use crate::arch::blocks::prelude::*;

pub(crate) const ARCH: Arch = Arch {
    model_type: "jais2",
    class: "Jais2ForCausalLM",
    fields: &[IDENTITY, MODEL, ATTENTION, ROTARY, ATTENTION_BIAS, MLP_BIAS, OWN],
    fixed: &[],
    goldens: &["jais2"],
    names: Names(&[HUGGING_FACE]),
    read: |f| {
        let defaults = defaults! {
            vocab: 150_272, heads: 26, max_position: 8192, eps(layer_norm_eps): 1e-5, act: Relu2, ..LLAMA
        };
        let (attention, mlp) = (f.flag_or("attention_bias", true), f.flag_or("mlp_bias", true));
        let mut d = Decoder::read(f, &defaults)?;
        d.norm = Norm::layer(d.norm.eps);
        let d = d.with_attention_bias(attention);
        Ok(Box::new(d.with_mlp(|m| (m.gated, m.bias) = (false, mlp))))
    },
};

const OWN: &[Field] = fields! { intermediate_size, hidden_act: SIMPLE_ACTS, layer_norm_eps };
