//! mT5 (arXiv 2010.11934), whole: T5 with gates, and rows before the head that are not scaled.

use crate::arch::blocks::families::t5_encoder::{Absent, FIELDS, NAMES as ENCODER};
use crate::arch::blocks::families::t5_stacks::{self, FIXED_SCALE, HeadScale, NAMES, SOURCES, read};
use crate::arch::blocks::prelude::*;

pub(crate) const ARCH: Arch = Arch {
    model_type: "mt5",
    class: "MT5ForConditionalGeneration",
    fields: &[IDENTITY, FIELDS, t5_stacks::FIELDS],
    fixed: FIXED_SCALE,
    goldens: &["mt5_whole"],
    names: Names(&[NAMES, DISTANCES]),
    read: |f| Ok(Box::new(read(f, &Absent::MT5, HeadScale::Never, Names(&[ENCODER, OF_ENCODER, SOURCES]))?)),
};

const DISTANCES: Table = names! {
    "" { ATTN_BIAS => "decoder.block.0.layer.0.SelfAttention.relative_attention_bias" }
};

const OF_ENCODER: Table = names! {
    "" { ATTN_BIAS => "encoder.block.0.layer.0.SelfAttention.relative_attention_bias" }
};
