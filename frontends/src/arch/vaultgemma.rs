//! VaultGemma (arXiv 2510.15001): Gemma 2 with norms before the blocks only.

use super::entry::Arch;
use super::names::{HUGGING_FACE, Names, SANDWICH_NORMS};
use super::soft_caps::{self, FIXED, OWN};
use crate::config::common::{ATTENTION, ATTENTION_BIAS, MODEL, ROTARY, WINDOW};
use crate::config::fields::IDENTITY;

pub(super) const ARCH: Arch = Arch {
    model_type: "vaultgemma",
    class: "VaultGemmaForCausalLM",
    fields: &[IDENTITY, MODEL, ATTENTION, ROTARY, ATTENTION_BIAS, WINDOW, OWN],
    fixed: FIXED,
    goldens: &["vaultgemma"],
    names: Names(&[SANDWICH_NORMS, HUGGING_FACE]),
    read: |f| Ok(Box::new(soft_caps::read(f)?)),
};
