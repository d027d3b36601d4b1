//! BioGPT (arXiv 2210.10341): OPT's decoder with scaled embeddings and an activation that is not cut.

use crate::arch::blocks::attention::Norm;
use crate::arch::blocks::decoder::{Decoder, Defaults};
use crate::arch::blocks::entry::Arch;
use crate::arch::blocks::names::{
    ATTN_K, ATTN_NORM, ATTN_OUT, ATTN_Q, ATTN_V, HEAD, MLP_DOWN, MLP_NORM, MLP_UP, NORM, Names, POSITIONS, TABLE, Table,
};
use crate::config::common::{ACTIVATIONS, HEADS, MODEL, WIDTH};
use crate::config::fields::{Accepts, Field, IDENTITY};
use crate::config::known::Neutral;
use llmcc_ir::graph::UnaryOp;

pub(crate) const ARCH: Arch = Arch {
    model_type: "biogpt",
    class: "BioGptForCausalLM",
    fields: &[IDENTITY, MODEL, HEADS, OWN],
    // Files say 1e-12, but the norms of the class have always had 1e-5.
    fixed: &[("layer_norm_eps", Neutral::Any)],
    goldens: &["biogpt"],
    names: Names(&[NAMES]),
    read: |f| {
        let defaults = Defaults {
            vocab: Some(42_384),
            heads: Some(16),
            max_position: 1024,
            tied: true,
            eps: 1e-5,
            act: ("hidden_act", UnaryOp::Gelu),
            ..Defaults::LLAMA
        };
        let mut d = Decoder::read_with(f, &defaults, |_, _| Ok(vec![]))?;
        (d.norm, d.learned) = (Norm::layer(d.norm.eps), Some(2));
        let scaled = f.flag_or("scale_embedding", true);
        d.scales.embedding = scaled.then(|| (d.facts.hidden as f64).sqrt() as f32);
        let d = d.with_attention(|_, a| (a.qkv_bias, a.out_bias, a.rotary) = (true, true, None));
        Ok(Box::new(d.with_mlp(|m| (m.gated, m.bias) = (false, true))))
    },
};

const OWN: &[Field] = &[
    Field::new("intermediate_size", WIDTH),
    Field::new("hidden_act", Accepts::OneOf(ACTIVATIONS)),
    Field::new("scale_embedding", Accepts::Flag),
];

const NAMES: Table = &[
    (TABLE, "biogpt.embed_tokens"),
    (POSITIONS, "biogpt.embed_positions"),
    (HEAD, "output_projection"),
    (NORM, "biogpt.layer_norm"),
    (ATTN_NORM, "biogpt.layers.{}.self_attn_layer_norm"),
    (ATTN_Q, "biogpt.layers.{}.self_attn.q_proj"),
    (ATTN_K, "biogpt.layers.{}.self_attn.k_proj"),
    (ATTN_V, "biogpt.layers.{}.self_attn.v_proj"),
    (ATTN_OUT, "biogpt.layers.{}.self_attn.out_proj"),
    (MLP_NORM, "biogpt.layers.{}.final_layer_norm"),
    (MLP_UP, "biogpt.layers.{}.fc1"),
    (MLP_DOWN, "biogpt.layers.{}.fc2"),
];
