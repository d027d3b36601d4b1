//! The encoder of T5 (arXiv 1910.10683): what scores get by distance is the same in all layers.

use super::entry::Arch;
use super::names::{ATTN_BIAS, Names, Table};
use super::t5_encoder::{Absent, FIELDS, FIXED, NAMES, read};
use crate::config::fields::IDENTITY;

pub(super) const ARCH: Arch = Arch {
    model_type: "t5",
    class: "T5EncoderModel",
    fields: &[IDENTITY, FIELDS],
    fixed: FIXED,
    goldens: &["t5", "t5_relu"],
    names: Names(&[NAMES, DISTANCES]),
    read: |f| Ok(Box::new(read(f, &Absent::T5)?)),
};

const DISTANCES: Table = &[(ATTN_BIAS, "encoder.block.0.layer.0.SelfAttention.relative_attention_bias")];
