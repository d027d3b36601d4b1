//! EXAONE 4 (arXiv 2507.11407): norms after the blocks and of queries and keys, windows in most
//! layers of the larger ones; layers without rotate nothing there.

use super::decoder::Norms;
use super::entry::Arch;
use super::exaone;
use super::names::{HUGGING_FACE, Names, POST_NORMS};
use crate::config::common::{ATTENTION, MLP, MODEL, ROTARY, WINDOW};
use crate::config::fields::{Accepts, Field, IDENTITY};

pub(super) const ARCH: Arch = Arch {
    model_type: "exaone4",
    class: "Exaone4ForCausalLM",
    fields: &[IDENTITY, MODEL, ATTENTION, ROTARY, MLP, WINDOW, OWN],
    fixed: &[],
    goldens: &["exaone4", "exaone4_full", "exaone4_letters"],
    names: Names(&[POST_NORMS, HUGGING_FACE]),
    read: |f| {
        let mut d = exaone::read(f)?;
        d.norms = Norms::After;
        Ok(Box::new(d))
    },
};

const OWN: &[Field] = &[Field::new("sliding_window_pattern", Accepts::Any)];
