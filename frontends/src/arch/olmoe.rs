//! OLMoE (arXiv 2409.02060): Llama with norms of the whole rows of queries and keys, and a mixture
//! of experts in every layer.

use super::blocks::QkNorm;
use super::decoder::{Decoder, Defaults};
use super::entry::Arch;
use super::experts::Experts;
use super::names::{HUGGING_FACE, Names, QWEN_EXPERTS};
use crate::config::common::{ATTENTION, ATTENTION_BIAS, MLP, MODEL, ROTARY};
use crate::config::fields::{Accepts, Field, IDENTITY};
use crate::config::known::Neutral;
use llmcc_ir::graph::Router;

pub(super) const ARCH: Arch = Arch {
    model_type: "olmoe",
    class: "OlmoeForCausalLM",
    fields: &[IDENTITY, MODEL, ATTENTION, ROTARY, MLP, ATTENTION_BIAS, EXPERTS],
    fixed: &[("use_qk_norm", Neutral::On), ("qk_norm", Neutral::On), ("qk_layernorm", Neutral::On)],
    goldens: &["olmoe"],
    names: Names(&[QWEN_EXPERTS, HUGGING_FACE]),
    read: |f| {
        let bias = f.flag("attention_bias");
        let d = Decoder::read(f, &Defaults { max_position: 4096, eps: 1e-5, ..Defaults::LLAMA })?;
        let d = d.with_attention(|_, a| (a.qkv_bias, a.out_bias, a.qk_norm) = (bias, bias, Some(QkNorm::Row)));
        let router = Router::softmax(f.size("num_experts_per_tok").or(8), f.flag("norm_topk_prob"));
        let experts = Experts::like(&d, router, f.size("num_experts").or(64));
        let experts = experts.checked(f, ["num_experts", "num_experts_per_tok", "intermediate_size"])?;
        Ok(Box::new(d.with_experts(|_| Some(experts))))
    },
};

const EXPERTS: &[Field] = &[
    Field::new("num_experts", Accepts::Size(4096)).or(&["num_local_experts"]),
    Field::new("num_experts_per_tok", Accepts::Size(4096)),
    Field::new("norm_topk_prob", Accepts::Flag),
];
