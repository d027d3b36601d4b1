//! The text model of Granite 4 Vision: Granite, to whose layers image features are added.

use crate::arch::blocks::families::granite_experts::{MULTIPLIERS, dense};
use crate::arch::blocks::prelude::*;

pub(crate) const ARCH: Arch = Arch {
    model_type: "granite4_vision_text",
    class: "Granite4VisionForConditionalGeneration",
    fields: &[IDENTITY, MODEL, ATTENTION, ROTARY, MLP, ATTENTION_BIAS, MLP_BIAS, MULTIPLIERS],
    fixed: &[],
    goldens: &["granite4_vision"],
    names: Names(&[HUGGING_FACE]),
    read: |f| Ok(Box::new(dense(f, &Defaults::LLAMA)?)),
};
