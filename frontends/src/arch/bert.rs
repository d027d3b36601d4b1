//! BERT (arXiv 1810.04805): norms after what a block adds to, learned positions, types of tokens.
//!
//! Tokens of single texts are of the first type; of pairs, which models with a head for classes
//! compare, those of the second text are of the second.

use super::encoder::{Defaults, Encoder, FIELDS, FIXED};
use super::entry::Arch;
use super::names::{BERT, Names};
use crate::config::common::MODEL;
use crate::config::fields::IDENTITY;

pub(super) const ARCH: Arch = Arch {
    model_type: "bert",
    class: "BertModel",
    fields: &[IDENTITY, MODEL, FIELDS],
    fixed: FIXED,
    goldens: &["bert", "bert_classes", "bert_pairs"],
    names: Names(&[BERT]),
    read: |f| Ok(Box::new(Encoder::read(f, &Defaults::BERT)?)),
};
