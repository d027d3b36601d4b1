//! XLM-RoBERTa (arXiv 1911.02116): RoBERTa with a vocabulary of a hundred languages; most
//! multilingual embedders and rerankers use it.

use crate::arch::blocks::encoder::{Defaults, FIELDS, FILL, FIXED};
use crate::arch::blocks::prelude::*;

pub(crate) const ARCH: Arch = Arch {
    model_type: "xlm-roberta",
    class: "XLMRobertaModel",
    fields: &[IDENTITY, MODEL, FIELDS, FILL],
    fixed: FIXED,
    goldens: &["xlm_roberta", "xlm_roberta_pairs"],
    names: Names(&[ROBERTA, ROBERTA_CLASSES]),
    read: |f| Ok(Box::new(Encoder::read(f, &Defaults::ROBERTA)?)),
};
