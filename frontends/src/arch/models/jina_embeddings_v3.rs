//! Jina's embeddings, version 3 (arXiv 2409.10173): XLM-RoBERTa with rotary positions. The adapters
//! of its tasks are folders of their own; the model is what Transformers loads without one.

use crate::arch::blocks::encoder::{Encoder, FIELDS, FIXED};
use crate::arch::blocks::entry::Arch;
use crate::arch::blocks::names::{
    ATTN_OUT, ATTN_POST_NORM, ATTN_QKV, CLASSES, MLP_DOWN, MLP_POST_NORM, MLP_UP, Names, POOLER, TABLE, TABLE_NORM,
    TYPES, Table,
};
use crate::config::common::{Facts, MODEL, ROTARY};
use crate::config::fields::IDENTITY;

pub(crate) const ARCH: Arch = Arch {
    model_type: "jina_embeddings_v3",
    class: "JinaEmbeddingsV3Model",
    fields: &[IDENTITY, MODEL, ROTARY, FIELDS],
    fixed: FIXED,
    goldens: &["jina_embeddings_v3", "jina_embeddings_v3_classes"],
    names: Names(&[NAMES]),
    read: |f| {
        let facts = Facts::read(f, Some(250_002), 8194, true)?;
        let mut e = Encoder::rotated(f, facts, 4096, 1e-5, 20_000.0)?;
        e.types = f.size("type_vocab_size").or(1);
        e.spare = &["roberta.pooler.", "pooler.", "lm_head."];
        Ok(Box::new(e))
    },
};

const NAMES: Table = &[
    (TABLE, "roberta.embeddings.word_embeddings"),
    (TYPES, "roberta.embeddings.token_type_embeddings"),
    (TABLE_NORM, "roberta.emb_ln"),
    (ATTN_QKV, "roberta.encoder.layers.{}.mixer.Wqkv"),
    (ATTN_OUT, "roberta.encoder.layers.{}.mixer.out_proj"),
    (ATTN_POST_NORM, "roberta.encoder.layers.{}.norm1"),
    (MLP_UP, "roberta.encoder.layers.{}.mlp.fc1"),
    (MLP_DOWN, "roberta.encoder.layers.{}.mlp.fc2"),
    (MLP_POST_NORM, "roberta.encoder.layers.{}.norm2"),
    (POOLER, "classifier.dense"),
    (CLASSES, "classifier.out_proj"),
];
