//! RoFormer (arXiv 2104.09864): BERT with rotary positions, of which files have the sines and cosines, and
//! with tables that may be narrower than its layers.

use crate::arch::blocks::encoder::{ClassHead, Defaults, Encoder, FIELDS, TURNS, WIDEN};
use crate::arch::blocks::entry::Arch;
use crate::arch::blocks::learned_positions::Positions;
use crate::arch::blocks::names::{
    ATTN_K, ATTN_OUT, ATTN_POST_NORM, ATTN_Q, ATTN_V, CLASSES, MLP_DOWN, MLP_POST_NORM, MLP_UP, Names, POOLER, TABLE,
    TABLE_NORM, TYPES, Table,
};
use crate::config::common::{MODEL, WIDTH};
use crate::config::fields::{Field, IDENTITY};
use crate::config::known::Neutral;

pub(crate) const ARCH: Arch = Arch {
    model_type: "roformer",
    class: "RoFormerModel",
    fields: &[IDENTITY, MODEL, FIELDS, OWN],
    fixed: &[("is_decoder", Neutral::Off), ("add_cross_attention", Neutral::Off), ("rotary_value", Neutral::Off)],
    goldens: &["roformer", "roformer_classes"],
    names: Names(&[NAMES]),
    read: |f| {
        let mut e = Encoder::read(f, &Defaults { max_position: 1536, spare: &["cls."], ..Defaults::BERT })?;
        // Where both are as wide there is no matrix between them.
        e.narrow = f.size("embedding_size").value().filter(|width| *width != e.facts.hidden);
        e.turns = e.positions.take().map(|Positions { rows, .. }| rows);
        for layer in &mut e.layers {
            let a = &mut layer.attention;
            if !a.heads.dim.is_multiple_of(2) {
                let expected = format!("such that heads have an even number of elements, not {}", a.heads.dim);
                return Err(f.invalid("num_attention_heads", &a.heads.queries, expected));
            }
            (a.rotary, a.neighbours) = (Some(0), a.heads.dim);
            // Its classifiers activate as its layers do.
            e.classes = ClassHead { act: layer.mlp.act, ..ClassHead::BERT };
        }
        Ok(Box::new(e))
    },
};

const OWN: &[Field] = &[Field::new("embedding_size", WIDTH)];

const NAMES: Table = &[
    (TABLE, "roformer.embeddings.word_embeddings"),
    (TYPES, "roformer.embeddings.token_type_embeddings"),
    (TABLE_NORM, "roformer.embeddings.LayerNorm"),
    (WIDEN, "roformer.embeddings_project"),
    (TURNS, "roformer.encoder.embed_positions"),
    (ATTN_Q, "roformer.encoder.layer.{}.attention.self.query"),
    (ATTN_K, "roformer.encoder.layer.{}.attention.self.key"),
    (ATTN_V, "roformer.encoder.layer.{}.attention.self.value"),
    (ATTN_OUT, "roformer.encoder.layer.{}.attention.output.dense"),
    (ATTN_POST_NORM, "roformer.encoder.layer.{}.attention.output.LayerNorm"),
    (MLP_UP, "roformer.encoder.layer.{}.intermediate.dense"),
    (MLP_DOWN, "roformer.encoder.layer.{}.output.dense"),
    (MLP_POST_NORM, "roformer.encoder.layer.{}.output.LayerNorm"),
    (POOLER, "classifier.dense"),
    (CLASSES, "classifier.out_proj"),
];
