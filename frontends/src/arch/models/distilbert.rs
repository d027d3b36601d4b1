//! DistilBERT (arXiv 1910.01108): BERT with half of its layers, without kinds of tokens.

use crate::arch::blocks::families::xlm_sizes::short_sizes;
use crate::arch::blocks::learned_positions::Positions;
use crate::arch::blocks::prelude::*;

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

const FIELDS: &[Field] = fields! {
    quantization_config, vocab_size, dim, n_layers, n_heads, hidden_dim, activation, max_position_embeddings,
};

const NAMES: Table = names! {
    "distilbert." {
        TABLE => "embeddings.word_embeddings", POSITIONS => "embeddings.position_embeddings",
        TABLE_NORM => "embeddings.LayerNorm",
    }
    "distilbert.transformer.layer.{}." {
        ATTN_Q => "attention.q_lin", ATTN_K => "attention.k_lin", ATTN_V => "attention.v_lin",
        ATTN_OUT => "attention.out_lin", ATTN_POST_NORM => "sa_layer_norm", MLP_UP => "ffn.lin1",
        MLP_DOWN => "ffn.lin2", MLP_POST_NORM => "output_layer_norm",
    }
    "" { POOLER => "pre_classifier", CLASSES => "classifier" }
};
