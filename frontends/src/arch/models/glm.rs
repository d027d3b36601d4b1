//! GLM-4 (arXiv 2406.12793, the version of 2024): Llama with rotation of neighbours in half of each
//! head, biases on Q, K and V, gate and up in one matrix.

use crate::arch::blocks::families::glm4_dense::{self, DEFAULTS, FIELDS};
use crate::arch::blocks::prelude::*;

pub(crate) const ARCH: Arch = Arch {
    model_type: "glm",
    class: "GlmForCausalLM",
    fields: FIELDS,
    fixed: &[],
    goldens: &["glm"],
    names: Names(&[HUGGING_FACE]),
    read: |f| Ok(Box::new(glm4_dense::read(f, &DEFAULTS, f.flag_or("attention_bias", true))?)),
};
