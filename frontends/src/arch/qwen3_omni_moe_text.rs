//! Qwen3-Omni (arXiv 2509.17765), the text model of its thinker: Qwen3 with experts. Positions of texts
//! are the same in all three sections of its rotation, and nothing is added to the first layers without
//! images.

use super::blocks::QkNorm;
use super::decoder::{Decoder, Defaults};
use super::entry::Arch;
use super::experts::{Experts, Stored};
use super::names::{HUGGING_FACE, Names, QWEN_EXPERTS};
use crate::config::common::{ATTENTION, ATTENTION_BIAS, MLP, MODEL, ROTARY, WIDTH};
use crate::config::fields::{Accepts, Field, IDENTITY};
use crate::config::known::Neutral;
use llmcc_ir::graph::Router;

pub(super) const ARCH: Arch = Arch {
    model_type: "qwen3_omni_moe_text",
    class: "Qwen3OmniMoeThinkerForConditionalGeneration",
    fields: &[IDENTITY, MODEL, ATTENTION, ROTARY, MLP, ATTENTION_BIAS, EXPERTS],
    fixed: &[("use_qk_norm", Neutral::On), ("qk_norm", Neutral::On), ("qk_layernorm", Neutral::On)],
    goldens: &["qwen3_omni_moe_text"],
    names: Names(&[QWEN_EXPERTS, HUGGING_FACE]),
    read: |f| {
        let bias = f.flag("attention_bias");
        let defaults = Defaults {
            vocab: Some(3584),
            heads: Some(28),
            kv_heads: Some(4),
            max_position: 32_768,
            theta: 1e6,
            ..Defaults::LLAMA
        };
        let d = Decoder::read(f, &defaults)?;
        let d = d.with_attention(|_, a| (a.qkv_bias, a.out_bias, a.qk_norm) = (bias, bias, Some(QkNorm::Head)));
        let router = Router::softmax(f.size("num_experts_per_tok").or(8), f.flag_or("norm_topk_prob", true));
        let experts = Experts {
            ffn: f.size("moe_intermediate_size").or(768),
            stored: Stored::EachOrJoined,
            ..Experts::like(&d, router, f.size("num_experts").or(128))
        };
        let experts = experts.checked(f, ["num_experts", "num_experts_per_tok"])?;
        let sparse = Experts::sparse_layers(f, d.layers.len());
        Ok(Box::new(d.with_experts(|i| sparse[i].then_some(experts))))
    },
};

const EXPERTS: &[Field] = &[
    Field::new("num_experts", Accepts::Size(4096)).or(&["num_local_experts"]),
    Field::new("num_experts_per_tok", Accepts::Size(4096)),
    Field::new("moe_intermediate_size", WIDTH),
    Field::new("decoder_sparse_step", Accepts::Size(4096)),
    Field::new("mlp_only_layers", Accepts::Numbers),
    Field::new("norm_topk_prob", Accepts::Flag),
];
