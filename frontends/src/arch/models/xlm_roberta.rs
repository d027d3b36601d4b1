//! XLM-RoBERTa (arXiv 1911.02116): RoBERTa with a vocabulary of a hundred languages; what most
//! multilingual embedders and rerankers are.

use crate::arch::blocks::encoder::{Defaults, Encoder, FIELDS, FILL, FIXED};
use crate::arch::blocks::entry::Arch;
use crate::arch::blocks::names::{Names, ROBERTA};
use crate::config::common::MODEL;
use crate::config::fields::IDENTITY;

pub(crate) const ARCH: Arch = Arch {
    model_type: "xlm-roberta",
    class: "XLMRobertaModel",
    fields: &[IDENTITY, MODEL, FIELDS, FILL],
    fixed: FIXED,
    goldens: &["xlm_roberta", "xlm_roberta_pairs"],
    names: Names(&[ROBERTA]),
    read: |f| Ok(Box::new(Encoder::read(f, &Defaults::ROBERTA)?)),
};
