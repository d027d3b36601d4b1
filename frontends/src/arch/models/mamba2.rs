//! Mamba-2 (arXiv 2405.21060): nothing but its mixers, each behind a norm.

use crate::arch::blocks::families::mamba_decoder::{self, LONGEST, Mixers};
use crate::arch::blocks::prelude::*;
use crate::arch::blocks::recurrent::{Mamba2, ReadNorm, SSM_DT, SSM_NORM, steps};

pub(crate) const ARCH: Arch = Arch {
    model_type: "mamba2",
    class: "Mamba2ForCausalLM",
    fields: &[IDENTITY, MODEL, OWN],
    // Heads say how wide the mixers are; the rest is about training, or how it is computed.
    fixed: fixed! { Any => intermediate_size chunk_size time_step_rank time_step_min time_step_max time_step_floor; },
    goldens: &["mamba2"],
    names: Names(&[NAMES, mamba_decoder::NAMES]),
    read: |f| Ok(Box::new(read(f)?)),
};

const OWN: &[Field] = fields! {
    expand, num_heads, head_dim, state_size, n_groups, conv_kernel, use_bias, use_conv_bias, hidden_act,
    layer_norm_epsilon, time_step_limit,
};

const NAMES: Table = names! { "backbone.layers.{}." { SSM_DT => "mixer.dt_bias", SSM_NORM => "mixer.norm" } };

fn read(f: &Fields) -> Result<Mixers, ConfigError> {
    let facts = Facts::read(f, Some(32_768), LONGEST, false)?;
    let size = |name: &str, default: usize| f.size(name).or(default);
    let conv = common::conv_width(f, "conv_kernel", 4)?;
    let mixer = Mamba2 {
        heads: size("num_heads", 128),
        head_dim: size("head_dim", 64),
        state: size("state_size", 128),
        groups: size("n_groups", 8),
        conv,
        bias: f.flag("use_bias"),
        out_bias: f.flag("use_bias"),
        conv_bias: f.flag_or("use_conv_bias", true),
        act: common::activation(f, "hidden_act", UnaryOp::Silu),
        steps: steps(f)?,
        norm: ReadNorm::Gated,
        factors: None,
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
        let help = format!("this architecture expects groups that divide its {} heads", mixer.heads);
        return Err(f.unsupported("n_groups", mixer.groups.to_string(), help));
    }
    let norm = Norm::rms(common::eps(f, "layer_norm_epsilon", 1e-5)?);
    Ok(Mixers { facts, mixer: Mixer::Mamba2(mixer), norm })
}
