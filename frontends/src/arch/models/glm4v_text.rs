//! GLM-4.1V (arXiv 2507.01006), its text model: GLM-4 of 2025. Positions of texts are the same in all
//! three sections of its rotation.

use crate::arch::blocks::families::glm4_dense::{self, DEFAULTS};
use crate::arch::blocks::prelude::*;

pub(crate) const ARCH: Arch = Arch {
    model_type: "glm4v_text",
    class: "Glm4vForConditionalGeneration",
    fields: &[IDENTITY, MODEL, ATTENTION, MLP, PARTIAL_ROTARY],
    fixed: &[("attention_bias", Neutral::On)],
    goldens: &["glm4v_text"],
    names: Names(&[NAMES, HUGGING_FACE]),
    read: |f| {
        let defaults =
            Defaults { head_dim: None, max_position: 32_768, eps: ("rms_norm_eps", 1e-5), partial: 1.0, ..DEFAULTS };
        let mut d = glm4_dense::read(f, &defaults, true)?;
        d.norms = Norms::Both;
        Ok(Box::new(d))
    },
};

const NAMES: Table = names! {
    "model.layers.{}." { ATTN_POST_NORM => "post_self_attn_layernorm", MLP_POST_NORM => "post_mlp_layernorm" }
};
