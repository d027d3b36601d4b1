//! RoFormer (arXiv 2104.09864): BERT with rotary positions, whose sines and cosines are in files,
//! and with tables that may be narrower than its layers.

use crate::arch::blocks::encoder::{Defaults, FIELDS, TURNS, WIDEN};
use crate::arch::blocks::learned_positions::Positions;
use crate::arch::blocks::prelude::*;

pub(crate) const ARCH: Arch = Arch {
    model_type: "roformer",
    class: "RoFormerModel",
    fields: &[IDENTITY, MODEL, FIELDS, fields! { embedding_size }],
    fixed: &[("is_decoder", Neutral::Off), ("add_cross_attention", Neutral::Off), ("rotary_value", Neutral::Off)],
    goldens: &["roformer", "roformer_classes"],
    names: Names(&[NAMES]),
    read: |f| {
        let mut e = Encoder::read(f, &Defaults { max_position: 1536, spare: &["cls."], ..Defaults::BERT })?;
        // Where both are as wide there is no matrix between them.
        e.embedding.narrow = f.size("embedding_size").value().filter(|width| *width != e.facts.hidden);
        e.turns = e.embedding.positions.take().map(|Positions { rows, .. }| rows);
        for layer in &mut e.layers {
            let a = &mut layer.attention;
            if !a.heads.dim.is_multiple_of(2) {
                let expected = format!("such that heads have an even number of elements, not {}", a.heads.dim);
                return Err(f.invalid("num_attention_heads", &a.heads.queries, expected));
            }
            a.change_heads(|a, h| (a.rotary, h.neighbours) = (Some(0), a.heads.dim));
            // Its classifiers activate as its layers do.
            e.classes = ClassHead { act: layer.mlp.act, ..ClassHead::BERT };
        }
        Ok(Box::new(e))
    },
};

const NAMES: Table = names! {
    "roformer." {
        TABLE => "embeddings.word_embeddings", TYPES => "embeddings.token_type_embeddings",
        TABLE_NORM => "embeddings.LayerNorm", WIDEN => "embeddings_project", TURNS => "encoder.embed_positions",
    }
    "roformer.encoder.layer.{}." {
        ATTN_Q => "attention.self.query", ATTN_K => "attention.self.key", ATTN_V => "attention.self.value",
        ATTN_OUT => "attention.output.dense", ATTN_POST_NORM => "attention.output.LayerNorm",
        MLP_UP => "intermediate.dense", MLP_DOWN => "output.dense", MLP_POST_NORM => "output.LayerNorm",
    }
    "classifier." { POOLER => "dense", CLASSES => "out_proj" }
};
