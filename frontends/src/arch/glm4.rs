//! GLM-4 (arXiv 2406.12793, the version of 2025): norms before and after the blocks, rotation of
//! neighbours in half of each head, gate and up in one matrix.

use super::decoder::{Decoder, Defaults, Norms};
use super::entry::Arch;
use super::names::{ATTN_POST_NORM, HUGGING_FACE, MLP_POST_NORM, Names, Table};
use crate::config::common::{ATTENTION, ATTENTION_BIAS, MLP, MODEL, PARTIAL_ROTARY};
use crate::config::fields::IDENTITY;

pub(super) const ARCH: Arch = Arch {
    model_type: "glm4",
    class: "Glm4ForCausalLM",
    fields: &[IDENTITY, MODEL, ATTENTION, MLP, PARTIAL_ROTARY, ATTENTION_BIAS],
    fixed: &[],
    goldens: &["glm4"],
    names: Names(&[NAMES, HUGGING_FACE]),
    read: |f| {
        let defaults = Defaults {
            vocab: Some(151_552),
            heads: Some(32),
            kv_heads: Some(2),
            head_dim: Some(128),
            max_position: 131_072,
            eps: 1.5625e-7,
            partial: 0.5,
            ..Defaults::LLAMA
        };
        let bias = f.flag_or("attention_bias", true);
        let mut d = Decoder::read(f, &defaults)?;
        d.norms = Norms::Both;
        let rotated = d.ropes.first().map_or(0, |rope| rope.dim);
        let d = d.with_attention(|_, a| (a.qkv_bias, a.neighbours) = (bias, rotated));
        Ok(Box::new(d.with_mlp(|m| m.fused = true)))
    },
};

const NAMES: Table = &[
    (ATTN_POST_NORM, "model.layers.{}.post_self_attn_layernorm"),
    (MLP_POST_NORM, "model.layers.{}.post_mlp_layernorm"),
];
