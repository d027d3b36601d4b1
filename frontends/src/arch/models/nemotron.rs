//! Nemotron and Minitron (arXiv 2402.16819, 2407.14679): LayerNorm with gains that are the stored
//! values plus one, squared ReLU without gate, rotation of a part of each head.

use crate::arch::blocks::prelude::*;

pub(crate) const ARCH: Arch = Arch {
    model_type: "nemotron",
    class: "NemotronForCausalLM",
    fields: &[IDENTITY, MODEL, ATTENTION, PARTIAL_ROTARY, ATTENTION_BIAS, MLP_BIAS, OWN],
    // A further field of Minitron's configurations.
    fixed: &[("rope_percent", Neutral::Same("partial_rotary_factor"))],
    goldens: &["nemotron"],
    names: Names(&[HUGGING_FACE]),
    read: |f| {
        let defaults = defaults! {
            vocab: 256_000, heads: 48, max_position: 4096, eps(norm_eps): 1e-5, partial: 0.5, act: Relu2, ..LLAMA
        };
        let mut d = Decoder::read(f, &defaults)?;
        d.norm = Norm { from_one: true, ..Norm::layer(d.norm.eps) };
        Ok(Box::new(d.with_biases(f).with_mlp(|m| m.gated = false)))
    },
};

const OWN: &[Field] = fields! { intermediate_size, hidden_act: SIMPLE_ACTS, norm_eps };
