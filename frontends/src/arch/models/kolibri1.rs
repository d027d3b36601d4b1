//! Kolibri (Aleph Alpha, 2026): norms on both sides of the blocks and of queries and keys, windows in
//! most layers, positions rotated there only, experts chosen by corrected logits in every layer.

use crate::arch::blocks::attention::QkNorm;
use crate::arch::blocks::decoder::{Decoder, Defaults, Norms};
use crate::arch::blocks::entry::Arch;
use crate::arch::blocks::experts::{CORRECTION, Experts, Shared};
use crate::arch::blocks::names::{
    ATTN_POST_NORM, DEEPSEEK_EXPERTS, HUGGING_FACE, MLP_NORM, MLP_POST_NORM, Names, Table,
};
use crate::config::common::{self, ACTIVATIONS, ATTENTION, MODEL, RMS_NORM, ROTARY, WIDTH, WINDOW};
use crate::config::fields::{Accepts, Field, IDENTITY};
use crate::config::known::Neutral;
use llmcc_ir::graph::{Router, Score};

pub(crate) const ARCH: Arch = Arch {
    model_type: "kolibri1",
    class: "Kolibri1ForCausalLM",
    fields: &[IDENTITY, MODEL, ATTENTION, ROTARY, WINDOW, OWN],
    fixed: &[("attention_bias", Neutral::Off)],
    goldens: &["kolibri1"],
    names: Names(&[NAMES, DEEPSEEK_EXPERTS, HUGGING_FACE]),
    read: |f| {
        let defaults = Defaults {
            vocab: Some(128_000),
            heads: Some(48),
            kv_heads: Some(4),
            head_dim: Some(128),
            max_position: 262_144,
            // There are no MLPs but those of `experts`.
            ffn: Some(1),
            ..Defaults::LLAMA
        };
        let mut d = Decoder::read(f, &defaults)?;
        d.norms = Norms::Both;
        let window = f.size("sliding_window").or_null(513);
        let sliding = common::sliding_layers(f, d.facts.layers)?;
        let d = d.with_attention(|i, a| {
            let slides = sliding.as_ref().map_or(!(i + 1).is_multiple_of(5), |s| s[i]);
            (a.qk_norm, a.window) = (Some(QkNorm::Head), window.filter(|_| slides));
            a.rotary = (slides || window.is_none()).then_some(0);
        });
        let router = Router::softmax(f.size("num_experts_per_tok").or(6), f.flag("norm_topk_prob"));
        let router = Router { score: Score::SigmoidOfChosen, ..router };
        let experts = Experts {
            ffn: f.size("moe_intermediate_size").or(512),
            correction: Some(CORRECTION),
            shared: Some(Shared::plain(f.size("shared_expert_intermediate_size").or(512))),
            ..Experts::like(&d, router, f.size("num_experts").or(384))
        };
        let experts = experts.checked(f, ["num_experts", "num_experts_per_tok"])?;
        Ok(Box::new(d.with_experts(|_| Some(experts))))
    },
};

const OWN: &[Field] = &[
    RMS_NORM,
    Field::new("hidden_act", Accepts::OneOf(ACTIVATIONS)),
    Field::new("num_experts", Accepts::Size(4096)).or(&["num_local_experts"]),
    Field::new("num_experts_per_tok", Accepts::Size(4096)),
    Field::new("moe_intermediate_size", WIDTH),
    Field::new("shared_expert_intermediate_size", WIDTH),
    Field::new("norm_topk_prob", Accepts::Flag),
];

const NAMES: Table = &[
    (ATTN_POST_NORM, "model.layers.{}.post_attn_norm"),
    (ATTN_POST_NORM, "model.layers.{}.post_self_attn_layernorm"),
    (MLP_NORM, "model.layers.{}.post_attention_layernorm"),
    (MLP_POST_NORM, "model.layers.{}.post_ffn_norm"),
    (MLP_POST_NORM, "model.layers.{}.post_mlp_layernorm"),
    (CORRECTION, "model.layers.{}.moe.router.expert_bias"),
    (CORRECTION, "model.layers.{}.mlp.gate.e_score_correction_bias"),
];
