//! GLM-4 (arXiv 2406.12793, the version of 2025): norms before and after the blocks, rotation of
//! neighbours in half of each head, gate and up in one matrix.

use crate::arch::blocks::families::glm4_dense::{self, DEFAULTS, FIELDS};
use crate::arch::blocks::prelude::*;

pub(crate) const ARCH: Arch = Arch {
    model_type: "glm4",
    class: "Glm4ForCausalLM",
    fields: FIELDS,
    fixed: &[],
    goldens: &["glm4"],
    names: Names(&[NAMES, HUGGING_FACE]),
    read: |f| {
        let mut d = glm4_dense::read(f, &DEFAULTS, f.flag_or("attention_bias", true))?;
        d.norms = Norms::Both;
        Ok(Box::new(d))
    },
};

const NAMES: Table = names! {
    "model.layers.{}." { ATTN_POST_NORM => "post_self_attn_layernorm", MLP_POST_NORM => "post_mlp_layernorm" }
};
