//! GPT-NeoX and Pythia (arXiv 2204.06745, 2304.01373): attention and MLP side by side, each with a
//! LayerNorm of its own, Q, K and V stored head by head, rotation of a part of each head.

use crate::arch::blocks::prelude::*;

pub(crate) const ARCH: Arch = Arch {
    model_type: "gpt_neox",
    class: "GPTNeoXForCausalLM",
    fields: &[IDENTITY, MODEL, HEADS, LAYER_NORM_MLP, ATTENTION_BIAS, OWN],
    fixed: &[],
    goldens: &["gpt_neox", "gpt_neox_serial"],
    names: Names(&[NAMES]),
    read: |f| {
        let defaults = defaults! {
            vocab: 50432, heads: 64, max_position: 2048, eps(layer_norm_eps): 1e-5, partial: 0.25, act: Gelu, ..LLAMA
        };
        let bias = f.flag_or("attention_bias", true);
        let mut d = Decoder::read(f, &defaults)?;
        d.norm = Norm::layer(d.norm.eps);
        if f.flag_or("use_parallel_residual", true) {
            d.norms = Norms::Parallel { own: true };
        }
        let d = d.with_heads(|_, _, h| (h.projection, h.qkv_bias, h.out_bias) = (Projection::ByGroup, bias, bias));
        Ok(Box::new(d.with_mlp(|m| (m.gated, m.bias) = (false, true))))
    },
};

const OWN: &[Field] = fields! {
    use_parallel_residual, rope_theta | rotary_emb_base, rope_scaling, rope_parameters,
    partial_rotary_factor | rotary_pct,
};

const NAMES: Table = names! {
    "gpt_neox." { TABLE => "embed_in", NORM => "final_layer_norm" }
    "" { HEAD => "embed_out" }
    "gpt_neox.layers.{}." {
        ATTN_NORM => "input_layernorm", ATTN_QKV => "attention.query_key_value", ATTN_OUT => "attention.dense",
        MLP_NORM => "post_attention_layernorm", MLP_UP => "mlp.dense_h_to_4h", MLP_DOWN => "mlp.dense_4h_to_h",
    }
};
