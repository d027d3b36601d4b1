//! Granite with experts (IBM's Granite 3 of 1B and 3B): Granite with a mixture of experts in every
//! layer, whose weights are a softmax of the chosen logits.

use crate::arch::blocks::families::granite_experts::{EXPERTS, MULTIPLIERS, NAMES, experts, read};
use crate::arch::blocks::prelude::*;

pub(crate) const ARCH: Arch = Arch {
    model_type: "granitemoe",
    class: "GraniteMoeForCausalLM",
    fields: &[IDENTITY, MODEL, ATTENTION, ROTARY, MLP, ATTENTION_BIAS, MULTIPLIERS, EXPERTS],
    fixed: &[],
    goldens: &["granitemoe"],
    names: Names(&[NAMES, HUGGING_FACE]),
    read: |f| {
        let d = read(f)?;
        let experts = experts(f, &d)?;
        Ok(Box::new(d.with_experts(|_| Some(experts))))
    },
};
