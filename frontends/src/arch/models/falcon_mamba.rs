//! Falcon Mamba (arXiv 2410.05355): Mamba with norms, without gains, of the time steps and of a
//! state's input and output vectors.

use crate::arch::blocks::families::mamba_decoder::{ACT, FIXED, Mixers, NAMES};
use crate::arch::blocks::prelude::*;
use crate::arch::blocks::selective_scan::MIXERS;

pub(crate) const ARCH: Arch = Arch {
    model_type: "falcon_mamba",
    class: "FalconMambaForCausalLM",
    fields: &[IDENTITY, MODEL, ACT, MIXERS, fields! { mixer_rms_eps }],
    fixed: FIXED,
    goldens: &["falcon_mamba"],
    names: Names(&[NAMES]),
    read: |f| {
        let norm = Norm { gain: false, ..Norm::rms(common::eps(f, "mixer_rms_eps", 1e-6)?) };
        Ok(Box::new(Mixers::selective(f, Some(norm))?))
    },
};
