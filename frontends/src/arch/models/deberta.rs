//! DeBERTa (arXiv 2006.03654): BERT without learned positions, where distances have keys and queries of
//! their own.

use crate::arch::blocks::disentangled_attention::{NEAR, NEAR_K, NEAR_Q};
use crate::arch::blocks::encoder::FIELDS_WITHOUT_TYPES;
use crate::arch::blocks::entry::Arch;
use crate::arch::blocks::families::disentangled_fields::{FIELDS, FIXED, read};
use crate::arch::blocks::names::{
    ATTN_OUT, ATTN_POST_NORM, ATTN_Q_BIAS, ATTN_QKV, ATTN_V_BIAS, CLASSES, MLP_DOWN, MLP_POST_NORM, MLP_UP, Names,
    POOLER, POSITIONS, TABLE, TABLE_NORM, TYPES, Table,
};
use crate::config::common::MODEL;
use crate::config::fields::IDENTITY;

pub(crate) const ARCH: Arch = Arch {
    model_type: "deberta",
    class: "DebertaModel",
    fields: &[IDENTITY, MODEL, FIELDS_WITHOUT_TYPES, FIELDS],
    fixed: FIXED,
    goldens: &["deberta", "deberta_classes"],
    names: Names(&[NAMES]),
    read: |f| {
        let (mut e, near) = read(f, None)?;
        for layer in &mut e.layers {
            let a = &mut layer.attention;
            (a.by_group, a.qkv_bias, a.bare_biases, a.near) = (true, false, true, near);
        }
        Ok(Box::new(e))
    },
};

const NAMES: Table = &[
    (TABLE, "deberta.embeddings.word_embeddings"),
    (POSITIONS, "deberta.embeddings.position_embeddings"),
    (TYPES, "deberta.embeddings.token_type_embeddings"),
    (TABLE_NORM, "deberta.embeddings.LayerNorm"),
    (NEAR, "deberta.encoder.rel_embeddings"),
    (NEAR_K, "deberta.encoder.layer.{}.attention.self.pos_proj"),
    (NEAR_Q, "deberta.encoder.layer.{}.attention.self.pos_q_proj"),
    (ATTN_QKV, "deberta.encoder.layer.{}.attention.self.in_proj"),
    (ATTN_Q_BIAS, "deberta.encoder.layer.{}.attention.self.q_bias"),
    (ATTN_V_BIAS, "deberta.encoder.layer.{}.attention.self.v_bias"),
    (ATTN_OUT, "deberta.encoder.layer.{}.attention.output.dense"),
    (ATTN_POST_NORM, "deberta.encoder.layer.{}.attention.output.LayerNorm"),
    (MLP_UP, "deberta.encoder.layer.{}.intermediate.dense"),
    (MLP_DOWN, "deberta.encoder.layer.{}.output.dense"),
    (MLP_POST_NORM, "deberta.encoder.layer.{}.output.LayerNorm"),
    (POOLER, "pooler.dense"),
    (CLASSES, "classifier"),
];
