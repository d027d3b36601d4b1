//! I-BERT (arXiv 2101.01321) before it is quantized: RoBERTa, beside whose weights room is for integers and scales.

use crate::arch::blocks::encoder::{Defaults, Encoder, FIELDS, FILL};
use crate::arch::blocks::entry::Arch;
use crate::arch::blocks::names::{
    ATTN_K, ATTN_OUT, ATTN_POST_NORM, ATTN_Q, ATTN_V, CLASSES, MLP_DOWN, MLP_POST_NORM, MLP_UP, Names, POOLER,
    POSITIONS, TABLE, TABLE_NORM, TYPES, Table,
};
use crate::config::common::MODEL;
use crate::config::fields::IDENTITY;
use crate::config::known::Neutral;

pub(crate) const ARCH: Arch = Arch {
    model_type: "ibert",
    class: "IBertModel",
    fields: &[IDENTITY, MODEL, FIELDS, FILL],
    fixed: &[
        ("position_embedding_type", Neutral::Words(&["absolute"])),
        ("is_decoder", Neutral::Off),
        ("add_cross_attention", Neutral::Off),
        // With integers it would be another model.
        ("quant_mode", Neutral::Off),
        ("force_dequant", Neutral::Any),
    ],
    goldens: &["ibert"],
    names: Names(&[NAMES]),
    read: |f| {
        let spare = &["ibert.pooler.", "pooler.", "lm_head."];
        let mut e = Encoder::read(f, &Defaults { spare, ..Defaults::ROBERTA })?;
        e.passes = &["_integer", "scaling_factor", ".x_min", ".x_max", ".LayerNorm.shift"];
        Ok(Box::new(e))
    },
};

const NAMES: Table = &[
    (TABLE, "ibert.embeddings.word_embeddings"),
    (POSITIONS, "ibert.embeddings.position_embeddings"),
    (TYPES, "ibert.embeddings.token_type_embeddings"),
    (TABLE_NORM, "ibert.embeddings.LayerNorm"),
    (ATTN_Q, "ibert.encoder.layer.{}.attention.self.query"),
    (ATTN_K, "ibert.encoder.layer.{}.attention.self.key"),
    (ATTN_V, "ibert.encoder.layer.{}.attention.self.value"),
    (ATTN_OUT, "ibert.encoder.layer.{}.attention.output.dense"),
    (ATTN_POST_NORM, "ibert.encoder.layer.{}.attention.output.LayerNorm"),
    (MLP_UP, "ibert.encoder.layer.{}.intermediate.dense"),
    (MLP_DOWN, "ibert.encoder.layer.{}.output.dense"),
    (MLP_POST_NORM, "ibert.encoder.layer.{}.output.LayerNorm"),
    (POOLER, "classifier.dense"),
    (CLASSES, "classifier.out_proj"),
];
