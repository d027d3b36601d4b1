//! OPT (arXiv 2205.01068): LayerNorm before the blocks, learned positions from row 2 of their table on,
//! ReLU without gate, biases. That of 350M has norms after what the blocks are added to, and rows of
//! its table are narrower than the layers.

use crate::arch::blocks::attention::Norm;
use crate::arch::blocks::decoder::{Decoder, Defaults, NARROW, Norms, WIDEN};
use crate::arch::blocks::entry::Arch;
use crate::arch::blocks::names::{
    ATTN_K, ATTN_NORM, ATTN_OUT, ATTN_Q, ATTN_V, HEAD, MLP_DOWN, MLP_NORM, MLP_UP, NORM, Names, POSITIONS, TABLE, Table,
};
use crate::config::common::{ACTIVATIONS, HEADS, MODEL, WIDTH};
use crate::config::fields::{Accepts, Field, IDENTITY};
use llmcc_ir::graph::UnaryOp;

pub(crate) const ARCH: Arch = Arch {
    model_type: "opt",
    class: "OPTForCausalLM",
    fields: &[IDENTITY, MODEL, HEADS, OWN],
    fixed: &[],
    goldens: &["opt", "opt_350m"],
    names: Names(&[NAMES]),
    read: |f| {
        let defaults = Defaults {
            vocab: Some(50272),
            heads: Some(12),
            max_position: 2048,
            tied: true,
            eps: 1e-5,
            act: ("hidden_act", UnaryOp::Relu),
            ..Defaults::LLAMA
        };
        let (bias, affine) = (f.flag_or("enable_bias", true), f.flag_or("layer_norm_elementwise_affine", true));
        let mut d = Decoder::read_with(f, &defaults, |_, _| Ok(vec![]))?;
        d.norm = Norm { gain: affine, bias: affine, ..Norm::layer(d.norm.eps) };
        d.learned = Some(2);
        let before = f.flag_or("do_layer_norm_before", true);
        d.last_norm = before && !f.flag("_remove_final_layer_norm");
        if !before {
            d.norms = Norms::Around;
        }
        d.narrow = f.size("word_embed_proj_dim").value().filter(|n| *n != d.facts.hidden);
        let d = d.with_attention(|_, a| (a.qkv_bias, a.out_bias, a.rotary) = (bias, bias, None));
        Ok(Box::new(d.with_mlp(|m| (m.gated, m.bias) = (false, bias))))
    },
};

const OWN: &[Field] = &[
    Field::new("intermediate_size", WIDTH).or(&["ffn_dim"]),
    Field::new("hidden_act", Accepts::OneOf(ACTIVATIONS)).or(&["activation_function"]),
    Field::new("enable_bias", Accepts::Flag),
    Field::new("layer_norm_elementwise_affine", Accepts::Flag),
    Field::new("do_layer_norm_before", Accepts::Flag),
    Field::new("_remove_final_layer_norm", Accepts::Flag),
    Field::new("word_embed_proj_dim", WIDTH),
];

/// As the class for text generation saves them, and as they are published.
const NAMES: Table = &[
    (TABLE, "model.decoder.embed_tokens"),
    (POSITIONS, "model.decoder.embed_positions"),
    (HEAD, "lm_head"),
    (WIDEN, "model.decoder.project_in"),
    (NARROW, "model.decoder.project_out"),
    (NORM, "model.decoder.final_layer_norm"),
    (ATTN_NORM, "model.decoder.layers.{}.self_attn_layer_norm"),
    (ATTN_Q, "model.decoder.layers.{}.self_attn.q_proj"),
    (ATTN_K, "model.decoder.layers.{}.self_attn.k_proj"),
    (ATTN_V, "model.decoder.layers.{}.self_attn.v_proj"),
    (ATTN_OUT, "model.decoder.layers.{}.self_attn.out_proj"),
    (MLP_NORM, "model.decoder.layers.{}.final_layer_norm"),
    (MLP_UP, "model.decoder.layers.{}.fc1"),
    (MLP_DOWN, "model.decoder.layers.{}.fc2"),
    (TABLE, "decoder.embed_tokens"),
    (POSITIONS, "decoder.embed_positions"),
    (WIDEN, "decoder.project_in"),
    (NARROW, "decoder.project_out"),
    (NORM, "decoder.final_layer_norm"),
    (ATTN_NORM, "decoder.layers.{}.self_attn_layer_norm"),
    (ATTN_Q, "decoder.layers.{}.self_attn.q_proj"),
    (ATTN_K, "decoder.layers.{}.self_attn.k_proj"),
    (ATTN_V, "decoder.layers.{}.self_attn.v_proj"),
    (ATTN_OUT, "decoder.layers.{}.self_attn.out_proj"),
    (MLP_NORM, "decoder.layers.{}.final_layer_norm"),
    (MLP_UP, "decoder.layers.{}.fc1"),
    (MLP_DOWN, "decoder.layers.{}.fc2"),
];
