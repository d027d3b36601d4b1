//! Mamba-2 (arXiv 2405.21060): nothing but its mixers, each behind a norm.

use crate::arch::blocks::attention::Norm;
use crate::arch::blocks::entry::Arch;
use crate::arch::blocks::families::mamba_decoder::{self, LONGEST, Mixers};
use crate::arch::blocks::names::{Names, Table};
use crate::arch::blocks::recurrent::{Mamba2, ReadNorm, SSM_DT, SSM_NORM, steps};
use crate::arch::blocks::recurrent_mixer::Mixer;
use crate::config::ConfigError;
use crate::config::common::{self, ACTIVATIONS, Facts, MODEL, WIDTH};
use crate::config::fields::{Accepts, Field, Fields, IDENTITY};
use crate::config::known::Neutral;
use llmcc_ir::graph::UnaryOp;

pub(crate) const ARCH: Arch = Arch {
    model_type: "mamba2",
    class: "Mamba2ForCausalLM",
    fields: &[IDENTITY, MODEL, OWN],
    // Heads say how wide the mixers are; the rest is about training, or how it is computed.
    fixed: &[
        ("intermediate_size", Neutral::Any),
        ("chunk_size", Neutral::Any),
        ("time_step_rank", Neutral::Any),
        ("time_step_min", Neutral::Any),
        ("time_step_max", Neutral::Any),
        ("time_step_floor", Neutral::Any),
    ],
    goldens: &["mamba2"],
    names: Names(&[NAMES, mamba_decoder::NAMES]),
    read: |f| Ok(Box::new(read(f)?)),
};

const OWN: &[Field] = &[
    Field::new("expand", Accepts::Number),
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

const NAMES: Table = &[(SSM_DT, "backbone.layers.{}.mixer.dt_bias"), (SSM_NORM, "backbone.layers.{}.mixer.norm")];

fn read(f: &Fields) -> Result<Mixers, ConfigError> {
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
    let inner = mixer.heads.saturating_mul(mixer.head_dim);
    if let Some(expand) = f.number("expand").filter(|x| x * facts.hidden as f64 != inner as f64) {
        let expected = format!(
            "the {inner} columns of all heads together (`num_heads` times `head_dim`) over `hidden_size` ({}), or absent",
            facts.hidden
        );
        return Err(f.invalid("expand", &expand, expected));
    }
    if !mixer.heads.is_multiple_of(mixer.groups) {
        let help = format!("this architecture has groups that divide its {} heads", mixer.heads);
        return Err(f.unsupported("n_groups", mixer.groups.to_string(), help));
    }
    if mixer.conv < 2 {
        return Err(f.invalid("conv_kernel", &mixer.conv, "at least 2".into()));
    }
    let norm = Norm::rms(common::eps(f, "layer_norm_epsilon", 1e-5)?);
    Ok(Mixers { facts, mixer: Mixer::Mamba2(mixer), norm })
}
