//! ELECTRA (arXiv 2003.10555), the discriminator: BERT whose tables may be narrower than its layers, and
//! whose classifiers have a head of their own.

use crate::arch::blocks::encoder::{ClassHead, Defaults, Encoder, FIELDS, FIXED, WIDEN};
use crate::arch::blocks::entry::Arch;
use crate::arch::blocks::names::{
    ATTN_K, ATTN_OUT, ATTN_POST_NORM, ATTN_Q, ATTN_V, CLASSES, MLP_DOWN, MLP_POST_NORM, MLP_UP, Names, POOLER,
    POSITIONS, TABLE, TABLE_NORM, TYPES, Table,
};
use crate::config::common::{MODEL, WIDTH};
use crate::config::fields::{Field, IDENTITY};
use llmcc_ir::graph::UnaryOp;

pub(crate) const ARCH: Arch = Arch {
    model_type: "electra",
    class: "ElectraModel",
    fields: &[IDENTITY, MODEL, FIELDS, OWN],
    fixed: FIXED,
    goldens: &["electra", "electra_classes"],
    names: Names(&[NAMES]),
    read: |f| {
        let spare = &["discriminator_predictions.", "generator_predictions.", "generator_lm_head."];
        let mut e = Encoder::read(f, &Defaults { spare, ..Defaults::BERT })?;
        // Where both are as wide there is no matrix between them.
        e.narrow = Some(f.size("embedding_size").or(128)).filter(|width| *width != e.facts.hidden);
        e.classes = ClassHead { act: UnaryOp::Gelu, ..ClassHead::BERT };
        Ok(Box::new(e))
    },
};

const OWN: &[Field] = &[Field::new("embedding_size", WIDTH)];

const NAMES: Table = &[
    (TABLE, "electra.embeddings.word_embeddings"),
    (POSITIONS, "electra.embeddings.position_embeddings"),
    (TYPES, "electra.embeddings.token_type_embeddings"),
    (TABLE_NORM, "electra.embeddings.LayerNorm"),
    (WIDEN, "electra.embeddings_project"),
    (ATTN_Q, "electra.encoder.layer.{}.attention.self.query"),
    (ATTN_K, "electra.encoder.layer.{}.attention.self.key"),
    (ATTN_V, "electra.encoder.layer.{}.attention.self.value"),
    (ATTN_OUT, "electra.encoder.layer.{}.attention.output.dense"),
    (ATTN_POST_NORM, "electra.encoder.layer.{}.attention.output.LayerNorm"),
    (MLP_UP, "electra.encoder.layer.{}.intermediate.dense"),
    (MLP_DOWN, "electra.encoder.layer.{}.output.dense"),
    (MLP_POST_NORM, "electra.encoder.layer.{}.output.LayerNorm"),
    (POOLER, "classifier.dense"),
    (CLASSES, "classifier.out_proj"),
];
