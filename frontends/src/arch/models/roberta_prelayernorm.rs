//! RoBERTa-PreLayerNorm (arXiv 2202.08005): RoBERTa with norms before the blocks.

use crate::arch::blocks::encoder::{Defaults, Encoder, FIELDS, FILL, FIXED};
use crate::arch::blocks::entry::Arch;
use crate::arch::blocks::names::{
    ATTN_K, ATTN_NORM, ATTN_OUT, ATTN_Q, ATTN_V, CLASSES, MLP_DOWN, MLP_NORM, MLP_UP, NORM, Names, POOLER, POSITIONS,
    TABLE, TABLE_NORM, TYPES, Table,
};
use crate::config::common::MODEL;
use crate::config::fields::IDENTITY;

pub(crate) const ARCH: Arch = Arch {
    model_type: "roberta-prelayernorm",
    class: "RobertaPreLayerNormModel",
    fields: &[IDENTITY, MODEL, FIELDS, FILL],
    fixed: FIXED,
    goldens: &["roberta_prelayernorm", "roberta_prelayernorm_classes"],
    names: Names(&[NAMES]),
    read: |f| {
        let spare = &["roberta_prelayernorm.pooler.", "pooler.", "lm_head."];
        let mut e = Encoder::read(f, &Defaults { spare, ..Defaults::ROBERTA })?;
        e.norm_first = true;
        Ok(Box::new(e))
    },
};

const NAMES: Table = &[
    (TABLE, "roberta_prelayernorm.embeddings.word_embeddings"),
    (POSITIONS, "roberta_prelayernorm.embeddings.position_embeddings"),
    (TYPES, "roberta_prelayernorm.embeddings.token_type_embeddings"),
    (TABLE_NORM, "roberta_prelayernorm.embeddings.LayerNorm"),
    (NORM, "roberta_prelayernorm.LayerNorm"),
    (ATTN_NORM, "roberta_prelayernorm.encoder.layer.{}.attention.LayerNorm"),
    (ATTN_Q, "roberta_prelayernorm.encoder.layer.{}.attention.self.query"),
    (ATTN_K, "roberta_prelayernorm.encoder.layer.{}.attention.self.key"),
    (ATTN_V, "roberta_prelayernorm.encoder.layer.{}.attention.self.value"),
    (ATTN_OUT, "roberta_prelayernorm.encoder.layer.{}.attention.output.dense"),
    (MLP_NORM, "roberta_prelayernorm.encoder.layer.{}.intermediate.LayerNorm"),
    (MLP_UP, "roberta_prelayernorm.encoder.layer.{}.intermediate.dense"),
    (MLP_DOWN, "roberta_prelayernorm.encoder.layer.{}.output.dense"),
    (POOLER, "classifier.dense"),
    (CLASSES, "classifier.out_proj"),
];
