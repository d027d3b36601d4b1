//! I-BERT (arXiv 2101.01321) before it is quantized: RoBERTa, beside whose weights room is for integers and scales.

use crate::arch::blocks::encoder::{Defaults, FIELDS, FILL};
use crate::arch::blocks::prelude::*;

pub(crate) const ARCH: Arch = Arch {
    model_type: "ibert",
    class: "IBertModel",
    fields: &[IDENTITY, MODEL, FIELDS, FILL],
    fixed: fixed! {
        Words(&["absolute"]) => position_embedding_type;
        Off => is_decoder add_cross_attention;
        // With integers it would be another model.
        Off => quant_mode;
        Any => force_dequant;
    },
    goldens: &["ibert"],
    names: Names(&[NAMES]),
    read: |f| {
        let spare = &["ibert.pooler.", "pooler.", "lm_head."];
        let mut e = Encoder::read(f, &Defaults { spare, ..Defaults::ROBERTA })?;
        e.passes = &["_integer", "scaling_factor", ".x_min", ".x_max", ".LayerNorm.shift"];
        Ok(Box::new(e))
    },
};

const NAMES: Table = names! {
    "ibert." {
        TABLE => "embeddings.word_embeddings", POSITIONS => "embeddings.position_embeddings",
        TYPES => "embeddings.token_type_embeddings", TABLE_NORM => "embeddings.LayerNorm",
    }
    "ibert.encoder.layer.{}." {
        ATTN_Q => "attention.self.query", ATTN_K => "attention.self.key", ATTN_V => "attention.self.value",
        ATTN_OUT => "attention.output.dense", ATTN_POST_NORM => "attention.output.LayerNorm",
        MLP_UP => "intermediate.dense", MLP_DOWN => "output.dense", MLP_POST_NORM => "output.LayerNorm",
    }
    "classifier." { POOLER => "dense", CLASSES => "out_proj" }
};
