//! UMT5 (arXiv 2304.09151), whole: mT5, whose layers have numbers of their own for distances.

use crate::arch::blocks::families::t5_encoder::{Absent, FIELDS, NAMES as ENCODER};
use crate::arch::blocks::families::t5_stacks::{self, FIXED_SCALE, HeadScale, NAMES, SOURCES, read};
use crate::arch::blocks::prelude::*;

pub(crate) const ARCH: Arch = Arch {
    model_type: "umt5",
    class: "UMT5ForConditionalGeneration",
    fields: &[IDENTITY, FIELDS, t5_stacks::FIELDS],
    fixed: FIXED_SCALE,
    goldens: &["umt5_whole"],
    names: Names(&[NAMES, DISTANCES]),
    read: |f| Ok(Box::new(read(f, &Absent::MT5, HeadScale::Always, Names(&[ENCODER, OF_ENCODER, SOURCES]))?)),
};

const DISTANCES: Table = names! {
    "decoder.block.{}." { ATTN_BIAS => "layer.0.SelfAttention.relative_attention_bias" }
};

const OF_ENCODER: Table = names! {
    "encoder.block.{}." { ATTN_BIAS => "layer.0.SelfAttention.relative_attention_bias" }
};
