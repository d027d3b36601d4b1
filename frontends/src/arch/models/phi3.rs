//! Phi-3 and the Phi-4 of its shape (arXiv 2404.14219, 2412.08905): Mistral with Q, K and V in one
//! matrix, gate and up in one, and rotation of a part of each head.
//!
//! Longrope's frequencies are the long ones for all positions where sequences may be longer than the context of
//! pretraining, else the short ones. (Transformers decides by the sequence at hand, and leaves keys in its cache as
//! they are when one outgrows that context.)

use crate::arch::blocks::families::phi_decoder::{ROTARY, decoder};
use crate::arch::blocks::prelude::*;

pub(crate) const ARCH: Arch = Arch {
    model_type: "phi3",
    class: "Phi3ForCausalLM",
    fields: &[IDENTITY, MODEL, ATTENTION, MLP, WINDOW, ROTARY, CAUSAL],
    fixed: &[],
    goldens: &["phi3", "phi3-longrope", "phi3-longrope-long"],
    names: Names(&[HUGGING_FACE]),
    read: |f| {
        let d = decoder(f, &defaults! { max_position: 4096, ..LLAMA })?;
        Ok(Box::new(d.both_ways_if_said(f)))
    },
};
