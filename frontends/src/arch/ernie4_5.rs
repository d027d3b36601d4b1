//! ERNIE 4.5, dense (Baidu, 2025): Llama with rotation of neighbours.

use super::entry::Arch;
use super::ernie_decoder::{BIASES, dense};
use super::names::{HUGGING_FACE, Names};
use crate::config::common::{ATTENTION, MLP, MODEL, ROTARY};
use crate::config::fields::IDENTITY;

pub(super) const ARCH: Arch = Arch {
    model_type: "ernie4_5",
    class: "Ernie4_5ForCausalLM",
    fields: &[IDENTITY, MODEL, ATTENTION, ROTARY, MLP, BIASES],
    fixed: &[],
    goldens: &["ernie4_5"],
    names: Names(&[HUGGING_FACE]),
    read: |f| {
        let d = dense(f)?;
        Ok(Box::new(d.with_attention(|_, a| a.neighbours = a.heads.dim)))
    },
};
