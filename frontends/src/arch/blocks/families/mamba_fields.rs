//! Fields and names of mixers of Mamba-2, which several families have in common.

use crate::arch::blocks::names::{Table, names};
use crate::arch::blocks::recurrent::{
    Mamba2, ReadNorm, SSM_A, SSM_CONV, SSM_D, SSM_DT, SSM_IN, SSM_NORM, SSM_OUT, steps,
};
use crate::config::ConfigError;
use crate::config::common::{self, WIDTH};
use crate::config::fields::{Accepts, Field, Fields};
use crate::config::known::Neutral;
use llmcc_ir::graph::UnaryOp;

/// Fields of [`mixer`].
pub(crate) const MAMBA: &[Field] = &[
    Field::new("mamba_n_heads", Accepts::Size(1 << 14)),
    Field::new("mamba_n_groups", Accepts::Size(1 << 14)),
    Field::new("mamba_d_head", Accepts::Any),
    Field::new("mamba_d_state", WIDTH),
    Field::new("mamba_d_conv", Accepts::Size(64)),
    Field::new("mamba_conv_bias", Accepts::Flag).unless(Neutral::Any),
    Field::new("mamba_proj_bias", Accepts::Flag).unless(Neutral::Any),
    Field::new("time_step_limit", Accepts::Any),
];

/// The columns of its heads together, as a multiple of the model's width.
pub(crate) const EXPAND: &[Field] = &[Field::new("mamba_expand", Accepts::Size(64))];

/// Names of a mixer.
pub(crate) const MIXER: Table = names! {
    "model.layers.{}." {
        SSM_IN => "mamba.in_proj", SSM_CONV => "mamba.conv1d", SSM_DT => "mamba.dt_bias", SSM_A => "mamba.A_log",
        SSM_D => "mamba.D", SSM_NORM => "mamba.norm", SSM_OUT => "mamba.out_proj",
    }
};

/// The mixer that the fields of [`MAMBA`] describe; `inner` columns are divided among its heads.
pub(crate) fn mixer(f: &Fields, inner: usize) -> Result<Mamba2, ConfigError> {
    let size = |name: &str, default: usize| f.size(name).or(default);
    let (heads, groups) = (size("mamba_n_heads", 128), size("mamba_n_groups", 1));
    for (field, n, of) in [("mamba_n_heads", heads, inner), ("mamba_n_groups", groups, heads)] {
        if !of.is_multiple_of(n) {
            let help = format!("this architecture expects {of} of the width it divides");
            return Err(f.unsupported(field, n.to_string(), help));
        }
    }
    common::follows(f, "mamba_d_head", inner / heads, "the mixer's columns over `mamba_n_heads`")?;
    let conv = common::conv_width(f, "mamba_d_conv", 4)?;
    Ok(Mamba2 {
        heads,
        head_dim: inner / heads,
        state: size("mamba_d_state", 256),
        groups,
        conv,
        bias: f.flag("mamba_proj_bias"),
        out_bias: f.flag("mamba_proj_bias"),
        conv_bias: f.flag_or("mamba_conv_bias", true),
        act: common::activation(f, "hidden_act", UnaryOp::Silu),
        steps: steps(f)?,
        norm: ReadNorm::Gated,
        factors: None,
    })
}
