//! Kimi K3 (Moonshot AI, 2026), the text model: Kimi's delta attention in most layers, latent attention without
//! positions and with gates in the others, experts of a narrower row, bent activations (SiTU), and blocks that
//! read means over the depth of the model.
//!
//! Published files call its text model `kimi_linear`, which by itself is another one.

use crate::arch::blocks::attention_residuals::{self, OverDepth};
use crate::arch::blocks::experts::{ExpertRow, ROW_DOWN, ROW_NORM, ROW_UP};
use crate::arch::blocks::families::latent_experts::sigmoids;
use crate::arch::blocks::kimi_delta::{self, DESCRIPTION, GATE_UP, IN_OBJECT, KimiDelta, OBJECT};
use crate::arch::blocks::prelude::*;
use serde_json::{Map, Value};

pub(crate) const ARCH: Arch = Arch {
    model_type: "kimi_k3_text",
    class: "KimiK3ForConditionalGeneration",
    fields: &[IDENTITY, MODEL, DIVIDED, LATENT, OWN],
    fixed: fixed! {
        // Nothing is rotated, and the size of a head says nothing.
        Any => head_dim;
        Any => rope_theta rope_scaling rope_parameters;
        Words(&["situ"]) => hidden_act;
        On => mla_use_nope use_grouped_topk;
        Words(&["sigmoid"]) => moe_router_activation_func;
        Words(&["noaux_tc"]) => topk_method;
    },
    goldens: &["kimi_k3_mlx"],
    names: Names(&[
        NAMES,
        attention_residuals::NAMES,
        kimi_delta::NAMES,
        latent_attention::NAMES,
        MIXTRAL_EXPERTS,
        HUGGING_FACE,
    ]),
    read: |f| {
        let defaults = defaults! { vocab: 163_840, heads: 96, max_position: 1 << 20, eps: 1e-5, ..LLAMA };
        let latent = Latent { q_rank: None, interleaved: false, ..Latent::DEEPSEEK };
        let gate = f.flag("mla_use_output_gate").then_some(Gate::Columns);
        let d = latent_decoder::of_parts(f, defaults, latent)?;
        let mut d = d.with_attention(|_, a| (a.rotary, a.gate) = (None, gate));
        d.ropes.clear();
        let bent = bent(f)?;
        let (delta, linear) = delta(f, d.facts.layers)?;
        let d = d.with_mlp(|m| m.limits = Some(bent)).with_mixers(|i| linear[i].then_some(Mixer::Kimi(delta)));
        let experts = experts(f, &d, bent)?;
        let (first, every) = (f.count("first_k_dense_replace").unwrap_or(0), f.size("moe_layer_freq").or(1));
        let decoder = d.with_experts(|i| experts.filter(|_| i >= first && i.is_multiple_of(every)));
        Ok(match f.size(GROUP).value() {
            Some(group) => Box::new(OverDepth { decoder, group }),
            None => Box::new(decoder) as Box<dyn Shape>,
        })
    },
};

/// Layers of a group, whose sum the later ones read.
const GROUP: &str = "attn_res_block_size";

const OWN: &[Field] = fields! {
    intermediate_size, rms_norm_eps, activation_situ_beta, activation_situ_linear_beta, attn_res_block_size,
    mla_use_output_gate, linear_attn_config, n_routed_experts | num_experts,
    num_experts_per_tok | num_experts_per_token, num_shared_experts: Accepts::Count, moe_intermediate_size,
    routed_scaling_factor, n_group | num_expert_group, topk_group, norm_topk_prob | moe_renormalize,
    first_k_dense_replace, moe_layer_freq, routed_expert_hidden_size, latent_moe_use_norm,
};

/// Members of delta attention's object beside the common ones.
const DELTA: &[Field] = fields! { kda_layers, full_attn_layers, use_full_rank_gate };

