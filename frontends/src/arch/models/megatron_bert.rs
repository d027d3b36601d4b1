//! Megatron's BERT (arXiv 1909.08053): BERT with norms before the blocks, and none of the embeddings.

use crate::arch::blocks::encoder::{Defaults, Encoder, FIELDS, FIXED};
use crate::arch::blocks::entry::Arch;
use crate::arch::blocks::names::{
    ATTN_K, ATTN_NORM, ATTN_OUT, ATTN_Q, ATTN_V, CLASSES, MLP_DOWN, MLP_NORM, MLP_UP, NORM, Names, POOLER, POSITIONS,
    TABLE, TYPES, Table,
};
use crate::config::common::MODEL;
use crate::config::fields::IDENTITY;

pub(crate) const ARCH: Arch = Arch {
    model_type: "megatron-bert",
    class: "MegatronBertModel",
    fields: &[IDENTITY, MODEL, FIELDS],
    fixed: FIXED,
    goldens: &["megatron_bert", "megatron_bert_classes"],
    names: Names(&[NAMES]),
    read: |f| {
        let mut e = Encoder::read(f, &Defaults::BERT)?;
        (e.norm_first, e.table_norm) = (true, false);
        Ok(Box::new(e))
    },
};

const NAMES: Table = &[
    (TABLE, "bert.embeddings.word_embeddings"),
    (POSITIONS, "bert.embeddings.position_embeddings"),
    (TYPES, "bert.embeddings.token_type_embeddings"),
    (NORM, "bert.encoder.ln"),
    (ATTN_NORM, "bert.encoder.layer.{}.attention.ln"),
    (ATTN_Q, "bert.encoder.layer.{}.attention.self.query"),
    (ATTN_K, "bert.encoder.layer.{}.attention.self.key"),
    (ATTN_V, "bert.encoder.layer.{}.attention.self.value"),
    (ATTN_OUT, "bert.encoder.layer.{}.attention.output.dense"),
    (MLP_NORM, "bert.encoder.layer.{}.ln"),
    (MLP_UP, "bert.encoder.layer.{}.intermediate.dense"),
    (MLP_DOWN, "bert.encoder.layer.{}.output.dense"),
    (POOLER, "bert.pooler.dense"),
    (CLASSES, "classifier"),
];
