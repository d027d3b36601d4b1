//! EXAONE 4 (arXiv 2507.11407): norms after the blocks and of queries and keys, windows in most layers
//! of the larger ones; layers without rotate nothing there.

use super::blocks::QkNorm;
use super::decoder::{Decoder, Defaults, Norms};
use super::entry::Arch;
use super::names::{HUGGING_FACE, Names, POST_NORMS};
use crate::config::common::{ATTENTION, MLP, MODEL, ROTARY, WINDOW, WindowRule};
use crate::config::fields::{Accepts, Field, IDENTITY};

pub(super) const ARCH: Arch = Arch {
    model_type: "exaone4",
    class: "Exaone4ForCausalLM",
    fields: &[IDENTITY, MODEL, ATTENTION, ROTARY, MLP, WINDOW, OWN],
    fixed: &[],
    goldens: &["exaone4", "exaone4_full"],
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
        let hybrid = f.size("sliding_window").or_null(4096).is_some();
        let mut d = Decoder::read(f, &defaults)?;
        d.norms = Norms::After;
        Ok(Box::new(d.with_attention(|_, a| {
            a.qk_norm = Some(QkNorm::Head);
            a.rotary = (!hybrid || a.window.is_some()).then_some(0);
        })))
    },
};

const OWN: &[Field] = &[Field::new("sliding_window_pattern", Accepts::Size(4096))];
