//! Mamba (arXiv 2312.00752): nothing but mixers with a selective scan.

use super::entry::Arch;
use super::mixers::{ACT, FIXED, Mixers, NAMES};
use super::names::Names;
use super::selective::MIXERS;
use crate::config::common::MODEL;
use crate::config::fields::IDENTITY;

pub(super) const ARCH: Arch = Arch {
    model_type: "mamba",
    class: "MambaForCausalLM",
    fields: &[IDENTITY, MODEL, ACT, MIXERS],
    fixed: FIXED,
    goldens: &["mamba"],
    names: Names(&[NAMES]),
    read: |f| Ok(Box::new(Mixers::selective(f, None)?)),
};
