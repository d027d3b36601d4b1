//! GLM-4 (arXiv 2406.12793, the version of 2024): Llama with rotation of neighbours in half of each
//! head, biases on Q, K and V, gate and up in one matrix.

use super::entry::Arch;
use super::half_rotated::{self, DEFAULTS, FIELDS};
use super::names::{HUGGING_FACE, Names};

pub(super) const ARCH: Arch = Arch {
    model_type: "glm",
    class: "GlmForCausalLM",
    fields: FIELDS,
    fixed: &[],
    goldens: &["glm"],
    names: Names(&[HUGGING_FACE]),
    read: |f| Ok(Box::new(half_rotated::read(f, &DEFAULTS, f.flag_or("attention_bias", true))?)),
};
