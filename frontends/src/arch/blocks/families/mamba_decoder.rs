//! Models of nothing but mixers, each behind a norm: Mamba and Mamba-2.

use crate::arch::blocks::attention::{Norm, norm};
use crate::arch::blocks::embedding_and_head::{embedded, head};
use crate::arch::blocks::entry::Shape;
use crate::arch::blocks::lifter::Lifter;
use crate::arch::blocks::names::{ATTN_NORM, HEAD, NORM, TABLE, Table, names};
use crate::arch::blocks::recurrent::{SSM_A, SSM_CONV, SSM_D, SSM_IN, SSM_OUT};
use crate::arch::blocks::recurrent_mixer::Mixer;
use crate::arch::blocks::selective_scan::{Mamba1, SSM_STEPS, SSM_X, rank};
use crate::config::ConfigError;
use crate::config::common::{self, Facts};
use crate::config::dictionary::fields;
use crate::config::fields::{Field, Fields};
use crate::config::known::{Neutral, fixed};
use crate::error::FrontendError;
use llmcc_ir::graph::UnaryOp;

/// Names of the parts around mixers, and of parts common to all mixers.
pub(crate) const NAMES: Table = names! {
    "backbone." {
        TABLE => "embeddings",
        // As the authors have it.
        TABLE => "embedding", NORM => "norm_f",
    }
    "" { HEAD => "lm_head" }
    "backbone.layers.{}." {
        ATTN_NORM => "norm", SSM_IN => "mixer.in_proj", SSM_CONV => "mixer.conv1d", SSM_X => "mixer.x_proj",
        SSM_STEPS => "mixer.dt_proj", SSM_A => "mixer.A_log", SSM_D => "mixer.D", SSM_OUT => "mixer.out_proj",
    }
};

/// Fields about training, or about how the same is computed.
pub(crate) const FIXED: &[(&str, Neutral)] = fixed! {
    Any => time_step_min time_step_max time_step_floor time_step_scale time_step_init_scheme use_mambapy
        use_falcon_mambapy use_associative_scan;
};

/// The activation of a mixer.
pub(crate) const ACT: &[Field] = fields! { hidden_act };

/// Nothing in the model bounds a sequence; this only says how far block tables may reach.
pub(crate) const LONGEST: usize = 1 << 20;

/// A model of mixers.
#[derive(Debug)]
pub(crate) struct Mixers {
    /// Facts common to all models.
    pub facts: Facts,
    /// All of them.
    pub mixer: Mixer,
    /// The norms before them.
    pub norm: Norm,
}

impl Mixers {
    /// Reads [`MIXERS`](crate::arch::blocks::selective_scan::MIXERS), [`ACT`] and [`common::MODEL`]; `norms` are those inside a mixer.
    pub(crate) fn selective(f: &Fields, norms: Option<Norm>) -> Result<Mixers, ConfigError> {
        let facts = Facts::read(f, Some(50_280), LONGEST, true)?;
        let conv = common::conv_width(f, "conv_kernel", 4)?;
        let mixer = Mamba1 {
            inner: f.size("intermediate_size").or(f.size("expand").or(2).saturating_mul(facts.hidden)),
            state: f.size("state_size").or(16),
            rank: rank(f, "time_step_rank", facts.hidden)?,
            conv,
            bias: f.flag("use_bias"),
            conv_bias: f.flag_or("use_conv_bias", true),
            act: common::activation(f, "hidden_act", UnaryOp::Silu),
            norms,
            heads: None,
        };
        let norm = Norm::rms(common::eps(f, "layer_norm_epsilon", 1e-5)?);
        Ok(Mixers { facts, mixer: Mixer::Mamba1(mixer), norm })
    }
}

impl Shape for Mixers {
    fn facts(&self) -> &Facts {
        &self.facts
    }

    fn lift(&self, l: &mut Lifter) -> Result<(), FrontendError> {
        let mut f = l.func("embed");
        let x = embedded(&mut f);
        let mut x = f.call(&[x])?.pop().unwrap_or_default();
        for i in 0..self.facts.layers {
            let mut f = l.layer("layer", i);
            let residual = f.carried("x", &x);
            let h = norm(&mut f, ATTN_NORM, self.norm, residual, self.facts.hidden);
            let y = self.mixer.mix(&mut f, self.norm, None, h);
            let y = f.add(residual, y);
            x = f.call(&[y])?.pop().unwrap_or_default();
        }
        head(l, self.norm, &x)
    }
}
