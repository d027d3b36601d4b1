//! BERT (arXiv 1810.04805): norms after the residual addition, learned positions, types of tokens.
//!
//! Tokens of single texts have the first type; in pairs, which models with a head for classes
//! compare, the second text's tokens have the second.

use crate::arch::blocks::encoder::{Defaults, FIELDS, FIXED};
use crate::arch::blocks::prelude::*;

pub(crate) const ARCH: Arch = Arch {
    model_type: "bert",
    class: "BertModel",
    fields: &[IDENTITY, MODEL, FIELDS],
    fixed: FIXED,
    goldens: &["bert", "bert_classes", "bert_pairs"],
    names: Names(&[BERT, BERT_CLASSES]),
    read: |f| Ok(Box::new(Encoder::read(f, &Defaults::BERT)?)),
};
