//! Kimi-Linear (arXiv 2510.26692): Kimi's delta attention in most layers, latent attention without
//! positions in the others, experts as DeepSeek-V3 has them.

use crate::arch::blocks::families::latent_experts::{experts, sigmoids};
use crate::arch::blocks::kimi_delta::{self, KimiDelta, OBJECT};
use crate::arch::blocks::prelude::*;
use serde_json::Value;

pub(crate) const ARCH: Arch = Arch {
    model_type: "kimi_linear",
    class: "KimiLinearForCausalLM",
    fields: &[IDENTITY, OWN, MODEL, DIVIDED, MLP, LATENT],
    // Nothing is rotated, and the size of a head says nothing.
    fixed: fixed! {
        Any => head_dim rope_theta rope_scaling;
        On => mla_use_nope use_grouped_topk;
        Words(&["sigmoid"]) => moe_router_activation_func;
        One => moe_layer_freq;
    },
    goldens: &["kimi_linear"],
    names: Names(&[NAMES, kimi_delta::NAMES, latent_attention::NAMES, MIXTRAL_EXPERTS, HUGGING_FACE]),
    read: |f| {
        let defaults = defaults! { vocab: 163_840, heads: 32, max_position: 1_048_576, eps: 1e-5, ..LLAMA };
        let latent = Latent { q_rank: None, interleaved: false, ..Latent::DEEPSEEK };
        let mut d = latent_decoder::decoder(f, defaults, latent)?.with_attention(|_, a| a.rotary = None);
        d.ropes.clear();
        let (delta, linear) = delta(f, d.facts.layers)?;
        let d = d.with_mixers(|i| linear[i].then_some(Mixer::Kimi(delta)));
        let experts = experts(f, &d, sigmoids(f, 8, 2.446)?, [256, 1, 1024])?;
        let experts = Experts { correction: Some(CORRECTION), ..experts };
        Ok(Box::new(d.with_sparse(f, f.count("first_k_dense_replace").unwrap_or(1), experts)?))
    },
};

const OWN: &[Field] = fields! {
    max_position_embeddings | model_max_length, linear_attn_config,
    layer_types: Accepts::ListOf(&["linear_attention", "full_attention", WINDOW]), linear_num_heads,
    linear_head_dim, linear_conv_kernel_dim, mlp_layer_types, n_routed_experts | num_experts | num_local_experts,
    num_experts_per_tok | num_experts_per_token, n_shared_experts | num_shared_experts, moe_intermediate_size,
    first_k_dense_replace, routed_scaling_factor, n_group | num_expert_group, topk_group,
    norm_topk_prob | moe_renormalize,
};

/// Refused with a word of its own.
const WINDOW: &str = "sliding_attention";

const NAMES: Table = names! {
    "model.layers.{}." {
        MLP_GATE => "mlp.gate_proj", MLP_GATE => "block_sparse_moe.gate_proj", MLP_UP => "mlp.up_proj",
        MLP_UP => "block_sparse_moe.up_proj", MLP_DOWN => "mlp.down_proj", MLP_DOWN => "block_sparse_moe.down_proj",
        CORRECTION => "block_sparse_moe.gate.e_score_correction_bias",
        SHARED_GATE => "block_sparse_moe.shared_experts.gate_proj",
        SHARED_UP => "block_sparse_moe.shared_experts.up_proj",
        SHARED_DOWN => "block_sparse_moe.shared_experts.down_proj",
    }
};

/// The delta attention, and which layers have it: `linear_attn_config` in published checkpoints,
/// which counts layers from 1, fields of their own where Transformers has written the file.
fn delta(f: &Fields, layers: usize) -> Result<(KimiDelta, Vec<bool>), ConfigError> {
    let field = OBJECT;
    let config = f.object(field);
    let inside = |name: &str| config.and_then(|c| c.get(name)?.as_u64()).and_then(|n| usize::try_from(n).ok());
    let size = |name: &str, own: &str| match (inside(name), f.size(own).value()) {
        (Some(a), Some(b)) if a != b => Err(f.invalid(own, &b, format!("as `{field}.{name}` ({a}), or absent"))),
        (Some(n), _) | (None, Some(n)) => Ok(Some(n)),
        (None, None) => Ok(None),
    };
    let list = |name: &str| config.and_then(|c| c.get(name)?.as_array());
    let fits = |n: &usize| (1..=1 << 14).contains(n);
    let linear = match (common::layer_types(f, layers)?, list("kda_layers")) {
        (Some(types), _) if types.contains(&WINDOW) => {
            let help = "this architecture supports delta attention and full attention".to_string();
            return Err(f.unsupported("layer_types", WINDOW.into(), help));
        }
        (Some(types), _) => Some(types.iter().map(|t| *t == "linear_attention").collect()),
        (None, Some(list)) => {
            let has = |i: usize| list.iter().any(|v| v.as_u64() == Some(i as u64 + 1));
            Some((0..layers).map(has).collect())
        }
        (None, None) => None,
    };
    let heads = size("num_heads", "linear_num_heads")?.filter(fits);
    let dim = size("head_dim", "linear_head_dim")?.filter(fits);
    let conv = size("short_conv_kernel_size", "linear_conv_kernel_dim")?;
    let (Some(heads), Some(dim), Some(conv @ 2..=64), Some(linear)) = (heads, dim, conv, linear) else {
        let help = "this architecture expects `num_heads`, `head_dim`, `short_conv_kernel_size` and `kda_layers` in it";
        let found = config.map_or("absent".into(), |c| Value::from(c.clone()).to_string());
        return Err(f.unsupported(field, found, help.into()));
    };
    let act = common::activation(f, "hidden_act", UnaryOp::Silu);
    let (rates, low_rank) = (Kind::OfHeads, [true; 2]);
    Ok((KimiDelta { heads, dim, conv, act, rates, spare_rates: false, low_rank, floor: None }, linear))
}
