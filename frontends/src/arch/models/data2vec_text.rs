//! data2vec for text (arXiv 2202.03555): RoBERTa, trained otherwise.

use crate::arch::blocks::encoder::{Defaults, FIELDS, FILL, FIXED};
use crate::arch::blocks::prelude::*;

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

const NAMES: Table = names! {
    "data2vec_text." {
        TABLE => "embeddings.word_embeddings", POSITIONS => "embeddings.position_embeddings",
        TYPES => "embeddings.token_type_embeddings", TABLE_NORM => "embeddings.LayerNorm",
    }
    "data2vec_text.encoder.layer.{}." {
        ATTN_Q => "attention.self.query", ATTN_K => "attention.self.key", ATTN_V => "attention.self.value",
        ATTN_OUT => "attention.output.dense", ATTN_POST_NORM => "attention.output.LayerNorm",
        MLP_UP => "intermediate.dense", MLP_DOWN => "output.dense", MLP_POST_NORM => "output.LayerNorm",
    }
    "classifier." { POOLER => "dense", CLASSES => "out_proj" }
};
