//! The encoder of UMT5 (arXiv 2304.09151): mT5's, whose layers have numbers of their own for distances.

use crate::arch::blocks::families::t5_encoder::{Absent, FIELDS, FIXED, NAMES, read};
use crate::arch::blocks::prelude::*;

pub(crate) const ARCH: Arch = Arch {
    model_type: "umt5",
    class: "UMT5EncoderModel",
    fields: &[IDENTITY, FIELDS],
    fixed: FIXED,
    goldens: &["umt5"],
    names: Names(&[NAMES, DISTANCES]),
    read: |f| Ok(Box::new(read(f, &Absent::MT5)?)),
};

const DISTANCES: Table = names! {
    "encoder.block.{}." { ATTN_BIAS => "layer.0.SelfAttention.relative_attention_bias" }
};
