//! CTRL (arXiv 1909.05858): LayerNorm before the blocks, positions of sines and cosines, scaled embeddings,
//! ReLU without gate, biases everywhere.

use crate::arch::blocks::attention::Norm;
use crate::arch::blocks::decoder::{Decoder, Defaults};
use crate::arch::blocks::entry::Arch;
use crate::arch::blocks::names::{
    ATTN_K, ATTN_NORM, ATTN_OUT, ATTN_Q, ATTN_V, HEAD, MLP_DOWN, MLP_NORM, MLP_UP, NORM, Names, TABLE, Table,
};
use crate::arch::blocks::sinusoidal_positions::{Rates, Sines};
use crate::config::common::{GPT_SIZES, WIDTH};
use crate::config::fields::{Accepts, Field, IDENTITY};
use llmcc_ir::graph::UnaryOp;

pub(crate) const ARCH: Arch = Arch {
    model_type: "ctrl",
    class: "CTRLLMHeadModel",
    fields: &[IDENTITY, GPT_SIZES, OWN],
    fixed: &[],
    goldens: &["ctrl"],
    names: Names(&[NAMES]),
    read: |f| {
        let defaults = Defaults {
            vocab: Some(246_534),
            heads: Some(16),
            max_position: 256,
            tied: true,
            eps_field: "layer_norm_epsilon",
            act: ("hidden_act", UnaryOp::Relu),
            ..Defaults::LLAMA
        };
        let mut d = Decoder::read_with(f, &defaults, |_, _| Ok(vec![]))?;
        d.norm = Norm::layer(d.norm.eps);
        // What the file says is for the last norm; the others have always had 1e-6.
        d.block_norms = Some([Norm::layer(1e-6); 2]);
        d.sines = Some(Sines { rates: Rates::BeforeNext, skip: 0, zero: None });
        d.scales.embedding = Some((d.facts.hidden as f64).sqrt() as f32);
        d.head_bias = true;
        let d = d.with_attention(|_, a| (a.qkv_bias, a.out_bias, a.rotary) = (true, true, None));
        Ok(Box::new(d.with_mlp(|m| (m.gated, m.bias) = (false, true))))
    },
};

const OWN: &[Field] =
    &[Field::new("intermediate_size", WIDTH).or(&["dff"]), Field::new("layer_norm_epsilon", Accepts::Number)];

const NAMES: Table = &[
    (TABLE, "transformer.w"),
    (HEAD, "lm_head"),
    (NORM, "transformer.layernorm"),
    (ATTN_NORM, "transformer.h.{}.layernorm1"),
    (ATTN_Q, "transformer.h.{}.multi_head_attention.Wq"),
    (ATTN_K, "transformer.h.{}.multi_head_attention.Wk"),
    (ATTN_V, "transformer.h.{}.multi_head_attention.Wv"),
    (ATTN_OUT, "transformer.h.{}.multi_head_attention.dense"),
    (MLP_NORM, "transformer.h.{}.layernorm2"),
    (MLP_UP, "transformer.h.{}.ffn.0"),
    (MLP_DOWN, "transformer.h.{}.ffn.2"),
];
