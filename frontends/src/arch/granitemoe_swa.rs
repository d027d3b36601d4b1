//! Granite with experts and windows (IBM, 2026), and perhaps an MLP for all tokens.

use super::entry::Arch;
use super::granite_experts::{EXPERTS, MULTIPLIERS, NAMES, SHARED, read, with_experts};
use super::granite_windows::{BASE_OF_EACH, with_windows};
use super::names::{HUGGING_FACE, Names};
use crate::config::common::{ATTENTION, ATTENTION_BIAS, MLP, MODEL, ROTARY, WINDOW};
use crate::config::fields::IDENTITY;

pub(super) const ARCH: Arch = Arch {
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
