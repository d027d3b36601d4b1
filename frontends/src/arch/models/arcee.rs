//! Arcee (AFM-4.5B): Llama with squared ReLU without gate.

use crate::arch::blocks::prelude::*;

pub(crate) const ARCH: Arch = Arch {
    model_type: "arcee",
    class: "ArceeForCausalLM",
    fields: &[IDENTITY, MODEL, ATTENTION, ROTARY, ATTENTION_BIAS, MLP_BIAS, OWN],
    fixed: &[],
    goldens: &["arcee"],
    names: Names(&[HUGGING_FACE]),
    read: |f| {
        let defaults = defaults! { vocab: 32_000, heads: 32, max_position: 4096, eps: 1e-5, act: Relu2, ..LLAMA };
        let d = Decoder::read(f, &defaults)?;
        Ok(Box::new(d.with_biases(f).with_mlp(|m| m.gated = false)))
    },
};

const OWN: &[Field] = fields! { intermediate_size, hidden_act: SIMPLE_ACTS, rms_norm_eps };
