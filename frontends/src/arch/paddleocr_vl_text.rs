//! PaddleOCR-VL (arXiv 2510.14528), its text model: ERNIE 4.5 that rotates halves. Positions of texts are
//! the same in all three sections of its rotation.

use super::decoder::{Decoder, Defaults};
use super::entry::Arch;
use super::names::{HUGGING_FACE, Names};
use crate::config::common::{ATTENTION, MLP, MODEL, ROTARY};
use crate::config::fields::{Accepts, Field, IDENTITY};
use crate::config::known::Neutral;

pub(super) const ARCH: Arch = Arch {
    model_type: "paddleocr_vl_text",
    class: "PaddleOCRVLForConditionalGeneration",
    fields: &[IDENTITY, MODEL, ATTENTION, ROTARY, MLP, OWN],
    // Halves are rotated, not neighbours; the positions of images are of three kinds.
    fixed: &[("rope_is_neox_style", Neutral::On)],
    goldens: &["paddleocr_vl_text"],
    names: Names(&[HUGGING_FACE]),
    read: |f| {
        let defaults = Defaults {
            vocab: Some(103_424),
            heads: Some(16),
            kv_heads: Some(2),
            head_dim: Some(128),
            max_position: 131_072,
            tied: true,
            eps: 1e-5,
            theta: 5e5,
            ..Defaults::LLAMA
        };
        let bias = f.flag("use_bias");
        let d = Decoder::read(f, &defaults)?;
        let d = d.with_attention(|_, a| (a.qkv_bias, a.out_bias) = (bias, bias));
        Ok(Box::new(d.with_mlp(|m| m.bias = bias)))
    },
};

const OWN: &[Field] = &[Field::new("use_bias", Accepts::Flag)];
