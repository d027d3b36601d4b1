//! Command R7B and Command A (Cohere 2, arXiv 2504.00698): Cohere with windows in most layers; the
//! others see everything and rotate nothing.

use crate::arch::blocks::decoder::Defaults;
use crate::arch::blocks::entry::Arch;
use crate::arch::blocks::families::command_r::{DEFAULTS, LOGIT_SCALE, read};
use crate::arch::blocks::names::{HUGGING_FACE, Names};
use crate::config::common::{ATTENTION, ATTENTION_BIAS, LAYER_NORM_MLP, MODEL, ROTARY, WINDOW, WindowRule};
use crate::config::fields::{Accepts, Field, IDENTITY};
use crate::config::known::Neutral;

pub(crate) const ARCH: Arch = Arch {
    model_type: "cohere2",
    class: "Cohere2ForCausalLM",
    fields: &[IDENTITY, MODEL, ATTENTION, LAYER_NORM_MLP, ROTARY, ATTENTION_BIAS, LOGIT_SCALE, WINDOW, OWN],
    // How the authors' program calls what the class does.
    fixed: &[("position_embedding_type", Neutral::Words(&["rope_gptj"]))],
    goldens: &["cohere2"],
    names: Names(&[HUGGING_FACE]),
    read: |f| {
        let d = read(f, &Defaults { window: WindowRule::Most(4096, 4), ..DEFAULTS })?;
        Ok(Box::new(d.with_attention(|_, a| a.rotary = a.window.map(|_| 0))))
    },
};

const OWN: &[Field] = &[Field::new("sliding_window_pattern", Accepts::Size(4096)).or(&["_sliding_window_pattern"])];
