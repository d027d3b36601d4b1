//! The encoder of mT5 (arXiv 2010.11934): T5's, with gates.

use crate::arch::blocks::families::t5_encoder::{Absent, FIELDS, FIXED, NAMES, read};
use crate::arch::blocks::prelude::*;

pub(crate) const ARCH: Arch = Arch {
    model_type: "mt5",
    class: "MT5EncoderModel",
    fields: &[IDENTITY, FIELDS],
    fixed: FIXED,
    goldens: &["mt5"],
    names: Names(&[NAMES, DISTANCES]),
    read: |f| Ok(Box::new(read(f, &Absent::MT5)?)),
};

const DISTANCES: Table = names! { "" { ATTN_BIAS => "encoder.block.0.layer.0.SelfAttention.relative_attention_bias" } };
