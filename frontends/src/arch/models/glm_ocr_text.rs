//! GLM-OCR (Z.ai, 2026), its text model: that of GLM-4.1V without biases, whose heads turn as a whole.
//!
//! The layers after the last, which predict further tokens, are left out.

use crate::arch::blocks::families::glm4_dense::{self, DEFAULTS};
use crate::arch::blocks::prelude::*;

pub(crate) const ARCH: Arch = Arch {
    model_type: "glm_ocr_text",
    class: "GlmOcrForConditionalGeneration",
    fields: &[IDENTITY, MODEL, ATTENTION, MLP, PARTIAL_ROTARY],
    fixed: &[],
    goldens: &["glm_ocr_text"],
    names: Names(&[NAMES, HUGGING_FACE]),
    read: |f| {
        let defaults = Defaults {
            vocab: Some(59_392),
            heads: Some(16),
            kv_heads: Some(8),
            head_dim: None,
            eps: ("rms_norm_eps", 1e-5),
            partial: 1.0,
            ..DEFAULTS
        };
        let mut d = glm4_dense::read(f, &defaults, false)?;
        d.norms = Norms::Both;
        Ok(Box::new(d))
    },
};

const NAMES: Table = names! {
    "model.layers.{}." { ATTN_POST_NORM => "post_self_attn_layernorm", MLP_POST_NORM => "post_mlp_layernorm" }
};
