//! Phi-3.5-MoE (arXiv 2404.14219, 2412.08905): LayerNorm, biases in attention and of the head, two
//! experts of each layer by the sparse mixer (arXiv 2409.12136).
//!
//! Longrope is refused: what its class makes of it depends on the longest sequence of a call.

use super::blocks::Norm;
use super::decoder::{Decoder, Defaults};
use super::entry::Arch;
use super::experts::Experts;
use super::names::{HUGGING_FACE, MIXTRAL_EXPERTS, Names};
use crate::config::common::{ATTENTION, ATTENTION_BIAS, MLP, MODEL, ROTARY, WINDOW, WindowRule};
use crate::config::fields::{Accepts, Field, IDENTITY};
use crate::config::known::Neutral;
use crate::rope::RopeScaling;
use llmcc_ir::graph::{F32, Router, Score};

pub(super) const ARCH: Arch = Arch {
    model_type: "phimoe",
    class: "PhimoeForCausalLM",
    fields: &[IDENTITY, MODEL, ATTENTION, ROTARY, MLP, ATTENTION_BIAS, WINDOW, OWN],
    fixed: &[],
    goldens: &["phimoe"],
    names: Names(&[MIXTRAL_EXPERTS, HUGGING_FACE]),
    read: |f| {
        let defaults = Defaults {
            vocab: Some(32_064),
            heads: Some(32),
            kv_heads: Some(8),
            max_position: 131_072,
            window: WindowRule::Given,
            eps: 1e-5,
            theta: 1e6,
            ..Defaults::LLAMA
        };
        let bias = f.flag("attention_bias");
        let mut d = Decoder::read(f, &defaults)?;
        if d.ropes.iter().any(|rope| matches!(rope.scaling, RopeScaling::LongRope { .. })) {
            let help = "this architecture has frequencies that follow the longest sequence of a call: not supported";
            return Err(f.unsupported("rope_scaling", "longrope".into(), help.into()));
        }
        (d.norm, d.head_bias) = (Norm::layer(d.norm.eps), f.flag("lm_head_bias"));
        let d = d.with_attention(|_, a| (a.qkv_bias, a.out_bias) = (bias, bias));
        let eps = F32::new(f.number("router_jitter_noise").unwrap_or(0.01) as f32);
        let top = f.size("num_experts_per_tok").or(2);
        if top != 2 {
            let help = "this architecture has two experts of each token".to_string();
            return Err(f.unsupported("num_experts_per_tok", top.to_string(), help));
        }
        let router = Router { score: Score::Mixer, eps, ..Router::softmax(top, false) };
        let experts = Experts::like(&d, router, f.size("num_local_experts").or(16));
        let experts = experts.checked(f, ["num_local_experts", "num_experts_per_tok"])?;
        Ok(Box::new(d.with_experts(|_| Some(experts))))
    },
};

const OWN: &[Field] = &[
    Field::new("num_local_experts", Accepts::Size(4096)).or(&["num_experts"]),
    Field::new("num_experts_per_tok", Accepts::Size(4096)),
    // The others draw noise from it, in training.
    Field::new("router_jitter_noise", Accepts::Number).unless(Neutral::Any),
    Field::new("lm_head_bias", Accepts::Flag),
];
