//! RetNet (arXiv 2307.08621), as flash-linear-attention stores it, whose model leaves the fields
//! about convolutions unread.

use crate::arch::blocks::families::gated_linear_decoder::{self, Absent, FIXED};
use crate::arch::blocks::gated_linear_attention::{Decay, NAMES};
use crate::arch::blocks::prelude::*;

pub(crate) const ARCH: Arch = Arch {
    model_type: "retnet",
    class: "RetNetForCausalLM",
    fields: &[IDENTITY, MODEL, gated_linear_decoder::FIELDS],
    fixed: FIXED,
    goldens: &["retnet_paper"],
    names: Names(&[NAMES, HUGGING_FACE]),
    read: |f| {
        let absent = Absent { heads: 8, expand: [1.0, 2.0], ratio: 2 };
        Ok(Box::new(gated_linear_decoder::read(f, Decay::OfHeads, None, &absent)?))
    },
};
