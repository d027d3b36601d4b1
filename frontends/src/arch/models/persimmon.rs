//! Persimmon (Adept, 2023): LayerNorm before the blocks, and of each head of queries and keys, these and
//! the values stored head by head, rotation of half of each head, squared ReLU, biases.

use crate::arch::blocks::attention::{Norm, QkNorm};
use crate::arch::blocks::decoder::{Decoder, Defaults};
use crate::arch::blocks::entry::Arch;
use crate::arch::blocks::names::{
    ATTN_K_NORM, ATTN_OUT, ATTN_Q_NORM, ATTN_QKV, HUGGING_FACE, MLP_DOWN, MLP_UP, NORM, Names, Table,
};
use crate::config::common::{HEADS, LAYER_NORM_MLP, MODEL, PARTIAL_ROTARY};
use crate::config::fields::{Accepts, Field, IDENTITY};
use llmcc_ir::graph::UnaryOp;

pub(crate) const ARCH: Arch = Arch {
    model_type: "persimmon",
    class: "PersimmonForCausalLM",
    fields: &[IDENTITY, MODEL, HEADS, PARTIAL_ROTARY, LAYER_NORM_MLP, OWN],
    fixed: &[],
    goldens: &["persimmon"],
    names: Names(&[NAMES, HUGGING_FACE]),
    read: |f| {
        let defaults = Defaults {
            vocab: Some(262_144),
            heads: Some(64),
            max_position: 16_384,
            eps_field: "layer_norm_eps",
            eps: 1e-5,
            partial: 0.5,
            act: ("hidden_act", UnaryOp::Relu2),
            ..Defaults::LLAMA
        };
        let qk_norm = f.flag_or("qk_layernorm", true).then_some(QkNorm::Head);
        let mut d = Decoder::read(f, &defaults)?;
        d.norm = Norm::layer(d.norm.eps);
        let d = d.with_attention(|_, a| (a.by_group, a.qkv_bias, a.out_bias, a.qk_norm) = (true, true, true, qk_norm));
        Ok(Box::new(d.with_mlp(|m| (m.gated, m.bias) = (false, true))))
    },
};

const OWN: &[Field] = &[Field::new("qk_layernorm", Accepts::Flag)];

const NAMES: Table = &[
    (NORM, "model.final_layernorm"),
    (ATTN_QKV, "model.layers.{}.self_attn.query_key_value"),
    (ATTN_Q_NORM, "model.layers.{}.self_attn.q_layernorm"),
    (ATTN_K_NORM, "model.layers.{}.self_attn.k_layernorm"),
    (ATTN_OUT, "model.layers.{}.self_attn.dense"),
    (MLP_UP, "model.layers.{}.mlp.dense_h_to_4h"),
    (MLP_DOWN, "model.layers.{}.mlp.dense_4h_to_h"),
];
