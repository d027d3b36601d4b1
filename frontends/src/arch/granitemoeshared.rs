//! Granite with experts and an MLP for all tokens beside them (IBM, 2025).

use super::entry::Arch;
use super::experts::{Experts, Shared};
use super::granite_experts::{EXPERTS, NAMES, experts, read};
use super::names::{HUGGING_FACE, Names};
use crate::config::common::{ATTENTION, ATTENTION_BIAS, MLP, MODEL, ROTARY};
use crate::config::fields::{Accepts, Field, IDENTITY};

pub(super) const ARCH: Arch = Arch {
    model_type: "granitemoeshared",
    class: "GraniteMoeSharedForCausalLM",
    fields: &[IDENTITY, MODEL, ATTENTION, ROTARY, MLP, ATTENTION_BIAS, EXPERTS, OWN],
    fixed: &[],
    goldens: &["granitemoeshared"],
    names: Names(&[NAMES, HUGGING_FACE]),
    read: |f| {
        let d = read(f)?;
        let beside = f.count("shared_intermediate_size").unwrap_or(0).min(1 << 20);
        let shared = (beside > 0).then_some(Shared { fused: true, ..Shared::plain(beside) });
        let experts = Experts { shared, ..experts(f, &d)? };
        Ok(Box::new(d.with_experts(|_| Some(experts))))
    },
};

const OWN: &[Field] = &[Field::new("shared_intermediate_size", Accepts::Count)];
