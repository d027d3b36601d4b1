//! Persimmon (Adept, 2023): LayerNorm before the blocks, and of each head of queries and keys, these and
//! the values stored head by head, rotation of half of each head, squared ReLU, biases.

use crate::arch::blocks::prelude::*;

pub(crate) const ARCH: Arch = Arch {
    model_type: "persimmon",
    class: "PersimmonForCausalLM",
    fields: &[IDENTITY, MODEL, HEADS, PARTIAL_ROTARY, LAYER_NORM_MLP, fields! { qk_layernorm }],
    fixed: &[],
    goldens: &["persimmon"],
    names: Names(&[NAMES, HUGGING_FACE]),
    read: |f| {
        let defaults = defaults! {
            vocab: 262_144, heads: 64, max_position: 16_384, eps(layer_norm_eps): 1e-5, partial: 0.5, act: Relu2,
            ..LLAMA
        };
        let qk_norm = f.flag_or("qk_layernorm", true).then_some(QkNorm::Head);
        let mut d = Decoder::read(f, &defaults)?;
        d.norm = Norm::layer(d.norm.eps);
        let d = d.with_heads(|_, _, h| {
            (h.projection, h.qk_norm) = (Projection::ByGroup, qk_norm);
            (h.qkv_bias, h.out_bias) = (true, true);
        });
        Ok(Box::new(d.with_mlp(|m| (m.gated, m.bias) = (false, true))))
    },
};

const NAMES: Table = names! {
    "" { NORM => "model.final_layernorm" }
    "model.layers.{}." {
        ATTN_QKV => "self_attn.query_key_value", ATTN_Q_NORM => "self_attn.q_layernorm",
        ATTN_K_NORM => "self_attn.k_layernorm", ATTN_OUT => "self_attn.dense", MLP_UP => "mlp.dense_h_to_4h",
        MLP_DOWN => "mlp.dense_4h_to_h",
    }
};
