//! IQuest-Coder (IQuest Lab, 2026): Llama with heads of a size of their own.

use crate::arch::blocks::prelude::*;

pub(crate) const ARCH: Arch = Arch {
    model_type: "iquestcoder",
    class: "IQuestCoderForCausalLM",
    fields: &[IDENTITY, MODEL, ATTENTION, ROTARY, MLP, ATTENTION_BIAS, MLP_BIAS],
    // Transformers has the configuration only, and computes by this class.
    fixed: &[("architectures", Neutral::Words(&["LlamaForCausalLM"]))],
    goldens: &["iquestcoder"],
    names: Names(&[HUGGING_FACE]),
    read: |f| {
        let defaults = defaults! {
            vocab: 76_800, heads: 40, kv_heads: 8, head_dim: 128, max_position: 131_072, eps: 1e-5, ..LLAMA
        };
        let d = Decoder::read(f, &defaults)?;
        Ok(Box::new(d.with_biases(f)))
    },
};
