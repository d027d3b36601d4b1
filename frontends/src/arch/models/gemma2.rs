//! Gemma 2 (arXiv 2408.00118): Gemma with norms before and after the blocks, windows in every other
//! layer, and soft caps on scores and logits.

use crate::arch::blocks::families::gemma2_decoder::{self, FIXED, OWN};
use crate::arch::blocks::prelude::*;

pub(crate) const ARCH: Arch = Arch {
    model_type: "gemma2",
    class: "Gemma2ForCausalLM",
    fields: &[IDENTITY, MODEL, ATTENTION, ROTARY, ATTENTION_BIAS, WINDOW, OWN],
    fixed: FIXED,
    goldens: &["gemma2"],
    names: Names(&[SANDWICH_NORMS, POST_NORMS, HUGGING_FACE]),
    read: |f| {
        let mut d = gemma2_decoder::read(f)?;
        d.norms = Norms::Both;
        Ok(Box::new(d))
    },
};
