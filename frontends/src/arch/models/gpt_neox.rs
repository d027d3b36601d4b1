//! GPT-NeoX and Pythia (arXiv 2204.06745, 2304.01373): attention and MLP side by side, each with a
//! LayerNorm of its own, Q, K and V stored head by head, rotation of a part of each head.

use crate::arch::blocks::attention::Norm;
use crate::arch::blocks::decoder::{Decoder, Defaults, Norms};
use crate::arch::blocks::entry::Arch;
use crate::arch::blocks::names::{
    ATTN_NORM, ATTN_OUT, ATTN_QKV, HEAD, MLP_DOWN, MLP_NORM, MLP_UP, NORM, Names, TABLE, Table,
};
use crate::config::common::{ATTENTION_BIAS, HEADS, LAYER_NORM_MLP, MODEL};
use crate::config::fields::{Accepts, Field, IDENTITY};
use crate::config::known::Neutral;
use llmcc_ir::graph::UnaryOp;

pub(crate) const ARCH: Arch = Arch {
    model_type: "gpt_neox",
    class: "GPTNeoXForCausalLM",
    fields: &[IDENTITY, MODEL, HEADS, LAYER_NORM_MLP, ATTENTION_BIAS, OWN],
    fixed: &[],
    goldens: &["gpt_neox", "gpt_neox_serial"],
    names: Names(&[NAMES]),
    read: |f| {
        let defaults = Defaults {
            vocab: Some(50432),
            heads: Some(64),
            max_position: 2048,
            eps_field: "layer_norm_eps",
            eps: 1e-5,
            partial: 0.25,
            act: ("hidden_act", UnaryOp::Gelu),
            ..Defaults::LLAMA
        };
        let bias = f.flag_or("attention_bias", true);
        let mut d = Decoder::read(f, &defaults)?;
        d.norm = Norm::layer(d.norm.eps);
        if f.flag_or("use_parallel_residual", true) {
            d.norms = Norms::Parallel { own: true };
        }
        let d = d.with_attention(|_, a| (a.by_group, a.qkv_bias, a.out_bias) = (true, bias, bias));
        Ok(Box::new(d.with_mlp(|m| (m.gated, m.bias) = (false, true))))
    },
};

const OWN: &[Field] = &[
    Field::new("use_parallel_residual", Accepts::Flag),
    Field::new("rope_theta", Accepts::Number).or(&["rotary_emb_base"]),
    Field::new("rope_scaling", Accepts::Object),
    Field::new("rope_parameters", Accepts::Object),
    Field::new("partial_rotary_factor", Accepts::Number).or(&["rotary_pct"]).unless(Neutral::One),
];

const NAMES: Table = &[
    (TABLE, "gpt_neox.embed_in"),
    (HEAD, "embed_out"),
    (NORM, "gpt_neox.final_layer_norm"),
    (ATTN_NORM, "gpt_neox.layers.{}.input_layernorm"),
    (ATTN_QKV, "gpt_neox.layers.{}.attention.query_key_value"),
    (ATTN_OUT, "gpt_neox.layers.{}.attention.dense"),
    (MLP_NORM, "gpt_neox.layers.{}.post_attention_layernorm"),
    (MLP_UP, "gpt_neox.layers.{}.mlp.dense_h_to_4h"),
    (MLP_DOWN, "gpt_neox.layers.{}.mlp.dense_4h_to_h"),
];
