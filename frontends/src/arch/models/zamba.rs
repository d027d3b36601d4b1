//! Zamba (arXiv 2405.16712): mixers of Mamba with several heads, before some of which stands the one block of
//! attention without positions and an MLP that they share.

use crate::arch::blocks::attention::{Attention, Norm};
use crate::arch::blocks::entry::Arch;
use crate::arch::blocks::families::zamba_decoder::{self, KINDS, SharedBlock, Zamba, hybrid};
use crate::arch::blocks::names::{
    ATTN_K, ATTN_NORM, ATTN_OUT, ATTN_Q, ATTN_V, MLP_DOWN, MLP_GATE, MLP_NORM, MLP_UP, Names, Table,
};
use crate::arch::blocks::recurrent_mixer::Mixer;
use crate::arch::blocks::selective_scan::{Mamba1, SSM_STEPS, SSM_STEPS_BIAS, SSM_X, rank};
use crate::config::ConfigError;
use crate::config::common::{self, ACTIVATIONS, DIVIDED, Facts, Heads, MODEL, RMS_NORM, WIDTH};
use crate::config::fields::{Accepts, Field, Fields, IDENTITY};
use crate::config::known::Neutral;
use llmcc_ir::graph::UnaryOp;

pub(crate) const ARCH: Arch = Arch {
    model_type: "zamba",
    class: "ZambaForCausalLM",
    fields: &[IDENTITY, MODEL, DIVIDED, &[RMS_NORM], OWN],
    // How the same is computed, and training.
    fixed: &[
        ("use_mamba_kernels", Neutral::Any),
        ("use_associative_scan", Neutral::Any),
        ("time_step_min", Neutral::Any),
        ("time_step_max", Neutral::Any),
        ("time_step_floor", Neutral::Any),
    ],
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

const OWN: &[Field] = &[
    Field::new("attention_hidden_size", WIDTH),
    Field::new("attention_head_dim", Accepts::Size(1 << 14)).or(&["head_dim"]),
    Field::new("intermediate_size", WIDTH),
    Field::new("hidden_act", Accepts::OneOf(ACTIVATIONS)),
    Field::new("hidden_mamba_act", Accepts::OneOf(ACTIVATIONS)),
    Field::new("layers_block_type", Accepts::ListOf(KINDS)).or(&["layer_types"]),
    Field::new("attn_layer_period", Accepts::Size(4096)),
    Field::new("attn_layer_offset", Accepts::Count),
    Field::new("n_mamba_heads", Accepts::Size(1 << 14)),
    Field::new("mamba_d_state", WIDTH),
    Field::new("mamba_d_conv", Accepts::Size(64)),
    Field::new("mamba_expand", Accepts::Size(64)),
    Field::new("mamba_dt_rank", Accepts::Any),
    Field::new("mamba_conv_bias", Accepts::Flag),
    Field::new("mamba_proj_bias", Accepts::Flag),
];

const NAMES: Table = &[
    (SSM_X, "model.layers.{}.mamba.x_proj_weight"),
    (SSM_X, "model.layers.{}.mamba_decoder.mamba.x_proj_weight"),
    (SSM_STEPS, "model.layers.{}.mamba.dt_proj_weight"),
    (SSM_STEPS, "model.layers.{}.mamba_decoder.mamba.dt_proj_weight"),
    (SSM_STEPS_BIAS, "model.layers.{}.mamba.dt_proj_bias"),
    (SSM_STEPS_BIAS, "model.layers.{}.mamba_decoder.mamba.dt_proj_bias"),
    (ATTN_NORM, "model.layers.{}.shared_transf.input_layernorm"),
    (ATTN_Q, "model.layers.{}.shared_transf.self_attn.q_proj"),
    (ATTN_K, "model.layers.{}.shared_transf.self_attn.k_proj"),
    (ATTN_V, "model.layers.{}.shared_transf.self_attn.v_proj"),
    (ATTN_OUT, "model.layers.{}.shared_transf.self_attn.o_proj"),
    (MLP_NORM, "model.layers.{}.shared_transf.pre_ff_layernorm"),
    (MLP_GATE, "model.layers.{}.shared_transf.feed_forward.gate_proj"),
    (MLP_UP, "model.layers.{}.shared_transf.feed_forward.up_proj"),
    (MLP_DOWN, "model.layers.{}.shared_transf.feed_forward.down_proj"),
];

/// Which layers have the block where none is named: the third, and of those after it each of a period.
fn every(f: &Fields, layers: usize) -> Result<Vec<bool>, ConfigError> {
    if layers < 3 {
        let help = "this architecture has at least 3 layers, unless `layers_block_type` names their kinds".into();
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
    // As if heads were not twice as wide as those of the model's width.
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
        let help = format!("this architecture has {inner} channels, which it divides");
        return Err(f.unsupported("n_mamba_heads", heads.to_string(), help));
    }
    let conv = f.size("mamba_d_conv").or(4);
    if conv < 2 {
        return Err(f.invalid("mamba_d_conv", &conv, "at least 2".into()));
    }
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
