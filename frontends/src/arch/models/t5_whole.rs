//! T5 (arXiv 1910.10683) and Flan-T5, whole: the bias of scores by distance is the same in all layers of a stack.

use crate::arch::blocks::families::t5_encoder::{Absent, FIELDS, NAMES as ENCODER};
use crate::arch::blocks::families::t5_stacks::{self, FIXED, HeadScale, NAMES, SOURCES, read};
use crate::arch::blocks::prelude::*;

pub(crate) const ARCH: Arch = Arch {
    model_type: "t5",
    class: "T5ForConditionalGeneration",
    fields: &[IDENTITY, FIELDS, t5_stacks::FIELDS, fields! { scale_decoder_outputs }],
    fixed: FIXED,
    goldens: &["t5_whole_v1_1", "t5_whole"],
    names: Names(&[NAMES, DISTANCES]),
    read: |f| Ok(Box::new(read(f, &Absent::T5, HeadScale::WhereTied, Names(&[ENCODER, OF_ENCODER, SOURCES]))?)),
};

const DISTANCES: Table = names! {
    "" { ATTN_BIAS => "decoder.block.0.layer.0.SelfAttention.relative_attention_bias" }
};

const OF_ENCODER: Table = names! {
    "" { ATTN_BIAS => "encoder.block.0.layer.0.SelfAttention.relative_attention_bias" }
};
