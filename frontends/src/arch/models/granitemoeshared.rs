//! Granite with experts and an MLP for all tokens beside them (IBM, 2025).

use crate::arch::blocks::families::granite_experts::{EXPERTS, MULTIPLIERS, NAMES, SHARED, read, with_experts};
use crate::arch::blocks::prelude::*;

pub(crate) const ARCH: Arch = Arch {
    model_type: "granitemoeshared",
    class: "GraniteMoeSharedForCausalLM",
    fields: &[IDENTITY, MODEL, ATTENTION, ROTARY, MLP, ATTENTION_BIAS, MULTIPLIERS, EXPERTS, SHARED],
    fixed: &[],
    goldens: &["granitemoeshared"],
    names: Names(&[NAMES, HUGGING_FACE]),
    read: |f| Ok(Box::new(with_experts(f, read(f)?)?)),
};
