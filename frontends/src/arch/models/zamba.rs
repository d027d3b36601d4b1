//! Zamba (arXiv 2405.16712): mixers of Mamba with several heads; before some of them stands the one
//! block of attention without positions and an MLP that they share.

use crate::arch::blocks::families::zamba_decoder::{self, KINDS, SharedBlock, Zamba, hybrid};
use crate::arch::blocks::prelude::*;
use crate::arch::blocks::selective_scan::{Mamba1, SSM_STEPS, SSM_STEPS_BIAS, SSM_X, rank};

pub(crate) const ARCH: Arch = Arch {
    model_type: "zamba",
    class: "ZambaForCausalLM",
    fields: &[IDENTITY, MODEL, DIVIDED, fields! { rms_norm_eps }, OWN],
    // How the same is computed, and training.
    fixed: fixed! { Any => use_mamba_kernels use_associative_scan time_step_min time_step_max time_step_floor; },
    goldens: &["zamba"],
    names: Names(&[NAMES, zamba_decoder::NAMES]),
    read: |f| {
        let facts = Facts::read(f, Some(32_000), 4096, true)?;
        let norm = Norm::rms(common::eps(f, "rms_norm_eps", 1e-5)?);
        let hybrid = match hybrid(f, facts.layers)? {
            Some(said) => said,
            None => every(f, facts.layers)?,
        };
        let (mixer, block) = (Mixer::Mamba1(mixer(f, facts.hidden)?), block(f, &facts)?);
        Ok(Box::new(Zamba { facts, norm, mixer, hybrid, block }))
    },
};

const OWN: &[Field] = fields! {
    attention_hidden_size, attention_head_dim | head_dim, intermediate_size, hidden_act, hidden_mamba_act,
    layers_block_type | layer_types: Accepts::ListOf(KINDS), attn_layer_period, attn_layer_offset, n_mamba_heads,
    mamba_d_state, mamba_d_conv, mamba_expand, mamba_dt_rank, mamba_conv_bias, mamba_proj_bias,
};

const NAMES: Table = names! {
    "model.layers.{}." {
        SSM_X => "mamba.x_proj_weight", SSM_X => "mamba_decoder.mamba.x_proj_weight",
        SSM_STEPS => "mamba.dt_proj_weight", SSM_STEPS => "mamba_decoder.mamba.dt_proj_weight",
        SSM_STEPS_BIAS => "mamba.dt_proj_bias", SSM_STEPS_BIAS => "mamba_decoder.mamba.dt_proj_bias",
        ATTN_NORM => "shared_transf.input_layernorm", ATTN_Q => "shared_transf.self_attn.q_proj",
        ATTN_K => "shared_transf.self_attn.k_proj", ATTN_V => "shared_transf.self_attn.v_proj",
        ATTN_OUT => "shared_transf.self_attn.o_proj", MLP_NORM => "shared_transf.pre_ff_layernorm",
        MLP_GATE => "shared_transf.feed_forward.gate_proj", MLP_UP => "shared_transf.feed_forward.up_proj",
        MLP_DOWN => "shared_transf.feed_forward.down_proj",
    }
};

/// Which layers have the block where none is named: the third, and of those after it each of a period.
fn every(f: &Fields, layers: usize) -> Result<Vec<bool>, ConfigError> {
    if layers < 3 {
        let help = "this architecture expects at least 3 layers, unless `layers_block_type` names their kinds".into();
        return Err(f.unsupported("num_hidden_layers", layers.to_string(), help));
    }
    let (period, offset) = (f.size("attn_layer_period").or(6), f.count("attn_layer_offset").unwrap_or(4));
    Ok((0..layers).map(|i| i == 2 || i > 2 && (i - 3) % period == offset).collect())
}

fn block(f: &Fields, facts: &Facts) -> Result<SharedBlock, ConfigError> {
    let wide = facts.hidden.saturating_mul(2);
    if let Some(n) = f.size("attention_hidden_size").value().filter(|n| *n != wide) {
        let help = format!("this architecture has attention over rows twice as wide as the model's ({wide})");
        return Err(f.unsupported("attention_hidden_size", n.to_string(), help));
    }
    let (queries, kv) = (f.size("num_attention_heads").or(16), f.size("num_key_value_heads").or(16));
    if !queries.is_multiple_of(kv) {
        return Err(f.invalid("num_key_value_heads", &kv, format!("a divisor of `num_attention_heads` ({queries})")));
    }
    let dim = f.size("attention_head_dim").or((wide / queries).max(1));
    let heads = Heads { queries, kv, dim };
    // As if heads were half as wide, like the model's width.
    let scale = (1.0 / (dim as f64 / 2.0).sqrt()) as f32;
    Ok(SharedBlock {
        count: 1,
        attention: Attention { scale, rotary: None, ..Attention::plain(heads, None) },
        rope: None,
        ffn: f.size("intermediate_size").or(14_848),
        act: common::activation(f, "hidden_act", UnaryOp::Gelu),
        bias: false,
        rank: None,
        adapted: false,
    })
}

fn mixer(f: &Fields, hidden: usize) -> Result<Mamba1, ConfigError> {
    let (inner, heads) = (f.size("mamba_expand").or(2).saturating_mul(hidden), f.size("n_mamba_heads").or(2));
    if !inner.is_multiple_of(heads) {
        let help = format!("this architecture expects {inner} channels, which it divides");
        return Err(f.unsupported("n_mamba_heads", heads.to_string(), help));
    }
    let conv = common::conv_width(f, "mamba_d_conv", 4)?;
    Ok(Mamba1 {
        inner,
        state: f.size("mamba_d_state").or(16),
        rank: rank(f, "mamba_dt_rank", hidden)?,
        conv,
        bias: f.flag("mamba_proj_bias"),
        conv_bias: f.flag_or("mamba_conv_bias", true),
        act: common::activation(f, "hidden_mamba_act", UnaryOp::Silu),
        norms: None,
        heads: Some(heads),
    })
}
