//! Granite, dense (arXiv 2405.04324 and IBM's Granite 3): Llama with four multipliers.

use super::decoder::Defaults;
use super::entry::Arch;
use super::granite_experts::{MULTIPLIERS, dense};
use super::names::{HUGGING_FACE, Names};
use crate::config::common::{ATTENTION, ATTENTION_BIAS, MLP, MLP_BIAS, MODEL, ROTARY};
use crate::config::fields::IDENTITY;

pub(super) const ARCH: Arch = Arch {
    model_type: "granite",
    class: "GraniteForCausalLM",
    fields: &[IDENTITY, MODEL, ATTENTION, ROTARY, MLP, ATTENTION_BIAS, MLP_BIAS, MULTIPLIERS],
    fixed: &[],
    goldens: &["granite"],
    names: Names(&[HUGGING_FACE]),
    read: |f| Ok(Box::new(dense(f, &Defaults::LLAMA)?)),
};
