//! Mamba (arXiv 2312.00752): nothing but mixers with a selective scan.

use crate::arch::blocks::families::mamba_decoder::{ACT, FIXED, Mixers, NAMES};
use crate::arch::blocks::prelude::*;
use crate::arch::blocks::selective_scan::MIXERS;

pub(crate) const ARCH: Arch = Arch {
    model_type: "mamba",
    class: "MambaForCausalLM",
    fields: &[IDENTITY, MODEL, ACT, MIXERS],
    fixed: FIXED,
    goldens: &["mamba"],
    names: Names(&[NAMES]),
    read: |f| Ok(Box::new(Mixers::selective(f, None)?)),
};
