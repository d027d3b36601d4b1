//! EXAONE 4 (arXiv 2507.11407): norms after the blocks and of queries and keys, windows in most
//! layers of the larger ones; layers without rotate nothing there.

use super::blocks::QkNorm;
use super::decoder::{Decoder, Defaults, Norms};
use super::entry::Arch;
use super::exaone::letters;
use super::names::{HUGGING_FACE, Names, POST_NORMS};
use crate::config::common::{ATTENTION, MLP, MODEL, ROTARY, WINDOW, WindowRule};
use crate::config::fields::{Accepts, Field, IDENTITY};

pub(super) const ARCH: Arch = Arch {
    model_type: "exaone4",
    class: "Exaone4ForCausalLM",
    fields: &[IDENTITY, MODEL, ATTENTION, ROTARY, MLP, WINDOW, OWN],
    fixed: &[],
    goldens: &["exaone4", "exaone4_full", "exaone4_letters"],
    names: Names(&[POST_NORMS, HUGGING_FACE]),
    read: |f| {
        let defaults = Defaults {
            vocab: Some(102_400),
            heads: Some(32),
            kv_heads: Some(32),
            eps: 1e-5,
            window: WindowRule::Most(4096, 4),
            ..Defaults::LLAMA
        };
        let window = f.size("sliding_window").or_null(4096);
        let (hybrid, pattern) = (window.is_some(), letters(f, window)?);
        let mut d = Decoder::read(f, &defaults)?;
        let last = d.layers.len().saturating_sub(1);
        d.norms = Norms::After;
        Ok(Box::new(d.with_attention(|i, a| {
            if let Some(pattern) = &pattern {
                a.window = window.filter(|_| i != last && pattern[i % pattern.len()]);
            }
            a.qk_norm = Some(QkNorm::Head);
            a.rotary = (!hybrid || a.window.is_some()).then_some(0);
        })))
    },
};

const OWN: &[Field] = &[Field::new("sliding_window_pattern", Accepts::Any)];
