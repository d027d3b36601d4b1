//! Ling 3 (inclusionAI, 2026): Kimi's delta attention in most layers, latent attention with a gate for
//! each head in the others, experts as DeepSeek-V3 has them.

use crate::arch::blocks::families::draft_names::DraftNames;
use crate::arch::blocks::families::latent_experts::{experts, sigmoids_in_groups};
use crate::arch::blocks::kimi_delta::{DECAY_UP, GATE_UP, KimiDelta};
use crate::arch::blocks::latent_attention::{K_UP, KV_DOWN, KV_DOWN_NORM, KV_UP, V_UP};
use crate::arch::blocks::prelude::*;
use crate::arch::blocks::recurrent::{
    CONV_K, CONV_Q, CONV_V, DELTA_K, DELTA_Q, DELTA_RATE, DELTA_V, SSM_A, SSM_DT, SSM_NORM, SSM_OUT,
};

pub(crate) const ARCH: Arch = Arch {
    model_type: "bailing_hybrid",
    class: "BailingHybridForCausalLM",
    fields: &[IDENTITY, OWN, MODEL, DIVIDED, ROTARY, MLP, ATTENTION_BIAS, LATENT],
    fixed: fixed! {
        Off => q_lora_rank;
        Same("num_attention_heads") => linear_num_heads;
        On => rope_interleave;
        Words(&["sigmoid"]) => score_function;
    },
    goldens: &["bailing_hybrid"],
    names: Names(&[NAMES, DEEPSEEK_EXPERTS, HUGGING_FACE]),
    read: |f| {
        let defaults = defaults! { vocab: 157_184, heads: 32, max_position: 262_144, theta: 6e6, ..LLAMA };
        let latent = Latent { q_rank: None, ..Latent::of(f) };
        let d = latent_decoder::of_parts(f, defaults, latent)?.with_attention(|_, a| a.gate = Some(Gate::Heads));
        let layers = d.facts.layers;
        let heads = d.layers.first().map_or(0, |l| l.attention.heads.queries);
        let (delta, linear) = (delta(f, heads)?, linear_layers(f, layers)?);
        let d = d.with_mixers(|i| linear[i].then_some(Mixer::Kimi(delta)));
        let router = sigmoids_in_groups(f, 8, 2.5)?;
        let experts = Experts { correction: Some(CORRECTION), ..experts(f, &d, router, [512, 1, 768])? };
        let d = d.with_sparse(f, f.count("first_k_dense_replace").unwrap_or(2), experts)?;
        Ok(Box::new(d.with_drafts(DraftNames::OfLayer, |layer| layer.experts.is_some() && layer.mixer.is_none())))
    },
};

const OWN: &[Field] = fields! {
    max_position_embeddings | model_max_length, head_dim, linear_head_dim,
    short_conv_kernel_size | linear_conv_kernel_dim, layer_group_size,
    layer_types: Accepts::ListOf(&["linear_attention", "full_attention", WINDOW]), mlp_layer_types, kda_safe_gate,
    kda_lower_bound, n_routed_experts | num_experts | num_local_experts, num_experts_per_tok | num_experts_per_token,
    n_shared_experts | num_shared_experts, moe_intermediate_size, first_k_dense_replace, routed_scaling_factor,
    n_group | num_expert_group, topk_group, norm_topk_prob | moe_renormalize,
};

/// Refused with a word of its own.
const WINDOW: &str = "sliding_attention";

const NAMES: Table = names! {
    "" { TABLE => "model.word_embeddings" }
    "model.layers.{}." {
        ATTN_Q => "attention.q_proj", KV_DOWN => "attention.kv_a_proj_with_mqa",
        KV_DOWN_NORM => "attention.kv_a_layernorm", KV_UP => "attention.kv_b_proj", K_UP => "attention.k_b_proj",
        V_UP => "attention.v_b_proj", ATTN_GATE => "attention.g_proj", ATTN_OUT => "attention.dense",
        DELTA_Q => "attention.q_proj", DELTA_K => "attention.k_proj", DELTA_V => "attention.v_proj",
        CONV_Q => "attention.q_conv1d", CONV_K => "attention.k_conv1d", CONV_V => "attention.v_conv1d",
        DECAY_UP => "attention.f_proj", GATE_UP => "attention.g_proj", DELTA_RATE => "attention.b_proj",
        SSM_DT => "attention.dt_bias", SSM_A => "attention.A_log", SSM_NORM => "attention.o_norm",
        SSM_OUT => "attention.dense", CORRECTION => "mlp.gate.expert_bias",
    }
};

/// The delta attention. Files that Transformers has written have the width of its heads in a field of
/// their own, and that of rotated keys in `head_dim`.
fn delta(f: &Fields, heads: usize) -> Result<KimiDelta, ConfigError> {
    let conv = common::conv_width(f, "short_conv_kernel_size", 4)?;
    let floor = f.number("kda_lower_bound").unwrap_or(-5.0) as f32;
    Ok(KimiDelta {
        heads,
        dim: f.size("linear_head_dim").value().unwrap_or(f.size("head_dim").or(128)),
        conv,
        act: common::activation(f, "hidden_act", UnaryOp::Silu),
        rates: Kind::Bare,
        spare_rates: false,
        low_rank: [false; 2],
        floor: f.flag_or("kda_safe_gate", true).then_some(floor),
    })
}

/// Which layers have it: all but the last of each group.
fn linear_layers(f: &Fields, layers: usize) -> Result<Vec<bool>, ConfigError> {
    match common::layer_types(f, layers)? {
        Some(types) if types.contains(&WINDOW) => {
            let help = "this architecture supports delta attention and full attention".to_string();
            Err(f.unsupported("layer_types", WINDOW.into(), help))
        }
        Some(types) => Ok(types.iter().map(|t| *t == "linear_attention").collect()),
        None => {
            let group = f.size("layer_group_size").or(6);
            Ok((0..layers).map(|i| !(i + 1).is_multiple_of(group)).collect())
        }
    }
}