const NAMES: Table = names! {
    "model.layers.{}." {
        ATTN_GATE => "self_attn.g_proj", GATE_UP => "self_attn.g_proj", GATE_UP => "self_attn.g_b_proj",
        CORRECTION => "block_sparse_moe.gate.e_score_correction_bias",
        CORRECTION => "block_sparse_moe.e_score_correction_bias",
        ROW_DOWN => "block_sparse_moe.routed_expert_down_proj", ROW_NORM => "block_sparse_moe.routed_expert_norm",
        ROW_UP => "block_sparse_moe.routed_expert_up_proj", SHARED_GATE => "block_sparse_moe.shared_experts.gate_proj",
        SHARED_UP => "block_sparse_moe.shared_experts.up_proj",
        SHARED_DOWN => "block_sparse_moe.shared_experts.down_proj",
    }
};

/// The limits that gates and their operands approach.
fn bent(f: &Fields) -> Result<Limits, ConfigError> {
    let gate = common::limit(f, "activation_situ_beta")?.unwrap_or(1.0);
    Ok(Limits::Bent { gate, up: common::limit(f, "activation_situ_linear_beta")? })
}

/// The delta attention, and which layers have it, counted from 1.
fn delta(f: &Fields, layers: usize) -> Result<(KimiDelta, Vec<bool>), ConfigError> {
    let none = Map::new();
    let map = f.object(OBJECT).unwrap_or(&none);
    let own = f.inside_alone(map, IN_OBJECT, &[DESCRIPTION, DELTA], &[])?;
    let size = |name| own.size(name).value();
    let listed = |name: &str| own.numbers(name).map(|list| move |i: usize| list.contains(&(i as f64 + 1.0)));
    let sizes = (size("num_heads"), size("head_dim"), size("short_conv_kernel_size"), listed("kda_layers"));
    let (Some(heads), Some(dim), Some(conv @ 2..), Some(linear)) = sizes else {
        let help = "this architecture expects `num_heads`, `head_dim`, `kda_layers` and \
                    `short_conv_kernel_size` (at least 2) in it";
        return Err(f.unsupported(OBJECT, Value::from(map.clone()).to_string(), help.into()));
    };
    let linear: Vec<bool> = (0..layers).map(linear).collect();
    if let Some(full) = listed("full_attn_layers")
        && let Some(i) = (0..layers).find(|i| full(*i) == linear[*i])
    {
        let expected = format!("the layers that `kda_layers` does not name; of layer {} both say the same", i + 1);
        return Err(own.invalid("full_attn_layers", &(i + 1), expected));
    }
    let delta = KimiDelta {
        heads,
        dim,
        conv,
        act: UnaryOp::Silu,
        rates: Kind::Bare,
        // 128 for 96 heads, as published.
        spare_rates: true,
        low_rank: [true, !own.flag("use_full_rank_gate")],
        floor: own.number("gate_lower_bound").map(|floor| floor as f32),
    };
    Ok((delta, linear))
}

/// The experts, if there are any.
fn experts(f: &Fields, d: &Decoder, bent: Limits) -> Result<Option<Experts>, ConfigError> {
    let Some(count) = f.size("n_routed_experts").value() else { return Ok(None) };
    // Experts of other groups would compete with a score of 0, as in A.X K2.
    for name in ["n_group", "topk_group"] {
        if let Some(n) = f.size(name).value().filter(|n| *n != 1) {
            let help = "this architecture expects experts without groups, as the published model";
            return Err(f.unsupported(name, n.to_string(), help.into()));
        }
    }
    let ffn = f.required_size("moe_intermediate_size")?;
    let shared = f.count("num_shared_experts").filter(|n| *n > 0).map(|n| n.saturating_mul(ffn));
    let norm = f.flag("latent_moe_use_norm").then_some(d.norm);
    let experts = Experts {
        ffn,
        limits: Some(bent),
        correction: Some(CORRECTION),
        shared: shared.map(|ffn| Shared { limits: Some(bent), ..Shared::plain(ffn) }),
        row: f.size("routed_expert_hidden_size").value().map(|width| ExpertRow { norm, ..ExpertRow::plain(width) }),
        ..Experts::like(d, sigmoids(f, 16, 1.0)?, count)
    };
    experts.checked(f, ["num_experts", "num_experts_per_token"]).map(Some)
}
