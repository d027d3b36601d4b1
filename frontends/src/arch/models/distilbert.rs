//! DistilBERT (arXiv 1910.01108): BERT with half of its layers, without kinds of tokens.

use crate::arch::blocks::encoder::{ClassHead, Encoder};
use crate::arch::blocks::entry::Arch;
use crate::arch::blocks::families::xlm_sizes::short_sizes;
use crate::arch::blocks::learned_positions::Positions;
use crate::arch::blocks::names::{
    ATTN_K, ATTN_OUT, ATTN_POST_NORM, ATTN_Q, ATTN_V, CLASSES, MLP_DOWN, MLP_POST_NORM, MLP_UP, Names, POOLER,
    POSITIONS, TABLE, TABLE_NORM, Table,
};
use crate::config::common::{self, ACTIVATIONS, TOKENS, WIDTH};
use crate::config::fields::{Accepts, Field, IDENTITY};
use crate::config::known::Neutral;
use llmcc_ir::graph::UnaryOp;
use llmcc_ir::output::Pool;

pub(crate) const ARCH: Arch = Arch {
    model_type: "distilbert",
    class: "DistilBertModel",
    fields: &[IDENTITY, FIELDS],
    // The table is stored, whatever its rows were made by.
    fixed: &[("tie_word_embeddings", Neutral::Any), ("sinusoidal_pos_embds", Neutral::Any)],
    goldens: &[
        "distilbert",
        "distilbert_classes",
        "distilbert_dense",
        "distilbert_max",
        "distilbert_pairs",
        "distilbert_root",
        "distilbert_weighted",
    ],
    names: Names(&[NAMES]),
    read: |f| {
        let (facts, heads) = short_sizes(f, "dim", [30_522, 768, 6, 12])?;
        let (ffn, act) = (f.size("hidden_dim").or(3072), common::activation(f, "activation", UnaryOp::Gelu));
        let rows = facts.max_position;
        let mut e = Encoder::alike(facts, heads, (ffn, act), 1e-12);
        e.positions = Some(Positions { rows, first: 0, filler: None });
        e.classes = ClassHead { pool: Pool::First, act: UnaryOp::Relu, ..ClassHead::BERT };
        e.spare = &["vocab_transform.", "vocab_layer_norm.", "vocab_projector."];
        Ok(Box::new(e))
    },
};

const FIELDS: &[Field] = &[
    Field::new("quantization_config", Accepts::Any),
    Field::new("vocab_size", Accepts::Size(1 << 24)),
    Field::new("dim", WIDTH),
    Field::new("n_layers", Accepts::Size(4096)),
    Field::new("n_heads", Accepts::Size(1 << 14)),
    Field::new("hidden_dim", WIDTH),
    Field::new("activation", Accepts::OneOf(ACTIVATIONS)),
    Field::new("max_position_embeddings", TOKENS),
];

const NAMES: Table = &[
    (TABLE, "distilbert.embeddings.word_embeddings"),
    (POSITIONS, "distilbert.embeddings.position_embeddings"),
    (TABLE_NORM, "distilbert.embeddings.LayerNorm"),
    (ATTN_Q, "distilbert.transformer.layer.{}.attention.q_lin"),
    (ATTN_K, "distilbert.transformer.layer.{}.attention.k_lin"),
    (ATTN_V, "distilbert.transformer.layer.{}.attention.v_lin"),
    (ATTN_OUT, "distilbert.transformer.layer.{}.attention.out_lin"),
    (ATTN_POST_NORM, "distilbert.transformer.layer.{}.sa_layer_norm"),
    (MLP_UP, "distilbert.transformer.layer.{}.ffn.lin1"),
    (MLP_DOWN, "distilbert.transformer.layer.{}.ffn.lin2"),
    (MLP_POST_NORM, "distilbert.transformer.layer.{}.output_layer_norm"),
    (POOLER, "pre_classifier"),
    (CLASSES, "classifier"),
];
