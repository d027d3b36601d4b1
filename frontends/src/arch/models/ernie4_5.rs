//! ERNIE 4.5, dense (Baidu, 2025): Llama with rotation of neighbours.

use crate::arch::blocks::families::ernie_decoder::{BIASES, dense};
use crate::arch::blocks::prelude::*;

pub(crate) const ARCH: Arch = Arch {
    model_type: "ernie4_5",
    class: "Ernie4_5ForCausalLM",
    fields: &[IDENTITY, MODEL, ATTENTION, ROTARY, MLP, BIASES],
    fixed: &[],
    goldens: &["ernie4_5"],
    names: Names(&[HUGGING_FACE]),
    read: |f| {
        let d = dense(f)?;
        Ok(Box::new(d.with_heads(|_, a, h| h.neighbours = a.heads.dim)))
    },
};
