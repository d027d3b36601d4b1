//! LUKE (arXiv 2010.01057): RoBERTa that may be given entities beside the text; without any it is what
//! Transformers computes for a text alone.

use crate::arch::blocks::encoder::{Defaults, Encoder, FIELDS, FILL};
use crate::arch::blocks::entry::{Arch, Shape};
use crate::arch::blocks::lifter::Lifter;
use crate::arch::blocks::names::{
    ATTN_K, ATTN_OUT, ATTN_POST_NORM, ATTN_Q, ATTN_V, CLASSES, MLP_DOWN, MLP_POST_NORM, MLP_UP, Names, POOLER,
    POSITIONS, TABLE, TABLE_NORM, TYPES, Table,
};
use crate::arch::blocks::outputs::Yields;
use crate::config::common::{Facts, MODEL};
use crate::config::fields::IDENTITY;
use crate::config::known::Neutral;
use crate::error::FrontendError;

pub(crate) const ARCH: Arch = Arch {
    model_type: "luke",
    class: "LukeModel",
    fields: &[IDENTITY, MODEL, FIELDS, FILL],
    fixed: &[
        // Of entities, which a text has none of.
        ("use_entity_aware_attention", Neutral::Any),
        ("entity_vocab_size", Neutral::Any),
        ("entity_emb_size", Neutral::Any),
        ("cls_entity_prediction", Neutral::Any),
        ("position_embedding_type", Neutral::Words(&["absolute"])),
    ],
    goldens: &["luke", "luke_classes"],
    names: Names(&[NAMES]),
    read: |f| Ok(Box::new(Luke(Encoder::read(f, &Defaults { spare: SPARE, ..Defaults::ROBERTA })?))),
};

const SPARE: &[&str] = &["luke.pooler.", "pooler.", "lm_head.", "entity_predictions."];

/// LUKE.
#[derive(Clone, Debug)]
struct Luke(Encoder);

impl Shape for Luke {
    fn facts(&self) -> &Facts {
        self.0.facts()
    }

    fn yields(&self) -> Yields {
        self.0.yields()
    }

    fn spare(&self) -> &'static [&'static str] {
        self.0.spare()
    }

    /// Rows of entities, and queries from them and for them.
    fn chooses(&self, tensor: &str) -> bool {
        let of_layer = |part: &str| ["w2e_query", "e2w_query", "e2e_query"].contains(&part);
        tensor.split('.').any(|part| of_layer(part) || part == "entity_embeddings")
    }

    fn lift(&self, l: &mut Lifter) -> Result<(), FrontendError> {
        self.0.lift(l)
    }
}

const NAMES: Table = &[
    (TABLE, "luke.embeddings.word_embeddings"),
    (POSITIONS, "luke.embeddings.position_embeddings"),
    (TYPES, "luke.embeddings.token_type_embeddings"),
    (TABLE_NORM, "luke.embeddings.LayerNorm"),
    (ATTN_Q, "luke.encoder.layer.{}.attention.self.query"),
    (ATTN_K, "luke.encoder.layer.{}.attention.self.key"),
    (ATTN_V, "luke.encoder.layer.{}.attention.self.value"),
    (ATTN_OUT, "luke.encoder.layer.{}.attention.output.dense"),
    (ATTN_POST_NORM, "luke.encoder.layer.{}.attention.output.LayerNorm"),
    (MLP_UP, "luke.encoder.layer.{}.intermediate.dense"),
    (MLP_DOWN, "luke.encoder.layer.{}.output.dense"),
    (MLP_POST_NORM, "luke.encoder.layer.{}.output.LayerNorm"),
    (POOLER, "luke.pooler.dense"),
    (CLASSES, "classifier"),
];
