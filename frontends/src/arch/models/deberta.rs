//! DeBERTa (arXiv 2006.03654): BERT without learned positions, where distances have keys and queries of their own.

use crate::arch::blocks::disentangled_attention::{NEAR, NEAR_K, NEAR_Q};
use crate::arch::blocks::families::disentangled_fields::{FIELDS, FIXED, read};
use crate::arch::blocks::names::{ATTN_Q_BIAS, ATTN_V_BIAS};
use crate::arch::blocks::prelude::*;

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
            layer.attention.change_heads(|_, h| {
                (h.projection, h.qkv_bias, h.bare_bias) = (Projection::ByGroup, false, BareBias::QueriesAndValues);
                h.scores = near.map_or(h.scores, ScoreForm::Near);
            });
        }
        Ok(Box::new(e))
    },
};

const NAMES: Table = names! {
    "deberta." {
        TABLE => "embeddings.word_embeddings", POSITIONS => "embeddings.position_embeddings",
        TYPES => "embeddings.token_type_embeddings", TABLE_NORM => "embeddings.LayerNorm",
        NEAR => "encoder.rel_embeddings",
    }
    "deberta.encoder.layer.{}." {
        NEAR_K => "attention.self.pos_proj", NEAR_Q => "attention.self.pos_q_proj",
        ATTN_QKV => "attention.self.in_proj", ATTN_Q_BIAS => "attention.self.q_bias",
        ATTN_V_BIAS => "attention.self.v_bias", ATTN_OUT => "attention.output.dense",
        ATTN_POST_NORM => "attention.output.LayerNorm", MLP_UP => "intermediate.dense", MLP_DOWN => "output.dense",
        MLP_POST_NORM => "output.LayerNorm",
    }
    "" { POOLER => "pooler.dense", CLASSES => "classifier" }
};
