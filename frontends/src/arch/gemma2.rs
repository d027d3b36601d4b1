//! Gemma 2 (arXiv 2408.00118): Gemma with norms before and after the blocks, windows in every other
//! layer, and soft caps on scores and logits.

use super::decoder::Norms;
use super::entry::Arch;
use super::names::{HUGGING_FACE, Names, POST_NORMS, SANDWICH_NORMS};
use super::soft_caps::{self, FIXED, OWN};
use crate::config::common::{ATTENTION, ATTENTION_BIAS, MODEL, ROTARY, WINDOW};
use crate::config::fields::IDENTITY;

pub(super) const ARCH: Arch = Arch {
    model_type: "gemma2",
    class: "Gemma2ForCausalLM",
    fields: &[IDENTITY, MODEL, ATTENTION, ROTARY, ATTENTION_BIAS, WINDOW, OWN],
    fixed: FIXED,
    goldens: &["gemma2"],
    names: Names(&[SANDWICH_NORMS, POST_NORMS, HUGGING_FACE]),
    read: |f| {
        let mut d = soft_caps::read(f)?;
        d.norms = Norms::Both;
        Ok(Box::new(d))
    },
};
