//! Models of nothing but mixers, each behind a norm: Mamba and Mamba-2.

use crate::arch::blocks::attention::{Norm, norm};
use crate::arch::blocks::embedding_and_head::{embedded, head};
use crate::arch::blocks::entry::Shape;
use crate::arch::blocks::lifter::Lifter;
use crate::arch::blocks::names::{ATTN_NORM, HEAD, NORM, TABLE, Table};
use crate::arch::blocks::recurrent::{SSM_A, SSM_CONV, SSM_D, SSM_IN, SSM_OUT};
use crate::arch::blocks::recurrent_mixer::Mixer;
use crate::arch::blocks::selective_scan::{Mamba1, SSM_STEPS, SSM_X, rank};
use crate::config::ConfigError;
use crate::config::common::{self, ACTIVATIONS, Facts};
use crate::config::fields::{Accepts, Field, Fields};
use crate::config::known::Neutral;
use crate::error::FrontendError;
use llmcc_ir::graph::UnaryOp;

/// What checkpoints call the parts around mixers, and those that all of them have.
pub(crate) const NAMES: Table = &[
    (TABLE, "backbone.embeddings"),
    // As the authors have it.
    (TABLE, "backbone.embedding"),
    (HEAD, "lm_head"),
    (NORM, "backbone.norm_f"),
    (ATTN_NORM, "backbone.layers.{}.norm"),
    (SSM_IN, "backbone.layers.{}.mixer.in_proj"),
    (SSM_CONV, "backbone.layers.{}.mixer.conv1d"),
    (SSM_X, "backbone.layers.{}.mixer.x_proj"),
    (SSM_STEPS, "backbone.layers.{}.mixer.dt_proj"),
    (SSM_A, "backbone.layers.{}.mixer.A_log"),
    (SSM_D, "backbone.layers.{}.mixer.D"),
    (SSM_OUT, "backbone.layers.{}.mixer.out_proj"),
];

/// Fields about training, or about how the same is computed.
pub(crate) const FIXED: &[(&str, Neutral)] = &[
    ("time_step_min", Neutral::Any),
    ("time_step_max", Neutral::Any),
    ("time_step_floor", Neutral::Any),
    ("time_step_scale", Neutral::Any),
    ("time_step_init_scheme", Neutral::Any),
    ("use_mambapy", Neutral::Any),
    ("use_falcon_mambapy", Neutral::Any),
    ("use_associative_scan", Neutral::Any),
];

/// The activation of a mixer.
pub(crate) const ACT: &[Field] = &[Field::new("hidden_act", Accepts::OneOf(ACTIVATIONS))];

/// Nothing in the model bounds a sequence; this only says how far block tables may reach.
pub(crate) const LONGEST: usize = 1 << 20;

/// A model of mixers.
#[derive(Debug)]
pub(crate) struct Mixers {
    /// What is known of any model.
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
        let conv = f.size("conv_kernel").or(4);
        if conv < 2 {
            return Err(f.invalid("conv_kernel", &conv, "at least 2".into()));
        }
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
