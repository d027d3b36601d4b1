//! gpt-oss (arXiv 2508.10925): attention with sinks, windows in every other layer, experts with
//! biases and an activation of limited numbers.

use crate::arch::blocks::names::{
    EXPERTS_DOWN_BIAS, EXPERTS_DOWN_ROWS, EXPERTS_GATE, EXPERTS_GATE_BIAS, EXPERTS_GATE_UP_BIAS, EXPERTS_UP,
    EXPERTS_UP_BIAS,
};
use crate::arch::blocks::prelude::*;

pub(crate) const ARCH: Arch = Arch {
    model_type: "gpt_oss",
    class: "GptOssForCausalLM",
    fields: &[IDENTITY, MODEL, ATTENTION, ROTARY, ATTENTION_BIAS, WINDOW, OWN],
    fixed: &[("hidden_act", Neutral::Words(&["silu"]))],
    goldens: &["gpt_oss", "gpt_oss_narrow"],
    names: Names(&[NAMES, HUGGING_FACE]),
    read: |f| {
        // Its class scales the frequencies where nothing is said.
        if f.object("rope_parameters").is_none() && f.object("rope_scaling").is_none() {
            return Err(f.missing("rope_parameters"));
        }
        let bias = f.flag_or("attention_bias", true);
        let defaults = defaults! {
            vocab: 201_088, heads: 64, kv_heads: 8, head_dim: 64, max_position: 131_072, eps: 1e-5, theta: 1.5e5,
            ..LLAMA
        };
        let d = Decoder::read(f, &defaults)?;
        let window = f.size("sliding_window").or_null(128);
        let sliding = common::sliding_layers(f, d.layers.len())?;
        let d = d.with_heads(|i, a, h| {
            (h.qkv_bias, h.out_bias, a.sinks) = (bias, bias, true);
            a.window = window.filter(|_| sliding.as_ref().map_or(i % 2 == 0, |s| s[i]));
        });
        let router = Router::softmax(f.size("num_experts_per_tok").or(4), false);
        let router = Router { score: Score::Chosen, ..router };
        let limits = Limits::Clamped {
            alpha: f.factor_or("swiglu_alpha", 1.702)? as f32,
            limit: f.factor_or("swiglu_limit", 7.0)? as f32,
        };
        let experts = Experts {
            limits: Some(limits),
            routing: Routing { bias: true, ..Routing::default() },
            stored: Stored::Turned,
            ..Experts::like(&d, router, f.size("num_local_experts").or(128))
        };
        let experts = experts.checked(f, ["num_local_experts", "num_experts_per_tok"])?;
        Ok(Box::new(d.with_experts(|_| Some(experts))))
    },
};

const OWN: &[Field] = fields! {
    intermediate_size, rms_norm_eps, num_local_experts | num_experts, num_experts_per_tok | experts_per_token,
    swiglu_alpha, swiglu_limit,
};

const NAMES: Table = names! {
    "model.layers.{}." {
        ROUTER => "mlp.router", EXPERTS_GATE_UP => "mlp.experts.gate_up_proj",
        EXPERTS_GATE_UP_BIAS => "mlp.experts.gate_up_proj_bias", EXPERTS_DOWN => "mlp.experts.down_proj",
        EXPERTS_DOWN_BIAS => "mlp.experts.down_proj_bias", EXPERTS_GATE => "mlp.experts.gate_proj",
        EXPERTS_GATE_BIAS => "mlp.experts.gate_proj_bias", EXPERTS_UP => "mlp.experts.up_proj",
        EXPERTS_UP_BIAS => "mlp.experts.up_proj_bias", EXPERTS_DOWN_ROWS => "mlp.experts.down_rows",
    }
};
