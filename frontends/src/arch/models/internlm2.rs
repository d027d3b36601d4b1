//! InternLM 2 (arXiv 2403.17297): Llama with Q, K and V stored group by group, and other names.
//!
//! Checked against Transformers' Llama with the same matrices, as it has no class for InternLM 2.

use crate::arch::blocks::prelude::*;

pub(crate) const ARCH: Arch = Arch {
    model_type: "internlm2",
    class: "InternLM2ForCausalLM",
    fields: &[IDENTITY, MODEL, DIVIDED, ROTARY, MLP, fields! { bias }],
    fixed: &[],
    goldens: &["internlm2"],
    names: Names(&[NAMES]),
    read: |f| {
        let defaults = defaults! { vocab: 103_168, heads: 32, ..LLAMA };
        let bias = f.flag_or("bias", true);
        let d = Decoder::read(f, &defaults)?;
        Ok(Box::new(d.with_heads(|_, _, h| (h.projection, h.qkv_bias, h.out_bias) = (Projection::ByGroup, bias, bias))))
    },
};

const NAMES: Table = names! {
    "model." { TABLE => "tok_embeddings", NORM => "norm" }
    "" { HEAD => "output" }
    "model.layers.{}." {
        ATTN_NORM => "attention_norm", ATTN_QKV => "attention.wqkv", ATTN_OUT => "attention.wo", MLP_NORM => "ffn_norm",
        MLP_GATE => "feed_forward.w1", MLP_UP => "feed_forward.w3", MLP_DOWN => "feed_forward.w2",
    }
};
