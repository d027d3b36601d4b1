//! Granite, dense (arXiv 2405.04324 and IBM's Granite 3): Llama with four multipliers.

use crate::arch::blocks::families::granite_experts::{MULTIPLIERS, dense};
use crate::arch::blocks::prelude::*;

pub(crate) const ARCH: Arch = Arch {
    model_type: "granite",
    class: "GraniteForCausalLM",
    fields: &[IDENTITY, MODEL, ATTENTION, ROTARY, MLP, ATTENTION_BIAS, MLP_BIAS, MULTIPLIERS],
    fixed: &[],
    goldens: &["granite"],
    names: Names(&[HUGGING_FACE]),
    read: |f| Ok(Box::new(dense(f, &Defaults::LLAMA)?)),
};
