//! Falcon Mamba (arXiv 2410.05355): Mamba with norms, without gains, of the time steps and of what
//! is written to a state and read from it.

use crate::arch::blocks::attention::Norm;
use crate::arch::blocks::entry::Arch;
use crate::arch::blocks::families::mamba_decoder::{ACT, FIXED, Mixers, NAMES};
use crate::arch::blocks::names::Names;
use crate::arch::blocks::selective_scan::MIXERS;
use crate::config::common::{self, MODEL};
use crate::config::fields::{Accepts, Field, IDENTITY};

pub(crate) const ARCH: Arch = Arch {
    model_type: "falcon_mamba",
    class: "FalconMambaForCausalLM",
    fields: &[IDENTITY, MODEL, ACT, MIXERS, OWN],
    fixed: FIXED,
    goldens: &["falcon_mamba"],
    names: Names(&[NAMES]),
    read: |f| {
        let norm = Norm { gain: false, ..Norm::rms(common::eps(f, "mixer_rms_eps", 1e-6)?) };
        Ok(Box::new(Mixers::selective(f, Some(norm))?))
    },
};

const OWN: &[Field] = &[Field::new("mixer_rms_eps", Accepts::Number)];
