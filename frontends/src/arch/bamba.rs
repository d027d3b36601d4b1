//! Bamba: mixers of Mamba-2 in most layers, attention that rotates half of each head in the others.

use super::decoder::{Decoder, Defaults};
use super::entry::Arch;
use super::names::{HUGGING_FACE, MLP_DOWN, MLP_GATE, MLP_NORM, MLP_UP, NORM, Names, Table};
use super::recurrent::{Mamba2, Mixer, SSM_A, SSM_CONV, SSM_D, SSM_DT, SSM_IN, SSM_NORM, SSM_OUT, steps};
use crate::config::ConfigError;
use crate::config::common::{self, ATTENTION, ATTENTION_BIAS, MLP, MLP_BIAS, MODEL, PARTIAL_ROTARY, WIDTH};
use crate::config::fields::{Accepts, Field, Fields, IDENTITY};
use crate::config::known::Neutral;
use llmcc_ir::graph::UnaryOp;

pub(super) const ARCH: Arch = Arch {
    model_type: "bamba",
    class: "BambaForCausalLM",
    fields: &[IDENTITY, MODEL, ATTENTION, PARTIAL_ROTARY, MLP, ATTENTION_BIAS, MLP_BIAS, OWN],
    // What a head has follows from `mamba_expand`; the rest is how it is computed, and training.
    fixed: &[
        ("mamba_d_head", Neutral::Any),
        ("mamba_chunk_size", Neutral::Any),
        ("attn_rotary_emb", Neutral::Any),
        ("layers_block_type", Neutral::Any),
    ],
    goldens: &["bamba"],
    names: Names(&[NAMES, HUGGING_FACE]),
    read: |f| {
        let defaults = Defaults {
            vocab: Some(128_000),
            heads: Some(32),
            kv_heads: Some(8),
            max_position: 262_144,
            eps: 1e-5,
            partial: 0.5,
            ..Defaults::LLAMA
        };
        let (attention, mlp) = (f.flag("attention_bias"), f.flag("mlp_bias"));
        let d = Decoder::read(f, &defaults)?;
        if d.ropes.iter().zip(&d.layers).any(|(rope, l)| 2 * rope.dim != l.attention.heads.dim) {
            let found = f.number("partial_rotary_factor").map_or("not 0.5".into(), |n| n.to_string());
            let help = "this architecture has half of each head rotated".to_string();
            return Err(f.unsupported("partial_rotary_factor", found, help));
        }
        let mixer = mixer(f, d.facts.hidden)?;
        let attend = f.numbers("attn_layer_indices").unwrap_or_default();
        let d = d.with_mixers(|i| (!attend.contains(&(i as f64))).then_some(Mixer::Mamba2(mixer)));
        let d = d.with_attention(|_, a| (a.qkv_bias, a.out_bias) = (attention, attention));
        Ok(Box::new(d.with_mlp(|m| m.bias = mlp)))
    },
};

const OWN: &[Field] = &[
    Field::new("attn_layer_indices", Accepts::Numbers),
    Field::new("mamba_n_heads", Accepts::Size(1 << 14)),
    Field::new("mamba_n_groups", Accepts::Size(1 << 14)),
    Field::new("mamba_d_state", WIDTH),
    Field::new("mamba_d_conv", Accepts::Size(64)),
    Field::new("mamba_expand", Accepts::Size(64)),
    Field::new("mamba_conv_bias", Accepts::Flag).unless(Neutral::Any),
    Field::new("mamba_proj_bias", Accepts::Flag).unless(Neutral::Any),
    Field::new("time_step_limit", Accepts::Any),
];

const NAMES: Table = &[
    (NORM, "model.final_layernorm"),
    (SSM_IN, "model.layers.{}.mamba.in_proj"),
    (SSM_CONV, "model.layers.{}.mamba.conv1d"),
    (SSM_DT, "model.layers.{}.mamba.dt_bias"),
    (SSM_A, "model.layers.{}.mamba.A_log"),
    (SSM_D, "model.layers.{}.mamba.D"),
    (SSM_NORM, "model.layers.{}.mamba.norm"),
    (SSM_OUT, "model.layers.{}.mamba.out_proj"),
    (MLP_NORM, "model.layers.{}.pre_ff_layernorm"),
    (MLP_GATE, "model.layers.{}.feed_forward.gate_proj"),
    (MLP_UP, "model.layers.{}.feed_forward.up_proj"),
    (MLP_DOWN, "model.layers.{}.feed_forward.down_proj"),
];

fn mixer(f: &Fields, hidden: usize) -> Result<Mamba2, ConfigError> {
    let size = |name: &str, default: usize| f.size(name).or(default);
    let (heads, groups) = (size("mamba_n_heads", 128), size("mamba_n_groups", 1));
    let inner = size("mamba_expand", 2).saturating_mul(hidden);
    for (field, n, of) in [("mamba_n_heads", heads, inner), ("mamba_n_groups", groups, heads)] {
        if !of.is_multiple_of(n) {
            let help = format!("this architecture has {of} of what it divides");
            return Err(f.unsupported(field, n.to_string(), help));
        }
    }
    let conv = size("mamba_d_conv", 4);
    if conv < 2 {
        return Err(f.invalid("mamba_d_conv", &conv, "at least 2".into()));
    }
    Ok(Mamba2 {
        heads,
        head_dim: inner / heads,
        state: size("mamba_d_state", 256),
        groups,
        conv,
        bias: f.flag("mamba_proj_bias"),
        conv_bias: f.flag_or("mamba_conv_bias", true),
        act: common::activation(f, "hidden_act", UnaryOp::Silu),
        steps: steps(f)?,
    })
}
