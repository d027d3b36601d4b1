//! Mamba-2 (arXiv 2405.21060): nothing but its mixers, each behind a norm.

use super::blocks::{Norm, norm};
use super::entry::{Arch, Shape};
use super::lifter::Lifter;
use super::names::{ATTN_NORM, HEAD, Kind, NORM, Names, TABLE, Table};
use super::recurrent::{Mamba2, ReadNorm, SSM_A, SSM_CONV, SSM_D, SSM_DT, SSM_IN, SSM_NORM, SSM_OUT, mamba2, steps};
use crate::config::ConfigError;
use crate::config::common::{self, ACTIVATIONS, Facts, MODEL, WIDTH};
use crate::config::fields::{Accepts, Field, Fields, IDENTITY};
use crate::config::known::Neutral;
use crate::error::FrontendError;
use llmcc_ir::graph::{Input, Op, UnaryOp};

pub(super) const ARCH: Arch = Arch {
    model_type: "mamba2",
    class: "Mamba2ForCausalLM",
    fields: &[IDENTITY, MODEL, OWN],
    // Heads say how wide the mixers are; the rest is about training, or how it is computed.
    fixed: &[
        ("expand", Neutral::Any),
        ("chunk_size", Neutral::Any),
        ("time_step_rank", Neutral::Any),
        ("time_step_min", Neutral::Any),
        ("time_step_max", Neutral::Any),
        ("time_step_floor", Neutral::Any),
    ],
    goldens: &["mamba2"],
    names: Names(&[NAMES]),
    read: |f| Ok(Box::new(Model::read(f)?)),
};

const OWN: &[Field] = &[
    Field::new("num_heads", Accepts::Size(1 << 14)),
    Field::new("head_dim", Accepts::Size(1 << 14)),
    Field::new("state_size", WIDTH),
    Field::new("n_groups", Accepts::Size(1 << 14)),
    Field::new("conv_kernel", Accepts::Size(64)),
    Field::new("use_bias", Accepts::Flag),
    Field::new("use_conv_bias", Accepts::Flag),
    Field::new("hidden_act", Accepts::OneOf(ACTIVATIONS)),
    Field::new("layer_norm_epsilon", Accepts::Number),
    Field::new("time_step_limit", Accepts::Any),
];

const NAMES: Table = &[
    (TABLE, "backbone.embeddings"),
    (HEAD, "lm_head"),
    (NORM, "backbone.norm_f"),
    (ATTN_NORM, "backbone.layers.{}.norm"),
    (SSM_IN, "backbone.layers.{}.mixer.in_proj"),
    (SSM_CONV, "backbone.layers.{}.mixer.conv1d"),
    (SSM_DT, "backbone.layers.{}.mixer.dt_bias"),
    (SSM_A, "backbone.layers.{}.mixer.A_log"),
    (SSM_D, "backbone.layers.{}.mixer.D"),
    (SSM_NORM, "backbone.layers.{}.mixer.norm"),
    (SSM_OUT, "backbone.layers.{}.mixer.out_proj"),
];

/// Nothing in the model bounds a sequence; this only says how far block tables may reach.
const LONGEST: usize = 1 << 20;

#[derive(Debug)]
struct Model {
    facts: Facts,
    mixer: Mamba2,
    norm: Norm,
}

impl Model {
    fn read(f: &Fields) -> Result<Model, ConfigError> {
        let facts = Facts::read(f, Some(32_768), LONGEST, false)?;
        let size = |name: &str, default: usize| f.size(name).or(default);
        let mixer = Mamba2 {
            heads: size("num_heads", 128),
            head_dim: size("head_dim", 64),
            state: size("state_size", 128),
            groups: size("n_groups", 8),
            conv: size("conv_kernel", 4),
            bias: f.flag("use_bias"),
            out_bias: f.flag("use_bias"),
            conv_bias: f.flag_or("use_conv_bias", true),
            act: common::activation(f, "hidden_act", UnaryOp::Silu),
            steps: steps(f)?,
            norm: ReadNorm::Gated,
            parts: None,
            scale: None,
        };
        if !mixer.heads.is_multiple_of(mixer.groups) {
            let help = format!("this architecture has groups that divide its {} heads", mixer.heads);
            return Err(f.unsupported("n_groups", mixer.groups.to_string(), help));
        }
        if mixer.conv < 2 {
            return Err(f.invalid("conv_kernel", &mixer.conv, "at least 2".into()));
        }
        Ok(Model { facts, mixer, norm: Norm::rms(common::eps(f, "layer_norm_epsilon", 1e-5)?) })
    }
}

impl Shape for Model {
    fn facts(&self) -> &Facts {
        &self.facts
    }

    fn lift(&self, l: &mut Lifter) -> Result<(), FrontendError> {
        let (vocab, hidden) = (self.facts.vocab, self.facts.hidden);
        let mut f = l.func("embed");
        let shape = [vocab, hidden];
        let table = if self.facts.tied { f.tied_table(shape) } else { f.weight(TABLE, Kind::Table, &shape) };
        let tokens = f.input(Input::Tokens);
        let x = f.op(Op::Embed, &[table, tokens]);
        let mut x = f.call(&[x])?.pop().unwrap_or_default();
        for i in 0..self.facts.layers {
            let mut f = l.layer("layer", i);
            let residual = f.carried("x", &x);
            let h = norm(&mut f, ATTN_NORM, self.norm, residual, hidden);
            let y = mamba2(&mut f, &self.mixer, self.norm, h);
            let y = f.add(residual, y);
            x = f.call(&[y])?.pop().unwrap_or_default();
        }
        let mut f = l.func("head");
        let (x, rows) = (f.carried("x", &x), f.input(Input::OutRows));
        let x = f.op(Op::GatherRows, &[x, rows]);
        let x = norm(&mut f, NORM, self.norm, x, hidden);
        let table = if self.facts.tied { f.tied_table(shape) } else { f.matrix(HEAD, shape) };
        let logits = f.matmul(x, table);
        f.call(&[logits])?;
        Ok(())
    }
}
