//! The encoder of T5 (arXiv 1910.10683): the bias of scores by distance is the same in all layers.

use crate::arch::blocks::families::t5_encoder::{Absent, FIELDS, FIXED, NAMES, read};
use crate::arch::blocks::prelude::*;

pub(crate) const ARCH: Arch = Arch {
    model_type: "t5",
    class: "T5EncoderModel",
    fields: &[IDENTITY, FIELDS],
    fixed: FIXED,
    goldens: &["t5", "t5_relu"],
    names: Names(&[NAMES, DISTANCES]),
    read: |f| Ok(Box::new(read(f, &Absent::T5)?)),
};

const DISTANCES: Table = names! { "" { ATTN_BIAS => "encoder.block.0.layer.0.SelfAttention.relative_attention_bias" } };
