//! Command R (Cohere): attention and MLP side by side behind one LayerNorm without bias, rotation of
//! neighbours, scaled logits.
//!
//! Norms of queries and keys, which have gains for each head, are refused.

use super::command::{DEFAULTS, LOGIT_SCALE, read};
use super::decoder::Defaults;
use super::entry::Arch;
use super::names::{HUGGING_FACE, Names};
use crate::config::common::{ATTENTION, ATTENTION_BIAS, LAYER_NORM_MLP, MODEL, ROTARY};
use crate::config::fields::IDENTITY;

pub(super) const ARCH: Arch = Arch {
    model_type: "cohere",
    class: "CohereForCausalLM",
    fields: &[IDENTITY, MODEL, ATTENTION, LAYER_NORM_MLP, ROTARY, ATTENTION_BIAS, LOGIT_SCALE],
    fixed: &[],
    goldens: &["cohere"],
    names: Names(&[HUGGING_FACE]),
    read: |f| Ok(Box::new(read(f, &Defaults { theta: 5e5, ..DEFAULTS })?)),
};
