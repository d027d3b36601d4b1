//! SmolLM3: Llama whose every fourth layer does not rotate positions.

use crate::arch::blocks::prelude::*;

pub(crate) const ARCH: Arch = Arch {
    model_type: "smollm3",
    class: "SmolLM3ForCausalLM",
    fields: &[IDENTITY, MODEL, ATTENTION, ROTARY, MLP, ATTENTION_BIAS, MLP_BIAS, UNROTATED],
    fixed: &[],
    goldens: &["smollm3"],
    names: Names(&[HUGGING_FACE]),
    read: |f| {
        let defaults = defaults! { kv_heads: 4, max_position: 32_768, tied: true, theta: 2e6, ..LLAMA };
        let d = Decoder::read(f, &defaults)?;
        let rotates = common::rotating_layers(f, d.facts.layers)?;
        Ok(Box::new(d.with_biases(f).with_attention(|i, a| a.rotary = a.rotary.filter(|_| rotates[i]))))
    },
};
