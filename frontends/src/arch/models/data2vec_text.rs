//! data2vec for text (arXiv 2202.03555): RoBERTa, trained otherwise.

use crate::arch::blocks::encoder::{Defaults, FIELDS, FILL, FIXED};
use crate::arch::blocks::prelude::*;

pub(crate) const ARCH: Arch = Arch {
    model_type: "data2vec-text",
    class: "Data2VecTextModel",
    fields: &[IDENTITY, MODEL, FIELDS, FILL],
    fixed: FIXED,
    goldens: &["data2vec_text", "data2vec_text_classes"],
    names: Names(&[bert_names!("data2vec_text."), ROBERTA_CLASSES]),
    read: |f| {
        let spare = &["data2vec_text.pooler.", "pooler.", "lm_head."];
        Ok(Box::new(Encoder::read(f, &Defaults { spare, ..Defaults::ROBERTA })?))
    },
};
