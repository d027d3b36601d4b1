//! XGLM (arXiv 2112.10668): LayerNorm before the blocks, positions of sines and cosines from row 2 of
//! their table on, scaled embeddings, biases everywhere but in the head.

use crate::arch::blocks::attention::Norm;
use crate::arch::blocks::decoder::{Decoder, Defaults};
use crate::arch::blocks::entry::Arch;
use crate::arch::blocks::names::{
    ATTN_K, ATTN_NORM, ATTN_OUT, ATTN_Q, ATTN_V, HEAD, MLP_DOWN, MLP_NORM, MLP_UP, NORM, Names, TABLE, Table,
};
use crate::arch::blocks::sinusoidal_positions::{Rates, Sines};
use crate::config::common::{ACTIVATIONS, TOKENS, WIDTH};
use crate::config::fields::{Accepts, Field, IDENTITY};
use crate::config::known::Neutral;
use llmcc_ir::graph::UnaryOp;

pub(crate) const ARCH: Arch = Arch {
    model_type: "xglm",
    class: "XGLMForCausalLM",
    fields: &[IDENTITY, OWN],
    fixed: &[],
    goldens: &["xglm"],
    names: Names(&[NAMES]),
    read: |f| {
        let defaults = Defaults {
            vocab: Some(256_008),
            heads: Some(16),
            max_position: 2048,
            tied: true,
            eps: 1e-5,
            act: ("hidden_act", UnaryOp::Gelu),
            ..Defaults::LLAMA
        };
        let mut d = Decoder::read_with(f, &defaults, |_, _| Ok(vec![]))?;
        d.norm = Norm::layer(d.norm.eps);
        // The row of the number that padding has is one of zeros; published files have 1, which no position
        // gets.
        d.sines = Some(Sines { rates: Rates::ToLast, skip: 2, zero: f.count("pad_token_id").filter(|n| *n >= 2) });
        let scaled = f.flag_or("scale_embedding", true);
        d.scales.embedding = scaled.then(|| (d.facts.hidden as f64).sqrt() as f32);
        let d = d.with_attention(|_, a| (a.qkv_bias, a.out_bias, a.rotary) = (true, true, None));
        Ok(Box::new(d.with_mlp(|m| (m.gated, m.bias) = (false, true))))
    },
};

const OWN: &[Field] = &[
    Field::new("_name_or_path", Accepts::Text).unless(Neutral::Any),
    Field::new("quantization_config", Accepts::Any),
    Field::new("vocab_size", Accepts::Size(1 << 24)),
    Field::new("hidden_size", WIDTH).or(&["d_model"]),
    Field::new("num_hidden_layers", Accepts::Size(4096)).or(&["num_layers"]),
    Field::new("num_attention_heads", Accepts::Size(1 << 14)).or(&["attention_heads"]),
    Field::new("intermediate_size", WIDTH).or(&["ffn_dim"]),
    Field::new("hidden_act", Accepts::OneOf(ACTIVATIONS)).or(&["activation_function"]),
    Field::new("max_position_embeddings", TOKENS),
    Field::new("tie_word_embeddings", Accepts::Flag),
    Field::new("bos_token_id", Accepts::Tokens),
    Field::new("eos_token_id", Accepts::Tokens),
    Field::new("pad_token_id", Accepts::Count).unless(Neutral::Any),
    Field::new("scale_embedding", Accepts::Flag),
];

const NAMES: Table = &[
    (TABLE, "model.embed_tokens"),
    (HEAD, "lm_head"),
    (NORM, "model.layer_norm"),
    (ATTN_NORM, "model.layers.{}.self_attn_layer_norm"),
    (ATTN_Q, "model.layers.{}.self_attn.q_proj"),
    (ATTN_K, "model.layers.{}.self_attn.k_proj"),
    (ATTN_V, "model.layers.{}.self_attn.v_proj"),
    (ATTN_OUT, "model.layers.{}.self_attn.out_proj"),
    (MLP_NORM, "model.layers.{}.final_layer_norm"),
    (MLP_UP, "model.layers.{}.fc1"),
    (MLP_DOWN, "model.layers.{}.fc2"),
];
