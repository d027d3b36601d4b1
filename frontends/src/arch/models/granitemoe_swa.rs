//! Granite with experts and windows (IBM, 2026), and perhaps an MLP for all tokens.

use crate::arch::blocks::families::granite_experts::{EXPERTS, MULTIPLIERS, NAMES, SHARED, read, with_experts};
use crate::arch::blocks::families::granite_windows::{BASE_OF_EACH, with_windows};
use crate::arch::blocks::prelude::*;

pub(crate) const ARCH: Arch = Arch {
    model_type: "granitemoe_swa",
    class: "GraniteMoeSWAForCausalLM",
    fields: &[
        IDENTITY,
        MODEL,
        ATTENTION,
        ROTARY,
        MLP,
        ATTENTION_BIAS,
        MULTIPLIERS,
        EXPERTS,
        SHARED,
        WINDOW,
        BASE_OF_EACH,
    ],
    fixed: &[],
    goldens: &["granitemoe_swa"],
    names: Names(&[NAMES, HUGGING_FACE]),
    read: |f| Ok(Box::new(with_experts(f, with_windows(f, read(f)?)?)?)),
};
