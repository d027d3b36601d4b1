//! Phi-1, Phi-1.5 and Phi-2 (arXiv 2306.11644, 2309.05463): attention and MLP side by side behind one
//! LayerNorm, rotation of a part of each head, biases everywhere, also of the head.

use crate::arch::blocks::prelude::*;

pub(crate) const ARCH: Arch = Arch {
    model_type: "phi",
    class: "PhiForCausalLM",
    fields: &[IDENTITY, MODEL, ATTENTION, LAYER_NORM_MLP, PARTIAL_ROTARY, fields! { qk_layernorm }],
    fixed: &[],
    goldens: &["phi"],
    names: Names(&[NAMES, HUGGING_FACE]),
    read: |f| {
        let defaults = defaults! {
            heads: 32, max_position: 2048, eps(layer_norm_eps): 1e-5, partial: 0.5, act: GeluTanh, ..LLAMA
        };
        let qk_norm = f.flag("qk_layernorm").then_some(QkNorm::Head);
        let mut d = Decoder::read(f, &defaults)?;
        (d.norm, d.norms, d.head.bias) = (Norm::layer(d.norm.eps), Norms::Parallel { own: false }, true);
        let d = d.with_heads(|_, _, h| (h.qkv_bias, h.out_bias, h.qk_norm) = (true, true, qk_norm));
        Ok(Box::new(d.with_mlp(|m| (m.gated, m.bias) = (false, true))))
    },
};

const NAMES: Table = names! {
    "" { NORM => "model.final_layernorm" }
    "model.layers.{}." {
        ATTN_Q_NORM => "self_attn.q_layernorm", ATTN_K_NORM => "self_attn.k_layernorm", ATTN_OUT => "self_attn.dense",
        MLP_UP => "mlp.fc1", MLP_DOWN => "mlp.fc2",
    }
};
