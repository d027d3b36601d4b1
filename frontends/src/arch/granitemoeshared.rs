//! Granite with experts and an MLP for all tokens beside them (IBM, 2025).

use super::entry::Arch;
use super::granite_experts::{EXPERTS, MULTIPLIERS, NAMES, SHARED, read, with_experts};
use super::names::{HUGGING_FACE, Names};
use crate::config::common::{ATTENTION, ATTENTION_BIAS, MLP, MODEL, ROTARY};
use crate::config::fields::IDENTITY;

pub(super) const ARCH: Arch = Arch {
    model_type: "granitemoeshared",
    class: "GraniteMoeSharedForCausalLM",
    fields: &[IDENTITY, MODEL, ATTENTION, ROTARY, MLP, ATTENTION_BIAS, MULTIPLIERS, EXPERTS, SHARED],
    fixed: &[],
    goldens: &["granitemoeshared"],
    names: Names(&[NAMES, HUGGING_FACE]),
    read: |f| Ok(Box::new(with_experts(f, read(f)?)?)),
};
