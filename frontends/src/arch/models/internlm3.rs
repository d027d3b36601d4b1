//! InternLM 3 (Shanghai AI Laboratory, 2025): Llama, its biases under names of its own.

use crate::arch::blocks::prelude::*;

pub(crate) const ARCH: Arch = Arch {
    model_type: "internlm3",
    class: "InternLM3ForCausalLM",
    fields: &[IDENTITY, MODEL, ATTENTION, ROTARY, MLP, fields! { attention_bias | qkv_bias, mlp_bias | bias }],
    // Transformers has the configuration only, and computes by this class.
    fixed: &[("architectures", Neutral::Words(&["LlamaForCausalLM"]))],
    goldens: &["internlm3"],
    names: Names(&[HUGGING_FACE]),
    read: |f| {
        let defaults = defaults! {
            vocab: 128_512, heads: 32, kv_heads: 2, head_dim: 128, max_position: 32_768, eps: 1e-5, ..LLAMA
        };
        let (attention, mlp) = (f.flag("attention_bias"), f.flag("mlp_bias"));
        if attention != mlp {
            let help = "this architecture expects biases in attention and MLP, or nowhere".to_string();
            return Err(f.unsupported("attention_bias", format!("{attention}, unlike `mlp_bias`"), help));
        }
        let d = Decoder::read(f, &defaults)?;
        Ok(Box::new(d.with_biases(f)))
    },
};
