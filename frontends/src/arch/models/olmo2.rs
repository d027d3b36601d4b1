//! OLMo 2 (arXiv 2501.00656): norms after the blocks, and over all of the queries and keys.

use crate::arch::blocks::prelude::*;

pub(crate) const ARCH: Arch = Arch {
    model_type: "olmo2",
    class: "Olmo2ForCausalLM",
    fields: &[IDENTITY, MODEL, ATTENTION, ROTARY, MLP, ATTENTION_BIAS],
    fixed: &[("use_qk_norm", Neutral::On), ("qk_norm", Neutral::On), ("qk_layernorm", Neutral::On)],
    goldens: &["olmo2"],
    names: Names(&[POST_NORMS, HUGGING_FACE]),
    read: |f| {
        let bias = f.flag("attention_bias");
        let mut d = Decoder::read(f, &defaults! { eps: 1e-5, ..LLAMA })?;
        d.norms = Norms::After;
        Ok(Box::new(d.with_heads(|_, _, h| (h.qkv_bias, h.out_bias, h.qk_norm) = (bias, bias, Some(QkNorm::Row)))))
    },
};
