//! RemBERT (arXiv 2010.12821): BERT whose tables are narrower than its layers. The tables of its
//! head for masked tokens have another width, which says nothing about the layers.

use crate::arch::blocks::encoder::{Defaults, FIELDS, WIDEN};
use crate::arch::blocks::prelude::*;

pub(crate) const ARCH: Arch = Arch {
    model_type: "rembert",
    class: "RemBertModel",
    fields: &[IDENTITY, MODEL, FIELDS, fields! { input_embedding_size }],
    fixed: fixed! {
        Words(&["absolute"]) => position_embedding_type;
        Off => is_decoder add_cross_attention;
        Any => output_embedding_size;
    },
    goldens: &["rembert", "rembert_classes"],
    names: Names(&[bert_names!("rembert."), NAMES]),
    read: |f| {
        let mut e = Encoder::read(f, &Defaults { spare: &["rembert.pooler.", "pooler.", "cls."], ..Defaults::BERT })?;
        // The matrix between is there where both are as wide, too.
        e.embedding.narrow = Some(f.size("input_embedding_size").or(256));
        Ok(Box::new(e))
    },
};

const NAMES: Table = names! {
    "rembert." { WIDEN => "encoder.embedding_hidden_mapping_in", POOLER => "pooler.dense" }
    "" { CLASSES => "classifier" }
};
