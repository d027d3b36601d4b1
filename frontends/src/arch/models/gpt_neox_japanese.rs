//! GPT-NeoX Japanese (ABEJA, 2022): GPT-NeoX with its blocks one after the other and without
//! biases, except on the output of the last layer's attention.

use crate::arch::blocks::names::ATTN_OUT_BIAS;
use crate::arch::blocks::prelude::*;

pub(crate) const ARCH: Arch = Arch {
    model_type: "gpt_neox_japanese",
    class: "GPTNeoXJapaneseForCausalLM",
    fields: &[IDENTITY, MODEL, HEADS, OWN],
    fixed: &[],
    goldens: &["gpt_neox_japanese"],
    names: Names(&[NAMES]),
    read: |f| {
        let defaults = defaults! {
            vocab: 32_000, heads: 32, max_position: 2048, tied: true, eps(layer_norm_eps): 1e-5,
            ffn: f.size(WIDER).or(4), act: Gelu, ..LLAMA
        };
        let mut d = Decoder::read(f, &defaults)?;
        d.norm = Norm::layer(d.norm.eps);
        let last = d.facts.layers.saturating_sub(1);
        let d = d.with_heads(|i, _, h| {
            h.projection = Projection::ByGroup;
            h.bare_bias = if i == last { BareBias::Out } else { BareBias::Absent };
        });
        Ok(Box::new(d.with_mlp(|m| m.gated = false)))
    },
};

/// The width of the MLP as a multiple of the model's.
const WIDER: &str = "intermediate_multiple_size";

const OWN: &[Field] = fields! {
    intermediate_multiple_size, hidden_act, layer_norm_eps, rope_theta | rotary_emb_base, rope_scaling,
    rope_parameters, partial_rotary_factor | rotary_pct,
};

const NAMES: Table = names! {
    "gpt_neox_japanese." { TABLE => "embed_in", NORM => "final_layer_norm" }
    "" { HEAD => "embed_out" }
    "gpt_neox_japanese.layers.{}." {
        ATTN_NORM => "input_layernorm", ATTN_QKV => "attention.query_key_value", ATTN_OUT => "attention.dense",
        ATTN_OUT_BIAS => "attention.dense_bias", MLP_NORM => "post_attention_layernorm",
        MLP_UP => "mlp.dense_h_to_4h", MLP_DOWN => "mlp.dense_4h_to_h",
    }
};
