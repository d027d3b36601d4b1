//! BERT (arXiv 1810.04805): norms after what a block adds to, learned positions, types of tokens.
//!
//! Tokens of single texts are of the first type; of pairs, which models with a head for classes
//! compare, those of the second text are of the second.

use super::encoder::{Defaults, Encoder, FIELDS, FIXED};
use super::entry::Arch;
use super::names::{
    ATTN_K, ATTN_OUT, ATTN_POST_NORM, ATTN_Q, ATTN_V, CLASSES, MLP_DOWN, MLP_POST_NORM, MLP_UP, Names, POOLER,
    POSITIONS, TABLE, TABLE_NORM, TYPES, Table,
};
use crate::config::common::MODEL;
use crate::config::fields::IDENTITY;

pub(super) const ARCH: Arch = Arch {
    model_type: "bert",
    class: "BertModel",
    fields: &[IDENTITY, MODEL, FIELDS],
    fixed: FIXED,
    goldens: &["bert", "bert_classes", "bert_pairs"],
    names: Names(&[NAMES]),
    read: |f| Ok(Box::new(Encoder::read(f, &Defaults::BERT)?)),
};

const NAMES: Table = &[
    (TABLE, "bert.embeddings.word_embeddings"),
    (POSITIONS, "bert.embeddings.position_embeddings"),
    (TYPES, "bert.embeddings.token_type_embeddings"),
    (TABLE_NORM, "bert.embeddings.LayerNorm"),
    (ATTN_Q, "bert.encoder.layer.{}.attention.self.query"),
    (ATTN_K, "bert.encoder.layer.{}.attention.self.key"),
    (ATTN_V, "bert.encoder.layer.{}.attention.self.value"),
    (ATTN_OUT, "bert.encoder.layer.{}.attention.output.dense"),
    (ATTN_POST_NORM, "bert.encoder.layer.{}.attention.output.LayerNorm"),
    (MLP_UP, "bert.encoder.layer.{}.intermediate.dense"),
    (MLP_DOWN, "bert.encoder.layer.{}.output.dense"),
    (MLP_POST_NORM, "bert.encoder.layer.{}.output.LayerNorm"),
    (POOLER, "bert.pooler.dense"),
    (CLASSES, "classifier"),
];
