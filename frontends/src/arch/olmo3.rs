//! OLMo 3 (Allen Institute for AI, 2025): OLMo 2 with windows in most layers, whose frequencies are not
//! rescaled.

use super::blocks::QkNorm;
use super::decoder::{Decoder, Defaults, Norms};
use super::entry::Arch;
use super::names::{HUGGING_FACE, Names, POST_NORMS};
use crate::config::common::{ATTENTION, ATTENTION_BIAS, MLP, MODEL, ROTARY, WINDOW, WindowRule};
use crate::config::fields::IDENTITY;
use crate::config::known::Neutral;
use crate::config::rope;

pub(super) const ARCH: Arch = Arch {
    model_type: "olmo3",
    class: "Olmo3ForCausalLM",
    fields: &[IDENTITY, MODEL, ATTENTION, ROTARY, MLP, ATTENTION_BIAS, WINDOW],
    fixed: &[("use_qk_norm", Neutral::On), ("qk_norm", Neutral::On), ("qk_layernorm", Neutral::On)],
    goldens: &["olmo3"],
    names: Names(&[POST_NORMS, HUGGING_FACE]),
    read: |f| {
        let bias = f.flag("attention_bias");
        let defaults = Defaults { eps: 1e-5, window: WindowRule::Most(4096, 4), ..Defaults::LLAMA };
        // One base for both, which files of older versions say once.
        let theta = f.number("rope_theta").unwrap_or(5e5);
        let mut d = Decoder::read_with(f, &defaults, |heads, max| rope::read_two(f, heads.dim, max, [theta; 2]))?;
        d.norms = Norms::After;
        Ok(Box::new(d.with_attention(|_, a| {
            (a.qkv_bias, a.out_bias, a.qk_norm) = (bias, bias, Some(QkNorm::Row));
            a.rotary = Some(usize::from(a.window.is_some()));
        })))
    },
};
