//! NeoBERT (arXiv 2502.19587): an encoder with RMSNorm before the blocks, rotary positions of
//! neighbours, gated MLPs, and no biases in its layers.

use crate::arch::blocks::attention::Norm;
use crate::arch::blocks::encoder::Encoder;
use crate::arch::blocks::entry::Arch;
use crate::arch::blocks::names::{
    ATTN_NORM, ATTN_OUT, ATTN_QKV, CLASSES, MLP_DOWN, MLP_GATE_UP, MLP_NORM, NORM, Names, POOLER, TABLE, Table,
};
use crate::config::ConfigError;
use crate::config::common::{self, DefaultHeads, Facts, HEADS, Heads, TOKENS, WIDTH};
use crate::config::fields::{Accepts, Field, Fields, IDENTITY};
use crate::config::known::Neutral;
use crate::config::rope;
use llmcc_ir::graph::UnaryOp;

pub(crate) const ARCH: Arch = Arch {
    model_type: "neobert",
    class: "NeoBERT",
    fields: &[IDENTITY, HEADS, FIELDS],
    fixed: &[
        // What the authors' training code can switch, and files that are published have as it is here.
        ("hidden_act", Neutral::Words(&["swiglu"])),
        ("dim_head", Neutral::HeadDim),
        // Of the class that the configuration was made by, and of the tokenizer.
        ("kwargs", Neutral::Any),
        ("pretrained_model_name_or_path", Neutral::Any),
        ("trust_remote_code", Neutral::Any),
        ("embedding_init_range", Neutral::Any),
        ("decoder_init_range", Neutral::Any),
        ("classifier_init_range", Neutral::Any),
        ("tie_word_embeddings", Neutral::Any),
    ],
    goldens: &["neobert", "neobert_classes"],
    names: Names(&[NAMES]),
    read: |f| Ok(Box::new(read(f)?)),
};

const FIELDS: &[Field] = &[
    Field::new("_name_or_path", Accepts::Text).unless(Neutral::Any),
    Field::new("quantization_config", Accepts::Any),
    Field::new("vocab_size", Accepts::Size(1 << 24)),
    Field::new("hidden_size", WIDTH),
    Field::new("num_hidden_layers", Accepts::Size(4096)),
    // Rotary tables have so many rows; elsewhere it is about generating text.
    Field::new("max_length", TOKENS).unless(Neutral::Any),
    Field::new("intermediate_size", WIDTH),
    Field::new("norm_eps", Accepts::Number),
    Field::new("eos_token_id", Accepts::Tokens),
];

fn read(f: &Fields) -> Result<Encoder, ConfigError> {
    let facts = Facts { max_position: f.size("max_length").or(1024), ..Facts::read(f, Some(30_522), 1024, false)? };
    let heads = Heads::read(f, facts.hidden, DefaultHeads::default())?;
    if !heads.dim.is_multiple_of(2) {
        let expected = format!("such that heads have an even number of elements, not {}", heads.dim);
        return Err(f.invalid("num_attention_heads", &heads.queries, expected));
    }
    // Three matrices have as many elements as two of the width that is given, up to a multiple of 8.
    let ffn = (f.size("intermediate_size").or(3072).saturating_mul(2) / 3).next_multiple_of(8);
    let eps = common::eps(f, "norm_eps", 1e-6)?;
    let rope = rope::read(f, heads.dim, facts.max_position, 10_000.0)?;
    let mut e = Encoder::alike(facts, heads, (ffn, UnaryOp::Silu), eps);
    (e.norm, e.norm_first, e.table_norm, e.ropes) = (Norm::rms(eps), true, false, vec![rope]);
    for layer in &mut e.layers {
        let a = &mut layer.attention;
        (a.by_group, a.qkv_bias, a.out_bias) = (true, false, false);
        (a.rotary, a.neighbours) = (Some(0), heads.dim);
        (layer.mlp.gated, layer.mlp.fused, layer.mlp.bias) = (true, true, false);
    }
    e.spare = &["decoder."];
    Ok(e)
}

const NAMES: Table = &[
    (TABLE, "model.encoder"),
    (NORM, "model.layer_norm"),
    (ATTN_NORM, "model.transformer_encoder.{}.attention_norm"),
    (ATTN_QKV, "model.transformer_encoder.{}.qkv"),
    (ATTN_OUT, "model.transformer_encoder.{}.wo"),
    (MLP_NORM, "model.transformer_encoder.{}.ffn_norm"),
    (MLP_GATE_UP, "model.transformer_encoder.{}.ffn.w12"),
    (MLP_DOWN, "model.transformer_encoder.{}.ffn.w3"),
    (POOLER, "dense"),
    (CLASSES, "classifier"),
];
