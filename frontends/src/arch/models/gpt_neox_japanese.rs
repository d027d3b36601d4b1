//! GPT-NeoX Japanese (ABEJA, 2022): GPT-NeoX with its blocks one after the other and without biases, but
//! for one on what the last layer's attention gives.

use crate::arch::blocks::attention::Norm;
use crate::arch::blocks::decoder::{Decoder, Defaults};
use crate::arch::blocks::entry::Arch;
use crate::arch::blocks::names::{
    ATTN_NORM, ATTN_OUT, ATTN_OUT_BIAS, ATTN_QKV, HEAD, MLP_DOWN, MLP_NORM, MLP_UP, NORM, Names, TABLE, Table,
};
use crate::config::common::{ACTIVATIONS, HEADS, MODEL};
use crate::config::fields::{Accepts, Field, IDENTITY};
use crate::config::known::Neutral;
use llmcc_ir::graph::UnaryOp;

pub(crate) const ARCH: Arch = Arch {
    model_type: "gpt_neox_japanese",
    class: "GPTNeoXJapaneseForCausalLM",
    fields: &[IDENTITY, MODEL, HEADS, OWN],
    fixed: &[],
    goldens: &["gpt_neox_japanese"],
    names: Names(&[NAMES]),
    read: |f| {
        let defaults = Defaults {
            vocab: Some(32_000),
            heads: Some(32),
            max_position: 2048,
            tied: true,
            eps_field: "layer_norm_eps",
            eps: 1e-5,
            ffn: Some(f.size(WIDER).or(4)),
            act: ("hidden_act", UnaryOp::Gelu),
            ..Defaults::LLAMA
        };
        let mut d = Decoder::read(f, &defaults)?;
        d.norm = Norm::layer(d.norm.eps);
        let last = d.facts.layers.saturating_sub(1);
        let d = d.with_attention(|i, a| (a.by_group, a.bare_bias) = (true, i == last));
        Ok(Box::new(d.with_mlp(|m| m.gated = false)))
    },
};

/// The width of the MLP as a multiple of the model's.
const WIDER: &str = "intermediate_multiple_size";

const OWN: &[Field] = &[
    Field::new(WIDER, Accepts::Size(1 << 10)),
    Field::new("hidden_act", Accepts::OneOf(ACTIVATIONS)),
    Field::new("layer_norm_eps", Accepts::Number),
    Field::new("rope_theta", Accepts::Number).or(&["rotary_emb_base"]),
    Field::new("rope_scaling", Accepts::Object),
    Field::new("rope_parameters", Accepts::Object),
    Field::new("partial_rotary_factor", Accepts::Number).or(&["rotary_pct"]).unless(Neutral::One),
];

const NAMES: Table = &[
    (TABLE, "gpt_neox_japanese.embed_in"),
    (HEAD, "embed_out"),
    (NORM, "gpt_neox_japanese.final_layer_norm"),
    (ATTN_NORM, "gpt_neox_japanese.layers.{}.input_layernorm"),
    (ATTN_QKV, "gpt_neox_japanese.layers.{}.attention.query_key_value"),
    (ATTN_OUT, "gpt_neox_japanese.layers.{}.attention.dense"),
    (ATTN_OUT_BIAS, "gpt_neox_japanese.layers.{}.attention.dense_bias"),
    (MLP_NORM, "gpt_neox_japanese.layers.{}.post_attention_layernorm"),
    (MLP_UP, "gpt_neox_japanese.layers.{}.mlp.dense_h_to_4h"),
    (MLP_DOWN, "gpt_neox_japanese.layers.{}.mlp.dense_4h_to_h"),
];
