//! RemBERT (arXiv 2010.12821): BERT whose tables are narrower than its layers. The tables of its
//! head for masked tokens have another width, which says nothing about the layers.

use crate::arch::blocks::encoder::{Defaults, FIELDS, WIDEN};
use crate::arch::blocks::prelude::*;

pub(crate) const ARCH: Arch = Arch {
    model_type: "rembert",
    class: "RemBertModel",
    fields: &[IDENTITY, MODEL, FIELDS, OWN],
    fixed: fixed! {
        Words(&["absolute"]) => position_embedding_type;
        Off => is_decoder add_cross_attention;
        Any => output_embedding_size;
    },
    goldens: &["rembert", "rembert_classes"],
    names: Names(&[NAMES]),
    read: |f| {
        let mut e = Encoder::read(f, &Defaults { spare: &["rembert.pooler.", "pooler.", "cls."], ..Defaults::BERT })?;
        // The matrix between is there where both are as wide, too.
        e.narrow = Some(f.size("input_embedding_size").or(256));
        Ok(Box::new(e))
    },
};

const OWN: &[Field] = fields! { input_embedding_size };

const NAMES: Table = names! {
    "rembert." {
        TABLE => "embeddings.word_embeddings", POSITIONS => "embeddings.position_embeddings",
        TYPES => "embeddings.token_type_embeddings", TABLE_NORM => "embeddings.LayerNorm",
        WIDEN => "encoder.embedding_hidden_mapping_in", POOLER => "pooler.dense",
    }
    "rembert.encoder.layer.{}." {
        ATTN_Q => "attention.self.query", ATTN_K => "attention.self.key", ATTN_V => "attention.self.value",
        ATTN_OUT => "attention.output.dense", ATTN_POST_NORM => "attention.output.LayerNorm",
        MLP_UP => "intermediate.dense", MLP_DOWN => "output.dense", MLP_POST_NORM => "output.LayerNorm",
    }
    "" { CLASSES => "classifier" }
};
