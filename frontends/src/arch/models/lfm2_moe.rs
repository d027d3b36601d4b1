//! LFM2 with experts (Liquid AI, 2025): LFM2 with experts chosen by corrected sigmoids in all but
//! the first layers.

use crate::arch::blocks::entry::Arch;
use crate::arch::blocks::experts::{CORRECTION, Experts};
use crate::arch::blocks::families::lfm2_layers::{self, LAYER_TYPES, convolved_layers};
use crate::arch::blocks::names::{
    EXPERT_DOWN, EXPERT_GATE, EXPERT_UP, EXPERTS_DOWN, EXPERTS_GATE_UP, HUGGING_FACE, Names, ROUTER, Table,
};
use crate::config::common::{ATTENTION, MODEL, ROTARY, WIDTH};
use crate::config::fields::{Accepts, Field, IDENTITY};
use crate::config::known::Neutral;
use llmcc_ir::graph::{F32, Router, Score};

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
            score: Score::Sigmoid,
            eps: F32::new(1e-6),
            scale: F32::new(f.factor_or("routed_scaling_factor", 1.0)? as f32),
            ..Router::softmax(f.size("num_experts_per_tok").or(4), f.flag_or("norm_topk_prob", true))
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

const OWN: &[Field] = &[
    Field::new("intermediate_size", WIDTH),
    Field::new("norm_eps", Accepts::Number),
    Field::new("conv_bias", Accepts::Flag),
    Field::new("conv_L_cache", Accepts::Size(64)),
    Field::new("layer_types", Accepts::ListOf(LAYER_TYPES)),
    Field::new("num_experts", Accepts::Size(4096)),
    Field::new("num_experts_per_tok", Accepts::Size(4096)),
    Field::new("moe_intermediate_size", WIDTH),
    Field::new("num_dense_layers", Accepts::Count),
    Field::new("norm_topk_prob", Accepts::Flag),
    Field::new("use_expert_bias", Accepts::Flag),
    Field::new("routed_scaling_factor", Accepts::Number),
];

const NAMES: Table = &[
    (ROUTER, "model.layers.{}.feed_forward.gate"),
    (CORRECTION, "model.layers.{}.feed_forward.expert_bias"),
    (EXPERT_GATE, "model.layers.{}.feed_forward.experts.{e}.w1"),
    (EXPERT_UP, "model.layers.{}.feed_forward.experts.{e}.w3"),
    (EXPERT_DOWN, "model.layers.{}.feed_forward.experts.{e}.w2"),
    (EXPERTS_GATE_UP, "model.layers.{}.feed_forward.experts.gate_up_proj"),
    (EXPERTS_DOWN, "model.layers.{}.feed_forward.experts.down_proj"),
];
