//! LFM2 with experts (Liquid AI, 2025): LFM2 with experts chosen by corrected sigmoids in all but the first layers.

use crate::arch::blocks::families::lfm2_layers::{self, convolved_layers};
use crate::arch::blocks::prelude::*;

pub(crate) const ARCH: Arch = Arch {
    model_type: "lfm2_moe",
    class: "Lfm2MoeForCausalLM",
    fields: &[IDENTITY, MODEL, ATTENTION, ROTARY, OWN],
    fixed: &[("hidden_act", Neutral::Words(&["silu"]))],
    goldens: &["lfm2_moe"],
    names: Names(&[NAMES, lfm2_layers::NAMES, HUGGING_FACE]),
    read: |f| {
        let (d, conv) = (lfm2_layers::read(f)?, lfm2_layers::conv(f, 3)?);
        let layers = match f.get("layer_types").value() {
            Some(_) => convolved_layers(f, d.facts.layers)?,
            None => vec![true; d.facts.layers],
        };
        let d = lfm2_layers::with_convolutions(d, conv, &layers);
        let router = Router {
            normalize: f.flag_or("norm_topk_prob", true),
            eps: F32::new(1e-6),
            ..sigmoid_router(f, 4, ("routed_scaling_factor", 1.0))?
        };
        let experts = Experts {
            ffn: f.size("moe_intermediate_size").or(1792),
            correction: f.flag_or("use_expert_bias", true).then_some(CORRECTION),
            ..Experts::like(&d, router, f.size("num_experts").or(32))
        };
        let experts = experts.checked(f, ["num_experts", "num_experts_per_tok"])?;
        let dense = f.count("num_dense_layers").unwrap_or(2);
        Ok(Box::new(d.with_experts(|i| (i >= dense).then_some(experts))))
    },
};

const OWN: &[Field] = fields! {
    intermediate_size, norm_eps, conv_bias, conv_L_cache, layer_types: Accepts::ListOf(lfm2_layers::LAYER_TYPES),
    num_experts, num_experts_per_tok, moe_intermediate_size, num_dense_layers, norm_topk_prob, use_expert_bias,
    routed_scaling_factor,
};

const NAMES: Table = names! {
    "model.layers.{}." {
        ROUTER => "feed_forward.gate", CORRECTION => "feed_forward.expert_bias",
        EXPERT_GATE => "feed_forward.experts.{e}.w1", EXPERT_UP => "feed_forward.experts.{e}.w3",
        EXPERT_DOWN => "feed_forward.experts.{e}.w2", EXPERTS_GATE_UP => "feed_forward.experts.gate_up_proj",
        EXPERTS_DOWN => "feed_forward.experts.down_proj",
    }
};
