//! FlexOLMo (arXiv 2507.07024): OLMo 2 with a mixture of experts in every layer.

use crate::arch::blocks::families::olmo_experts::{EXPERTS, FIXED, with_experts};
use crate::arch::blocks::prelude::*;

pub(crate) const ARCH: Arch = Arch {
    model_type: "flex_olmo",
    class: "FlexOlmoForCausalLM",
    fields: &[IDENTITY, MODEL, ATTENTION, ROTARY, MLP, ATTENTION_BIAS, EXPERTS],
    fixed: FIXED,
    goldens: &["flex_olmo"],
    names: Names(&[QWEN_EXPERTS, POST_NORMS, HUGGING_FACE]),
    read: |f| {
        let defaults = defaults! { vocab: 100_352, heads: 32, max_position: 4096, theta: 5e5, ..LLAMA };
        let mut d = Decoder::read(f, &defaults)?;
        d.norms = Norms::After;
        with_experts(f, d, 5, 7)
    },
};
