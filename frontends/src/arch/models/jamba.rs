//! Jamba (arXiv 2403.19887, 2408.12570): mixers of Mamba, with norms of their parts, in most layers,
//! attention without positions in the others, experts in every other one.

use crate::arch::blocks::prelude::*;
use crate::arch::blocks::recurrent::{SSM_A, SSM_CONV, SSM_D, SSM_IN, SSM_OUT};
use crate::arch::blocks::selective_scan::{Mamba1, SSM_B_NORM, SSM_C_NORM, SSM_STEPS, SSM_STEPS_NORM, SSM_X, rank};

pub(crate) const ARCH: Arch = Arch {
    model_type: "jamba",
    class: "JambaForCausalLM",
    fields: &[IDENTITY, MODEL, ATTENTION, MLP, OWN],
    // How the same is computed; which layers have attention is said by period and offset.
    fixed: fixed! { Any => use_mamba_kernels use_mambapy use_associative_scan; On => mamba_inner_layernorms; },
    goldens: &["jamba"],
    names: Names(&[NAMES, HUGGING_FACE]),
    read: |f| {
        let defaults = defaults! { vocab: 65_536, heads: 32, kv_heads: 8, max_position: 262_144, ..LLAMA };
        let d = Decoder::read_with(f, &defaults, |_, _| Ok(vec![]))?;
        let (mixer, attends) = (mixer(f, &d)?, layers(f, ["attn_layer_period", "attn_layer_offset"], [8, 4])?);
        let routed = layers(f, ["expert_layer_period", "expert_layer_offset"], [2, 1])?;
        let count = f.size("num_experts").or(16);
        let router = Router::softmax(f.size("num_experts_per_tok").or(2), false);
        let experts = Experts::like(&d, router, count);
        let experts = match count {
            1 => None,
            _ => Some(experts.checked(f, ["num_experts", "num_experts_per_tok"])?),
        };
        for field in ["layers_block_type", "layer_types"] {
            common::follow(f, field, d.facts.layers, |kind, i| match kind {
                "attention" | "full_attention" => attends(i),
                "mamba" | "linear_attention" => !attends(i),
                _ => false,
            })?;
        }
        let d = d.with_mixers(|i| (!attends(i)).then_some(Mixer::Mamba1(mixer)));
        let d = d.with_experts(|i| experts.filter(|_| routed(i)));
        Ok(Box::new(d.with_attention(|_, a| a.rotary = None)))
    },
};

const OWN: &[Field] = fields! {
    layers_block_type, layer_types: Accepts::Any, attn_layer_period, attn_layer_offset, expert_layer_period,
    expert_layer_offset, num_experts | num_local_experts, num_experts_per_tok, mamba_d_state, mamba_d_conv,
    mamba_expand, mamba_dt_rank, mamba_conv_bias, mamba_proj_bias,
};

const NAMES: Table = names! {
    "" { NORM => "model.final_layernorm" }
    "model.layers.{}." {
        MLP_NORM => "pre_ff_layernorm", MLP_GATE => "feed_forward.gate_proj", MLP_UP => "feed_forward.up_proj",
        MLP_DOWN => "feed_forward.down_proj", ROUTER => "feed_forward.router",
        EXPERT_GATE => "feed_forward.experts.{e}.gate_proj", EXPERT_UP => "feed_forward.experts.{e}.up_proj",
        EXPERT_DOWN => "feed_forward.experts.{e}.down_proj", EXPERTS_GATE_UP => "feed_forward.experts.gate_up_proj",
        EXPERTS_DOWN => "feed_forward.experts.down_proj", SSM_IN => "mamba.in_proj", SSM_CONV => "mamba.conv1d",
        SSM_X => "mamba.x_proj", SSM_STEPS => "mamba.dt_proj", SSM_STEPS_NORM => "mamba.dt_layernorm",
        SSM_B_NORM => "mamba.b_layernorm", SSM_C_NORM => "mamba.c_layernorm", SSM_A => "mamba.A_log",
        SSM_D => "mamba.D", SSM_OUT => "mamba.out_proj",
    }
};

fn mixer(f: &Fields, d: &Decoder) -> Result<Mamba1, ConfigError> {
    let conv = common::conv_width(f, "mamba_d_conv", 4)?;
    Ok(Mamba1 {
        inner: f.size("mamba_expand").or(2).saturating_mul(d.facts.hidden),
        state: f.size("mamba_d_state").or(16),
        rank: rank(f, "mamba_dt_rank", d.facts.hidden)?,
        conv,
        bias: f.flag("mamba_proj_bias"),
        conv_bias: f.flag_or("mamba_conv_bias", true),
        act: common::activation(f, "hidden_act", UnaryOp::Silu),
        norms: Some(d.norm),
        heads: None,
    })
}

/// Which layers are each `period`th, from `offset` on.
fn layers(
    f: &Fields,
    [period, offset]: [&'static str; 2],
    default: [usize; 2],
) -> Result<impl Fn(usize) -> bool + use<>, ConfigError> {
    let every = f.size(period).or(default[0]);
    let first = f.count(offset).unwrap_or(default[1]);
    if first >= every {
        let help = format!("this architecture expects offsets below `{period}` ({every})");
        return Err(f.unsupported(offset, first.to_string(), help));
    }
    Ok(move |i: usize| i % every == first)
}
