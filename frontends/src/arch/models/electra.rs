//! ELECTRA (arXiv 2003.10555), the discriminator: BERT whose tables may be narrower than its layers, and
//! whose classifiers have a head of their own.

use crate::arch::blocks::encoder::{Defaults, FIELDS, FIXED, WIDEN};
use crate::arch::blocks::prelude::*;

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

const OWN: &[Field] = fields! { embedding_size };

const NAMES: Table = names! {
    "electra." {
        TABLE => "embeddings.word_embeddings", POSITIONS => "embeddings.position_embeddings",
        TYPES => "embeddings.token_type_embeddings", TABLE_NORM => "embeddings.LayerNorm",
        WIDEN => "embeddings_project",
    }
    "electra.encoder.layer.{}." {
        ATTN_Q => "attention.self.query", ATTN_K => "attention.self.key", ATTN_V => "attention.self.value",
        ATTN_OUT => "attention.output.dense", ATTN_POST_NORM => "attention.output.LayerNorm",
        MLP_UP => "intermediate.dense", MLP_DOWN => "output.dense", MLP_POST_NORM => "output.LayerNorm",
    }
    "classifier." { POOLER => "dense", CLASSES => "out_proj" }
};
