//! BERT (arXiv 1810.04805): norms after what a block adds to, learned positions, types of tokens.
//!
//! Tokens of single texts are of the first type; of pairs, which models with a head for classes
//! compare, those of the second text are of the second.

use crate::arch::blocks::encoder::{Defaults, Encoder, FIELDS, FIXED};
use crate::arch::blocks::entry::Arch;
use crate::arch::blocks::names::{BERT, Names};
use crate::config::common::MODEL;
use crate::config::fields::IDENTITY;

pub(crate) const ARCH: Arch = Arch {
    model_type: "bert",
    class: "BertModel",
    fields: &[IDENTITY, MODEL, FIELDS],
    fixed: FIXED,
    goldens: &["bert", "bert_classes", "bert_pairs"],
    names: Names(&[BERT]),
    read: |f| Ok(Box::new(Encoder::read(f, &Defaults::BERT)?)),
};
