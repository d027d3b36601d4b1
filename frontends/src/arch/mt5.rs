//! The encoder of mT5 (arXiv 2010.11934): T5's, with gates.

use super::entry::Arch;
use super::names::{ATTN_BIAS, Names, Table};
use super::t5_encoder::{Absent, FIELDS, FIXED, NAMES, read};
use crate::config::fields::IDENTITY;

pub(super) const ARCH: Arch = Arch {
    model_type: "mt5",
    class: "MT5EncoderModel",
    fields: &[IDENTITY, FIELDS],
    fixed: FIXED,
    goldens: &["mt5"],
    names: Names(&[NAMES, DISTANCES]),
    read: |f| Ok(Box::new(read(f, &Absent::MT5)?)),
};

const DISTANCES: Table = &[(ATTN_BIAS, "encoder.block.0.layer.0.SelfAttention.relative_attention_bias")];
