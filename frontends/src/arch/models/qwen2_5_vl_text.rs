//! Qwen2.5-VL (arXiv 2502.13923), its text model: that of Qwen2-VL.

use crate::arch::blocks::prelude::*;
use crate::arch::models::qwen2_vl_text;

pub(crate) const ARCH: Arch =
    Arch { model_type: "qwen2_5_vl_text", class: "Qwen2_5_VLForConditionalGeneration", ..qwen2_vl_text::ARCH };
