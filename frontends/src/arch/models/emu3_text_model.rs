//! The text model of Emu3 (arXiv 2409.18869), whose pictures are tokens: Llama.

use crate::arch::blocks::prelude::*;

pub(crate) const ARCH: Arch = Arch {
    model_type: "emu3_text_model",
    class: "Emu3ForCausalLM",
    fields: &[IDENTITY, MODEL, ATTENTION, ROTARY, MLP, ATTENTION_BIAS, MLP_BIAS],
    fixed: &[],
    goldens: &["emu3"],
    names: Names(&[HUGGING_FACE]),
    read: |f| {
        let f = &f.by_default(&[("hidden_size", 4096), ("intermediate_size", 14_336), ("num_hidden_layers", 32)]);
        let sizes = defaults! { vocab: 184_622, heads: 32, kv_heads: 8, ..LLAMA };
        let d = Decoder::read(f, &defaults! { max_position: 9216, eps: 1e-5, theta: 1e6, ..sizes })?;
        Ok(Box::new(d.with_biases(f)))
    },
};
