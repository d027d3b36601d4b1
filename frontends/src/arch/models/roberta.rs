//! RoBERTa (arXiv 1907.11692): BERT whose positions begin after the row of the padding token, with one kind of tokens.

use crate::arch::blocks::encoder::{Defaults, FIELDS, FILL, FIXED};
use crate::arch::blocks::prelude::*;

pub(crate) const ARCH: Arch = Arch {
    model_type: "roberta",
    class: "RobertaModel",
    fields: &[IDENTITY, MODEL, FIELDS, FILL],
    fixed: FIXED,
    goldens: &["roberta", "roberta_classes"],
    names: Names(&[ROBERTA, ROBERTA_CLASSES]),
    read: |f| Ok(Box::new(Encoder::read(f, &Defaults::ROBERTA)?)),
};
