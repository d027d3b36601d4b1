//! dots.llm1 (arXiv 2506.05767): Qwen3's attention, then mixtures of experts as DeepSeek-V3 has
//! them.

use crate::arch::blocks::attention::QkNorm;
use crate::arch::blocks::decoder::{Decoder, Defaults};
use crate::arch::blocks::entry::Arch;
use crate::arch::blocks::experts::{CORRECTION, Experts, Shared};
use crate::arch::blocks::families::latent_experts::sigmoids_of;
use crate::arch::blocks::names::{DEEPSEEK_EXPERTS, HUGGING_FACE, Names, Table};
use crate::config::common::{self, ATTENTION, ATTENTION_BIAS, MLP, MODEL, ROTARY, WIDTH, WINDOW};
use crate::config::fields::{Accepts, Field, IDENTITY};
use crate::config::known::Neutral;
use llmcc_ir::graph::Router;

pub(crate) const ARCH: Arch = Arch {
    model_type: "dots1",
    class: "Dots1ForCausalLM",
    fields: &[IDENTITY, MODEL, ATTENTION, ROTARY, MLP, ATTENTION_BIAS, WINDOW, OWN],
    fixed: &[
        ("scoring_func", Neutral::Words(&["noaux_tc", "sigmoid"])),
        ("topk_method", Neutral::Words(&["noaux_tc"])),
        ("moe_layer_freq", Neutral::One),
    ],
    goldens: &["dots1"],
    names: Names(&[NAMES, DEEPSEEK_EXPERTS, HUGGING_FACE]),
    read: |f| {
        let bias = f.flag("attention_bias");
        let defaults = Defaults { vocab: Some(152_064), heads: Some(32), kv_heads: Some(32), ..Defaults::LLAMA };
        let d = Decoder::read(f, &defaults)?;
        let window = f.size("sliding_window").or_null(4096);
        let (first, sliding) = (f.count("max_window_layers").unwrap_or(62), common::sliding_layers(f, d.layers.len())?);
        let d = d.with_attention(|i, a| {
            (a.qkv_bias, a.out_bias, a.qk_norm) = (bias, bias, Some(QkNorm::Head));
            a.window = window.filter(|_| sliding.as_ref().map_or(i >= first, |s| s[i]));
        });
        let chosen = Router::softmax(f.required_size("num_experts_per_tok")?, f.flag("norm_topk_prob"));
        let router = sigmoids_of(f, chosen, 1.0)?;
        let ffn = f.size("moe_intermediate_size").or(1408);
        let beside = f.required_size("n_shared_experts")?;
        let experts = Experts {
            ffn,
            correction: Some(CORRECTION),
            shared: Some(Shared::plain(ffn.saturating_mul(beside))),
            ..Experts::like(&d, router, f.required_size("n_routed_experts")?)
        };
        let experts = experts.checked(f, ["n_routed_experts", "num_experts_per_tok"])?;
        let dense = f.count("first_k_dense_replace").unwrap_or(0);
        Ok(Box::new(d.with_experts(|i| (i >= dense).then_some(experts))))
    },
};

const OWN: &[Field] = &[
    Field::new("n_routed_experts", Accepts::Size(4096)).or(&["num_local_experts"]),
    Field::new("num_experts_per_tok", Accepts::Size(4096)),
    Field::new("n_shared_experts", Accepts::Size(4096)),
    Field::new("moe_intermediate_size", WIDTH),
    Field::new("first_k_dense_replace", Accepts::Count),
    Field::new("routed_scaling_factor", Accepts::Number),
    Field::new("n_group", Accepts::Size(4096)),
    Field::new("topk_group", Accepts::Size(4096)),
    Field::new("norm_topk_prob", Accepts::Flag),
    Field::new("max_window_layers", Accepts::Count),
];

const NAMES: Table = &[(CORRECTION, "model.layers.{}.mlp.gate.e_score_correction_bias")];
