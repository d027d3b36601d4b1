//! RetNet (arXiv 2307.08621), as flash-linear-attention stores it, whose model leaves the fields
//! about convolutions unread.

use super::entry::Arch;
use super::gated_linear::{Decay, NAMES};
use super::gated_linear_fields::{self, Absent, FIXED};
use super::names::{HUGGING_FACE, Names};
use crate::config::common::MODEL;
use crate::config::fields::IDENTITY;

pub(super) const ARCH: Arch = Arch {
    model_type: "retnet",
    class: "RetNetForCausalLM",
    fields: &[IDENTITY, MODEL, gated_linear_fields::FIELDS],
    fixed: FIXED,
    goldens: &["retnet_paper"],
    names: Names(&[NAMES, HUGGING_FACE]),
    read: |f| {
        let absent = Absent { heads: 8, expand: [1.0, 2.0], ratio: 2 };
        Ok(Box::new(gated_linear_fields::read(f, Decay::OfHeads, None, &absent)?))
    },
};
