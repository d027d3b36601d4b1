//! LUKE (arXiv 2010.01057): RoBERTa that may be given entities beside the text; without any it
//! computes the same as Transformers for a text alone.

use crate::arch::blocks::encoder::{Defaults, FIELDS, FILL};
use crate::arch::blocks::prelude::*;

pub(crate) const ARCH: Arch = Arch {
    model_type: "luke",
    class: "LukeModel",
    fields: &[IDENTITY, MODEL, FIELDS, FILL],
    fixed: fixed! {
        // Fields about entities; text has none.
        Any => use_entity_aware_attention;
        Any => entity_vocab_size entity_emb_size cls_entity_prediction;
        Words(&["absolute"]) => position_embedding_type;
    },
    goldens: &["luke", "luke_classes"],
    names: Names(&[bert_names!("luke."), NAMES]),
    read: |f| Ok(Box::new(Luke(Encoder::read(f, &Defaults { spare: SPARE, ..Defaults::ROBERTA })?))),
};

const SPARE: &[&str] = &["luke.pooler.", "pooler.", "lm_head.", "entity_predictions."];

/// LUKE.
#[derive(Clone, Debug)]
struct Luke(Encoder);

impl Shape for Luke {
    answered_by! { 0: facts yields spare }

    /// Rows of entities, and queries from them and for them.
    fn chooses(&self, tensor: &str) -> bool {
        let of_layer = |part: &str| ["w2e_query", "e2w_query", "e2e_query"].contains(&part);
        tensor.split('.').any(|part| of_layer(part) || part == "entity_embeddings")
    }

    fn lift(&self, l: &mut Lifter) -> Result<(), FrontendError> {
        self.0.lift(l)
    }
}

const NAMES: Table = names! { "luke." { POOLER => "pooler.dense" } "" { CLASSES => "classifier" } };
