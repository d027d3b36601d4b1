//! ELECTRA (arXiv 2003.10555), the discriminator: BERT whose tables may be narrower than its layers, and
//! whose classifiers have a head of their own.

use crate::arch::blocks::encoder::{Defaults, FIELDS, FIXED, WIDEN};
use crate::arch::blocks::prelude::*;

pub(crate) const ARCH: Arch = Arch {
    model_type: "electra",
    class: "ElectraModel",
    fields: &[IDENTITY, MODEL, FIELDS, fields! { embedding_size }],
    fixed: FIXED,
    goldens: &["electra", "electra_classes"],
    names: Names(&[bert_names!("electra."), NAMES, ROBERTA_CLASSES]),
    read: |f| {
        let spare = &["discriminator_predictions.", "generator_predictions.", "generator_lm_head."];
        let mut e = Encoder::read(f, &Defaults { spare, ..Defaults::BERT })?;
        // Where both are as wide there is no matrix between them.
        e.embedding.narrow = Some(f.size("embedding_size").or(128)).filter(|width| *width != e.facts.hidden);
        e.classes = ClassHead { act: UnaryOp::Gelu, ..ClassHead::BERT };
        Ok(Box::new(e))
    },
};

const NAMES: Table = names! { "electra." { WIDEN => "embeddings_project" } };
