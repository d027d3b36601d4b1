//! Megatron's BERT (arXiv 1909.08053): BERT with norms before the blocks, and none of the embeddings.

use crate::arch::blocks::encoder::{Defaults, FIELDS, FIXED};
use crate::arch::blocks::prelude::*;

pub(crate) const ARCH: Arch = Arch {
    model_type: "megatron-bert",
    class: "MegatronBertModel",
    fields: &[IDENTITY, MODEL, FIELDS],
    fixed: FIXED,
    goldens: &["megatron_bert", "megatron_bert_classes"],
    names: Names(&[NAMES]),
    read: |f| {
        let mut e = Encoder::read(f, &Defaults::BERT)?;
        (e.norm_first, e.table_norm) = (true, false);
        Ok(Box::new(e))
    },
};

const NAMES: Table = names! {
    "bert." {
        TABLE => "embeddings.word_embeddings", POSITIONS => "embeddings.position_embeddings",
        TYPES => "embeddings.token_type_embeddings", NORM => "encoder.ln", POOLER => "pooler.dense",
    }
    "bert.encoder.layer.{}." {
        ATTN_NORM => "attention.ln", ATTN_Q => "attention.self.query", ATTN_K => "attention.self.key",
        ATTN_V => "attention.self.value", ATTN_OUT => "attention.output.dense", MLP_NORM => "ln",
        MLP_UP => "intermediate.dense", MLP_DOWN => "output.dense",
    }
    "" { CLASSES => "classifier" }
};
