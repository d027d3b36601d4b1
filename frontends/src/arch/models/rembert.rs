//! RemBERT (arXiv 2010.12821): BERT whose tables are narrower than its layers. Those of its head for
//! masked tokens have another width, which says nothing about the layers.

use crate::arch::blocks::encoder::{Defaults, Encoder, FIELDS, WIDEN};
use crate::arch::blocks::entry::Arch;
use crate::arch::blocks::names::{
    ATTN_K, ATTN_OUT, ATTN_POST_NORM, ATTN_Q, ATTN_V, CLASSES, MLP_DOWN, MLP_POST_NORM, MLP_UP, Names, POOLER,
    POSITIONS, TABLE, TABLE_NORM, TYPES, Table,
};
use crate::config::common::{MODEL, WIDTH};
use crate::config::fields::{Field, IDENTITY};
use crate::config::known::Neutral;

pub(crate) const ARCH: Arch = Arch {
    model_type: "rembert",
    class: "RemBertModel",
    fields: &[IDENTITY, MODEL, FIELDS, OWN],
    fixed: &[
        ("position_embedding_type", Neutral::Words(&["absolute"])),
        ("is_decoder", Neutral::Off),
        ("add_cross_attention", Neutral::Off),
        ("output_embedding_size", Neutral::Any),
    ],
    goldens: &["rembert", "rembert_classes"],
    names: Names(&[NAMES]),
    read: |f| {
        let mut e = Encoder::read(f, &Defaults { spare: &["rembert.pooler.", "pooler.", "cls."], ..Defaults::BERT })?;
        // The matrix between is there where both are as wide, too.
        e.narrow = Some(f.size("input_embedding_size").or(256));
        Ok(Box::new(e))
    },
};

const OWN: &[Field] = &[Field::new("input_embedding_size", WIDTH)];

const NAMES: Table = &[
    (TABLE, "rembert.embeddings.word_embeddings"),
    (POSITIONS, "rembert.embeddings.position_embeddings"),
    (TYPES, "rembert.embeddings.token_type_embeddings"),
    (TABLE_NORM, "rembert.embeddings.LayerNorm"),
    (WIDEN, "rembert.encoder.embedding_hidden_mapping_in"),
    (ATTN_Q, "rembert.encoder.layer.{}.attention.self.query"),
    (ATTN_K, "rembert.encoder.layer.{}.attention.self.key"),
    (ATTN_V, "rembert.encoder.layer.{}.attention.self.value"),
    (ATTN_OUT, "rembert.encoder.layer.{}.attention.output.dense"),
    (ATTN_POST_NORM, "rembert.encoder.layer.{}.attention.output.LayerNorm"),
    (MLP_UP, "rembert.encoder.layer.{}.intermediate.dense"),
    (MLP_DOWN, "rembert.encoder.layer.{}.output.dense"),
    (MLP_POST_NORM, "rembert.encoder.layer.{}.output.LayerNorm"),
    (POOLER, "rembert.pooler.dense"),
    (CLASSES, "classifier"),
];
