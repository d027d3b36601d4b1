//! EXAONE 4 (arXiv 2507.11407): norms after the blocks and of queries and keys, windows in most
//! layers of the larger ones; layers without rotate nothing there.

use crate::arch::blocks::families::exaone;
use crate::arch::blocks::prelude::*;

pub(crate) const ARCH: Arch = Arch {
    model_type: "exaone4",
    class: "Exaone4ForCausalLM",
    fields: &[IDENTITY, MODEL, ATTENTION, ROTARY, MLP, WINDOW, fields! { sliding_window_pattern: Accepts::Any }],
    fixed: &[],
    goldens: &["exaone4", "exaone4_full", "exaone4_letters"],
    names: Names(&[POST_NORMS, HUGGING_FACE]),
    read: |f| {
        let mut d = exaone::read(f)?;
        d.norms = Norms::After;
        Ok(Box::new(d))
    },
};
