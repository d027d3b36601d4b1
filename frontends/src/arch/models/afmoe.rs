//! AFMoE (Arcee's Trinity, 2025): norms on both sides of the blocks and of queries and keys, a gate of attention's
//! result, windows in most layers, positions rotated there only, experts chosen by corrected sigmoids.

use crate::arch::blocks::families::latent_experts::experts_by;
use crate::arch::blocks::prelude::*;

pub(crate) const ARCH: Arch = Arch {
    model_type: "afmoe",
    class: "AfmoeForCausalLM",
    fields: &[IDENTITY, MODEL, ATTENTION, ROTARY, MLP, ATTENTION_BIAS, WINDOW, OWN],
    fixed: fixed! {
        Words(&["sigmoid"]) => score_func;
        On => route_norm;
        One => n_group topk_group num_expert_groups num_limited_groups;
    },
    goldens: &["afmoe"],
    names: Names(&[NAMES, DEEPSEEK_EXPERTS, HUGGING_FACE]),
    read: |f| {
        let defaults = defaults! { vocab: 200_192, heads: 16, head_dim: 128, max_position: 16_384, eps: 1e-5, ..LLAMA };
        let mut d = Decoder::read(f, &defaults)?;
        d.norms = Norms::Both;
        d.scales.embedding = f.flag("mup_enabled").then(|| (d.facts.hidden as f64).sqrt() as f32);
        let (bias, window) = (f.flag("attention_bias"), f.size("sliding_window").or_null(1024));
        let (every, sliding) = (f.size("global_attn_every_n_layers").or(4), common::sliding_layers(f, d.facts.layers)?);
        let d = d.with_heads(|i, a, h| {
            (h.qk_norm, h.qkv_bias, h.out_bias) = (Some(QkNorm::Head), bias, bias);
            a.gate = Some(Gate::Columns);
            let local = sliding.as_ref().map_or(!(i + 1).is_multiple_of(every), |s| s[i]);
            (a.window, a.rotary) = (window.filter(|_| local), local.then_some(0));
        });
        let router = Router { eps: F32::new(1e-20), ..sigmoid_router(f, 6, ("route_scale", 1.0))? };
        let experts = experts_by(f, &d, router, ["num_experts", "num_shared_experts"], [64, 2, 1408])?;
        let experts = Experts { correction: Some(CORRECTION), ..experts };
        let dense = f.count("num_dense_layers").unwrap_or(1);
        Ok(Box::new(d.with_experts(|i| (i >= dense).then_some(experts))))
    },
};

const OWN: &[Field] = fields! {
    global_attn_every_n_layers: Accepts::Size(1 << 14), mup_enabled, num_experts | num_local_experts | n_routed_experts,
    num_experts_per_tok, num_shared_experts | n_shared_experts, moe_intermediate_size, num_dense_layers, route_scale,
};

const NAMES: Table = names! {
    "model.layers.{}." {
        ATTN_GATE => "self_attn.gate_proj", ATTN_POST_NORM => "post_attention_layernorm",
        MLP_NORM => "pre_mlp_layernorm", MLP_POST_NORM => "post_mlp_layernorm", ROUTER => "mlp.router.gate",
        CORRECTION => "mlp.expert_bias",
    }
};
