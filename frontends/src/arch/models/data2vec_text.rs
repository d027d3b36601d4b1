//! data2vec for text (arXiv 2202.03555): RoBERTa, trained otherwise.

use crate::arch::blocks::encoder::{Defaults, Encoder, FIELDS, FILL, FIXED};
use crate::arch::blocks::entry::Arch;
use crate::arch::blocks::names::{
    ATTN_K, ATTN_OUT, ATTN_POST_NORM, ATTN_Q, ATTN_V, CLASSES, MLP_DOWN, MLP_POST_NORM, MLP_UP, Names, POOLER,
    POSITIONS, TABLE, TABLE_NORM, TYPES, Table,
};
use crate::config::common::MODEL;
use crate::config::fields::IDENTITY;

pub(crate) const ARCH: Arch = Arch {
    model_type: "data2vec-text",
    class: "Data2VecTextModel",
    fields: &[IDENTITY, MODEL, FIELDS, FILL],
    fixed: FIXED,
    goldens: &["data2vec_text", "data2vec_text_classes"],
    names: Names(&[NAMES]),
    read: |f| {
        let spare = &["data2vec_text.pooler.", "pooler.", "lm_head."];
        Ok(Box::new(Encoder::read(f, &Defaults { spare, ..Defaults::ROBERTA })?))
    },
};

const NAMES: Table = &[
    (TABLE, "data2vec_text.embeddings.word_embeddings"),
    (POSITIONS, "data2vec_text.embeddings.position_embeddings"),
    (TYPES, "data2vec_text.embeddings.token_type_embeddings"),
    (TABLE_NORM, "data2vec_text.embeddings.LayerNorm"),
    (ATTN_Q, "data2vec_text.encoder.layer.{}.attention.self.query"),
    (ATTN_K, "data2vec_text.encoder.layer.{}.attention.self.key"),
    (ATTN_V, "data2vec_text.encoder.layer.{}.attention.self.value"),
    (ATTN_OUT, "data2vec_text.encoder.layer.{}.attention.output.dense"),
    (ATTN_POST_NORM, "data2vec_text.encoder.layer.{}.attention.output.LayerNorm"),
    (MLP_UP, "data2vec_text.encoder.layer.{}.intermediate.dense"),
    (MLP_DOWN, "data2vec_text.encoder.layer.{}.output.dense"),
    (MLP_POST_NORM, "data2vec_text.encoder.layer.{}.output.LayerNorm"),
    (POOLER, "classifier.dense"),
    (CLASSES, "classifier.out_proj"),
];
