//! Qwen1.5 and Qwen2 with experts (arXiv 2407.10671): Qwen2 with mixtures of experts in most
//! layers, beside an MLP for all tokens that each takes a share of.

use super::decoder::{Decoder, Defaults};
use super::entry::Arch;
use super::experts::{Experts, Shared};
use super::names::{HUGGING_FACE, Names, QWEN_EXPERTS};
use crate::config::common::{ATTENTION, MLP, MODEL, ROTARY, WIDTH};
use crate::config::fields::{Accepts, Field, IDENTITY};
use crate::config::known::Neutral;
use llmcc_ir::graph::Router;

pub(super) const ARCH: Arch = Arch {
    model_type: "qwen2_moe",
    class: "Qwen2MoeForCausalLM",
    fields: &[IDENTITY, MODEL, ATTENTION, ROTARY, MLP, EXPERTS],
    fixed: &[("attention_bias", Neutral::On), ("use_qkv_bias", Neutral::On), ("add_qkv_bias", Neutral::On)],
    goldens: &["qwen2_moe"],
    names: Names(&[QWEN_EXPERTS, HUGGING_FACE]),
    read: |f| {
        let bias = f.flag_or("qkv_bias", true);
        let d = Decoder::read(f, &Defaults { kv_heads: Some(16), max_position: 32_768, ..Defaults::LLAMA })?;
        let d = d.with_attention(|_, a| a.qkv_bias = bias);
        let router = Router::softmax(f.size("num_experts_per_tok").or(4), f.flag("norm_topk_prob"));
        let shared = Shared { mixed: true, ..Shared::plain(f.size("shared_expert_intermediate_size").or(5632)) };
        let experts = Experts {
            ffn: f.size("moe_intermediate_size").or(1408),
            shared: Some(shared),
            ..Experts::like(&d, router, f.size("num_experts").or(60))
        };
        let experts = experts.checked(f, ["num_experts", "num_experts_per_tok"])?;
        let sparse = Experts::sparse_layers(f, d.layers.len());
        Ok(Box::new(d.with_experts(|i| sparse[i].then_some(experts))))
    },
};

const EXPERTS: &[Field] = &[
    Field::new("qkv_bias", Accepts::Flag),
    Field::new("num_experts", Accepts::Size(4096)).or(&["num_local_experts"]),
    Field::new("num_experts_per_tok", Accepts::Size(4096)),
    Field::new("moe_intermediate_size", WIDTH),
    Field::new("shared_expert_intermediate_size", WIDTH),
    Field::new("norm_topk_prob", Accepts::Flag),
    Field::new("decoder_sparse_step", Accepts::Size(4096)),
    Field::new("mlp_only_layers", Accepts::Numbers),
];
