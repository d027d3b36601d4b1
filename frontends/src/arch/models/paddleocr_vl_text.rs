//! PaddleOCR-VL (arXiv 2510.14528), its text model: ERNIE 4.5 that rotates halves. Positions of texts are
//! the same in all three sections of its rotation.

use crate::arch::blocks::families::ernie_decoder::{BIASES, dense};
use crate::arch::blocks::prelude::*;

pub(crate) const ARCH: Arch = Arch {
    model_type: "paddleocr_vl_text",
    class: "PaddleOCRVLForConditionalGeneration",
    fields: &[IDENTITY, MODEL, ATTENTION, ROTARY, MLP, BIASES],
    // Halves are rotated, not neighbours; the positions of images are of three kinds.
    fixed: &[("rope_is_neox_style", Neutral::On)],
    goldens: &["paddleocr_vl_text"],
    names: Names(&[HUGGING_FACE]),
    read: |f| Ok(Box::new(dense(f)?)),
};
