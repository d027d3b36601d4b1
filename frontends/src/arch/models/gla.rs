//! Gated linear attention (GLA, arXiv 2312.06635), as flash-linear-attention stores it.

use crate::arch::blocks::families::gated_linear_decoder::{self, Absent, FIXED};
use crate::arch::blocks::gated_linear_attention::{Decay, NAMES};
use crate::arch::blocks::prelude::*;

pub(crate) const ARCH: Arch = Arch {
    model_type: "gla",
    class: "GLAForCausalLM",
    fields: &[IDENTITY, MODEL, gated_linear_decoder::FIELDS, fields! { use_short_conv, conv_size }],
    fixed: FIXED,
    goldens: &["gla_paper", "gla_conv_paper"],
    names: Names(&[NAMES, HUGGING_FACE]),
    read: |f| {
        let width = common::conv_width(f, "conv_size", 4)?;
        let conv = f.flag("use_short_conv").then_some(width);
        let absent = Absent { heads: 4, expand: [0.5, 1.0], ratio: 4 };
        Ok(Box::new(gated_linear_decoder::read(f, Decay::OfTokens, conv, &absent)?))
    },
};
