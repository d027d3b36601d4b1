//! Hy3 (Tencent, 2026): norms of queries and keys, experts chosen by corrected sigmoids in all but
//! the first layers, beside an MLP for all tokens.
//!
//! The layers after the last, which predict further tokens, are left out.

use crate::arch::blocks::families::latent_experts::experts_by;
use crate::arch::blocks::prelude::*;

pub(crate) const ARCH: Arch = Arch {
    model_type: "hy_v3",
    class: "HYV3ForCausalLM",
    fields: &[IDENTITY, MODEL, ATTENTION, ROTARY, MLP, ATTENTION_BIAS, MLP_BIAS, OWN],
    fixed: fixed! {
        On => qk_norm use_qk_norm moe_router_use_sigmoid moe_router_enable_expert_bias route_norm;
        One => first_k_dense_replace;
        Any => enable_moe_fp32_combine;
    },
    goldens: &["hy_v3"],
    names: Names(&[NAMES, DEEPSEEK_EXPERTS, HUGGING_FACE]),
    read: |f| {
        let defaults = defaults! {
            vocab: 120_832, heads: 64, kv_heads: 8, head_dim: 128, max_position: 131_072, eps: 1e-5,
            theta: 11_158_840.0, ..LLAMA
        };
        let bias = f.flag("attention_bias");
        f.refuse_flag("mlp_bias", "this architecture expects no biases in experts")?;
        let d = Decoder::read(f, &defaults)?;
        let d = d.with_heads(|_, _, h| (h.qkv_bias, h.out_bias, h.qk_norm) = (bias, bias, Some(QkNorm::Head)));
        let router = Router { eps: F32::new(1e-20), ..sigmoid_router(f, 8, ("router_scaling_factor", 2.826))? };
        let experts = experts_by(f, &d, router, ["num_experts", "num_shared_experts"], [192, 1, 1536])?;
        let experts = Experts { correction: Some(CORRECTION), ..experts };
        Ok(Box::new(d.with_sparse(f, 1, experts)?))
    },
};

const OWN: &[Field] = fields! {
    mlp_layer_types, num_experts | num_local_experts, num_experts_per_tok, num_shared_experts,
    moe_intermediate_size, router_scaling_factor,
};

const NAMES: Table = names! {
    "model.layers.{}." {
        ROUTER => "mlp.router.gate", CORRECTION => "mlp.expert_bias", SHARED_GATE => "mlp.shared_mlp.gate_proj",
        SHARED_UP => "mlp.shared_mlp.up_proj", SHARED_DOWN => "mlp.shared_mlp.down_proj",
    }
};
