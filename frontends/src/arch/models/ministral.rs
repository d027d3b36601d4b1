//! Ministral (Mistral AI, 2024): Mistral with windows in some layers.

use crate::arch::blocks::decoder::{Decoder, Defaults};
use crate::arch::blocks::entry::Arch;
use crate::arch::blocks::names::{HUGGING_FACE, Names};
use crate::config::common::{ATTENTION, MLP, MODEL, ROTARY, WINDOW, WindowRule};
use crate::config::fields::IDENTITY;
use crate::config::known::Neutral;

pub(crate) const ARCH: Arch = Arch {
    model_type: "ministral",
    class: "MinistralForCausalLM",
    fields: &[IDENTITY, MODEL, ATTENTION, ROTARY, MLP, WINDOW],
    fixed: &[("use_sliding_window", Neutral::WindowsOn), ("max_window_layers", Neutral::WindowsOn)],
    goldens: &["ministral"],
    names: Names(&[HUGGING_FACE]),
    read: |f| {
        // All of them where nothing else is said.
        let window = WindowRule::Most(4096, usize::MAX);
        let defaults = Defaults {
            vocab: Some(32_000),
            heads: Some(32),
            kv_heads: Some(8),
            max_position: 131_072,
            window,
            ..Defaults::LLAMA
        };
        Ok(Box::new(Decoder::read(f, &defaults)?))
    },
};
