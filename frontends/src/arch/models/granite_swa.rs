//! Granite with windows (IBM, 2026): sinks in all layers, windows in most, and a rotation of its own, or none, in each.

use crate::arch::blocks::families::granite_experts::{MULTIPLIERS, dense};
use crate::arch::blocks::families::granite_windows::{BASE_OF_EACH, with_windows};
use crate::arch::blocks::prelude::*;

pub(crate) const ARCH: Arch = Arch {
    model_type: "granite_swa",
    class: "GraniteSWAForCausalLM",
    fields: &[IDENTITY, MODEL, ATTENTION, ROTARY, MLP, ATTENTION_BIAS, MLP_BIAS, MULTIPLIERS, WINDOW, BASE_OF_EACH],
    fixed: &[],
    goldens: &["granite_swa", "granite_swa_bases"],
    names: Names(&[HUGGING_FACE]),
    read: |f| Ok(Box::new(with_windows(f, dense(f, &DEFAULTS)?)?)),
};

const DEFAULTS: Defaults = defaults! {
    vocab: 100_352, heads: 20, kv_heads: 4, max_position: 8192, eps: 1e-5, tied: true, ..LLAMA
};
