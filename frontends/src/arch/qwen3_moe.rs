//! Qwen3 with experts (arXiv 2505.09388): Qwen3 with mixtures of experts in most layers.

use super::blocks::QkNorm;
use super::decoder::{Decoder, Defaults};
use super::entry::Arch;
use super::experts::Experts;
use super::names::{HUGGING_FACE, Names, QWEN_EXPERTS};
use crate::config::common::{ATTENTION, ATTENTION_BIAS, MLP, MODEL, ROTARY, WIDTH};
use crate::config::fields::{Accepts, Field, IDENTITY};
use crate::config::known::Neutral;
use llmcc_ir::graph::Router;

pub(super) const ARCH: Arch = Arch {
    model_type: "qwen3_moe",
    class: "Qwen3MoeForCausalLM",
    fields: &[IDENTITY, MODEL, ATTENTION, ROTARY, MLP, ATTENTION_BIAS, EXPERTS],
    fixed: &[("use_qk_norm", Neutral::On), ("qk_norm", Neutral::On), ("qk_layernorm", Neutral::On)],
    goldens: &["qwen3_moe", "qwen3_moe_narrow"],
    names: Names(&[QWEN_EXPERTS, HUGGING_FACE]),
    read: |f| {
        let bias = f.flag("attention_bias");
        let d = Decoder::read(f, &Defaults { kv_heads: Some(4), max_position: 32_768, ..Defaults::LLAMA })?;
        let d = d.with_attention(|_, a| (a.qkv_bias, a.out_bias, a.qk_norm) = (bias, bias, Some(QkNorm::Head)));
        let router = Router::softmax(f.size("num_experts_per_tok").or(8), f.flag("norm_topk_prob"));
        let ffn = f.size("moe_intermediate_size").or(768);
        let experts = Experts { ffn, ..Experts::like(&d, router, f.size("num_experts").or(128)) };
        let experts = experts.checked(f, ["num_experts", "num_experts_per_tok"])?;
        let sparse = Experts::sparse_layers(f, d.layers.len());
        Ok(Box::new(d.with_experts(|i| sparse[i].then_some(experts))))
    },
};

const EXPERTS: &[Field] = &[
    Field::new("num_experts", Accepts::Size(4096)).or(&["num_local_experts"]),
    Field::new("num_experts_per_tok", Accepts::Size(4096)),
    Field::new("moe_intermediate_size", WIDTH),
    Field::new("norm_topk_prob", Accepts::Flag),
    Field::new("decoder_sparse_step", Accepts::Size(4096)),
    Field::new("mlp_only_layers", Accepts::Numbers),
];
