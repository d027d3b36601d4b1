//! Command R7B and Command A (Cohere 2, arXiv 2504.00698): Cohere with windows in most layers; the
//! others see everything and rotate nothing.

use crate::arch::blocks::families::command_r::{DEFAULTS, LOGIT_SCALE, read};
use crate::arch::blocks::prelude::*;

pub(crate) const ARCH: Arch = Arch {
    model_type: "cohere2",
    class: "Cohere2ForCausalLM",
    fields: &[IDENTITY, MODEL, ATTENTION, LAYER_NORM_MLP, ROTARY, ATTENTION_BIAS, LOGIT_SCALE, WINDOW, OWN],
    // The authors' program has this name for the class's behaviour.
    fixed: &[("position_embedding_type", Neutral::Words(&["rope_gptj"]))],
    goldens: &["cohere2"],
    names: Names(&[HUGGING_FACE]),
    read: |f| {
        let d = read(f, &defaults! { window: Most(4096, 4), ..DEFAULTS })?;
        Ok(Box::new(d.with_attention(|_, a| a.rotary = a.window.map(|_| 0))))
    },
};

const OWN: &[Field] = fields! { sliding_window_pattern | _sliding_window_pattern };
