//! VaultGemma (arXiv 2510.15001): Gemma 2 with norms before the blocks only.

use crate::arch::blocks::families::gemma2_decoder::{self, FIXED, OWN};
use crate::arch::blocks::prelude::*;

pub(crate) const ARCH: Arch = Arch {
    model_type: "vaultgemma",
    class: "VaultGemmaForCausalLM",
    fields: &[IDENTITY, MODEL, ATTENTION, ROTARY, ATTENTION_BIAS, WINDOW, OWN],
    fixed: FIXED,
    goldens: &["vaultgemma"],
    names: Names(&[SANDWICH_NORMS, HUGGING_FACE]),
    read: |f| Ok(Box::new(gemma2_decoder::read(f)?)),
};
