//! RoBERTa-PreLayerNorm (arXiv 2202.08005): RoBERTa with norms before the blocks.

use crate::arch::blocks::encoder::{Defaults, FIELDS, FILL, FIXED};
use crate::arch::blocks::prelude::*;

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

const NAMES: Table = names! {
    "roberta_prelayernorm." {
        TABLE => "embeddings.word_embeddings", POSITIONS => "embeddings.position_embeddings",
        TYPES => "embeddings.token_type_embeddings", TABLE_NORM => "embeddings.LayerNorm", NORM => "LayerNorm",
    }
    "roberta_prelayernorm.encoder.layer.{}." {
        ATTN_NORM => "attention.LayerNorm", ATTN_Q => "attention.self.query", ATTN_K => "attention.self.key",
        ATTN_V => "attention.self.value", ATTN_OUT => "attention.output.dense", MLP_NORM => "intermediate.LayerNorm",
        MLP_UP => "intermediate.dense", MLP_DOWN => "output.dense",
    }
    "classifier." { POOLER => "dense", CLASSES => "out_proj" }
};
