//! FlexOLMo (arXiv 2507.07024): OLMo 2 with a mixture of experts in every layer.

use super::blocks::QkNorm;
use super::decoder::{Decoder, Defaults, Norms};
use super::entry::Arch;
use super::experts::Experts;
use super::names::{HUGGING_FACE, Names, POST_NORMS, QWEN_EXPERTS};
use crate::config::common::{ATTENTION, ATTENTION_BIAS, MLP, MODEL, ROTARY};
use crate::config::fields::{Accepts, Field, IDENTITY};
use crate::config::known::Neutral;
use llmcc_ir::graph::Router;

pub(super) const ARCH: Arch = Arch {
    model_type: "flex_olmo",
    class: "FlexOlmoForCausalLM",
    fields: &[IDENTITY, MODEL, ATTENTION, ROTARY, MLP, ATTENTION_BIAS, EXPERTS],
    fixed: &[("use_qk_norm", Neutral::On), ("qk_norm", Neutral::On), ("qk_layernorm", Neutral::On)],
    goldens: &["flex_olmo"],
    names: Names(&[QWEN_EXPERTS, POST_NORMS, HUGGING_FACE]),
    read: |f| {
        let bias = f.flag("attention_bias");
        let defaults =
            Defaults { vocab: Some(100_352), heads: Some(32), max_position: 4096, theta: 5e5, ..Defaults::LLAMA };
        let mut d = Decoder::read(f, &defaults)?;
        d.norms = Norms::After;
        let d = d.with_attention(|_, a| (a.qkv_bias, a.out_bias, a.qk_norm) = (bias, bias, Some(QkNorm::Row)));
        let router = Router::softmax(f.size("num_experts_per_tok").or(5), f.flag("norm_topk_prob"));
        let experts = Experts::like(&d, router, f.size("num_experts").or(7));
        let experts = experts.checked(f, ["num_experts", "num_experts_per_tok", "intermediate_size"])?;
        Ok(Box::new(d.with_experts(|_| Some(experts))))
    },
};

const EXPERTS: &[Field] = &[
    Field::new("num_experts", Accepts::Size(4096)).or(&["num_local_experts"]),
    Field::new("num_experts_per_tok", Accepts::Size(4096)),
    Field::new("norm_topk_prob", Accepts::Flag),
];
